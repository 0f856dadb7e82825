"""CRM sync's bulk actions: the work of `run_bulk`, page by page, and the count before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from django.utils.translation import gettext_lazy as _

from crmsync.actions import preview
from crmsync.actions.filters import POLICY, Filter, parse
from crmsync.actions.one_message import resend_one
from crmsync.actions.pages import OpenEntries, Records
from crmsync.messages.index import CRM, ERROR_CLASS
from crmsync.recovery import entries
from crmsync.recovery.resend import resend
from msgplatform.api import filter_fields
from msgplatform.core import flows
from msgplatform.core.bulk import cursor as bulk_cursor
from msgplatform.core.bulk.cursor import BulkCursor, Page
from msgplatform.core.data import sql, transactions

BY = "bulk"  # as the user who handled an entry; the bulk job's own row says who started it


class Selection(Protocol):
    def page(self, position: str, limit: int) -> Page: ...


_Select = Callable[[Filter, datetime], Selection]
_Apply = Callable[[Sequence[int], datetime], int]


def _action(
    title: flows.Text,
    fields: flows.Fields,
    help: flows.Text,
    select: _Select,
    apply: _Apply,
    of_records: bool = False,
    has_outcome: bool = True,
    **more: Any,
) -> flows.BulkAction:
    def selection(given: Mapping[str, Any], begun: datetime) -> Selection:
        return select(parse(given, fields), begun)

    def count(given: Mapping[str, Any]) -> flows.Counted:
        return bulk_cursor.count(selection(given, sql.now()).page)

    def preview_job(given: Mapping[str, Any]) -> flows.Preview:
        begun = sql.now()
        return preview.preview(selection(given, begun).page, begun, of_records)

    def step(
        given: Mapping[str, Any], cursor: str, limit: int, note: flows.Note = flows.unnoted
    ) -> flows.Step:
        """The next page. A step that is repeated does nothing twice."""
        # The first step fixes the time at which the job began, and does nothing else.
        if not cursor:
            selection(given, sql.now())  # refuses a wrong filter
            return flows.Step(BulkCursor.begin(), 0)
        at = BulkCursor.read(cursor)
        page = selection(given, at.begun).page(at.position, limit)
        if page.ids and has_outcome:
            note(page.ids)
        done = apply(page.ids, at.begun) if page.ids else 0
        return flows.Step(at.moved_to(page.position), done)

    return flows.BulkAction(
        title=title,
        fields=fields,
        help=help,
        count=count,
        preview=preview_job,
        step=step,
        outcome=partial(preview.outcome, of_records=of_records) if has_outcome else None,
        lines=partial(preview.lines, of_records=of_records),
        **more,
    )


_ENTRIES = {
    "crm": CRM,
    "policy": POLICY,
    "error_class": ERROR_CLASS,
    "since": filter_fields.since(_("In the recovery log since this time or later")),
    "until": filter_fields.until(_("In the recovery log before this time")),
    "ids": filter_fields.ids(_("Ids of entries of the recovery log, at most 500")),
}

ACTIONS: Mapping[str, flows.BulkAction] = {
    "retry": _action(
        _("Try dead records again"),
        _ENTRIES,
        _("Each gets all its tries again. Rows that the mapping refused are read again."),
        OpenEntries,
        lambda ids, begun: transactions.retrying(partial(entries.retry, ids, BY)),
        resend=resend_one,
    ),
    "dismiss": _action(
        _("Dismiss dead records"),
        _ENTRIES,
        _("These records are not sent. Later changes at the source are sent as usual."),
        OpenEntries,
        lambda ids, begun: transactions.retrying(partial(entries.dismiss, ids, BY)),
        has_outcome=False,
    ),
    "resend": _action(
        _("Send records again"),
        {
            "crm": CRM,
            "policy": POLICY,
            "key": flows.FilterField(
                _("Record key"), _("Exact: the key of the row at its source")
            ),
            "since": filter_fields.since(_("Last changed at this time or later")),
            "until": filter_fields.until(_("Last changed before this time")),
        },
        _("Each record is sent in its newest version, also when it is confirmed. Choose a CRM "
          "or a policy. Dismissed records are left alone."),
        Records,
        lambda ids, begun: resend(ids, begun, BY),
        of_records=True,
    ),
}  # fmt: skip
