"""CRM sync's bulk actions: what `run_bulk` does page by page, and the count that comes before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from django.utils.translation import gettext_lazy as _

from crmsync.actions.filters import POLICY, Filter, parse
from crmsync.actions.pages import OpenEntries, Records
from crmsync.messages.filters import CRM, ERROR_CLASS
from crmsync.recovery import entries
from crmsync.recovery.resend import resend
from msgplatform.api import filter_fields
from msgplatform.core import flows
from msgplatform.core.bulk import cursor as bulk_cursor
from msgplatform.core.bulk.cursor import BulkCursor, Page
from msgplatform.core.data import sql, transactions
from msgplatform.core.errors import InvalidInput

BY = "bulk"  # as whoever handled an entry; the bulk job's own row says who started it


class Chosen(Protocol):
    def page(self, position: str, limit: int) -> Page: ...


@dataclass(frozen=True)
class _Action:
    chosen: Callable[[Filter, datetime], Chosen]
    apply: Callable[[Sequence[int], datetime], int]
    shown: flows.BulkAction


_ENTRIES = {
    "crm": CRM,
    "policy": POLICY,
    "error_class": ERROR_CLASS,
    "since": filter_fields.time(_("In the recovery log since this time or later")),
    "until": filter_fields.time(_("In the recovery log before this time")),
    "ids": flows.FilterField(_("Ids of entries of the recovery log, at most 500"), "ids"),
}

ACTIONS: Mapping[str, _Action] = {
    "retry": _Action(
        OpenEntries,
        lambda ids, begun: transactions.retrying(partial(entries.retry, ids, BY)),
        flows.BulkAction(
            _("Try dead records again"),
            _ENTRIES,
            _("Each gets all its tries again. Rows that the mapping refused are read again."),
            has_outcome=True,
        ),
    ),
    "dismiss": _Action(
        OpenEntries,
        lambda ids, begun: transactions.retrying(partial(entries.dismiss, ids, BY)),
        flows.BulkAction(
            _("Dismiss dead records"),
            _ENTRIES,
            _("These records are not sent. Later changes at the source are sent as usual."),
        ),
    ),
    "resend": _Action(
        Records,
        lambda ids, begun: resend(ids, begun, BY),
        flows.BulkAction(
            _("Send records again"),
            {
                "crm": CRM,
                "policy": POLICY,
                "key": _("Exact: the key of the row at its source"),
                "since": filter_fields.time(_("Last changed at this time or later")),
                "until": filter_fields.time(_("Last changed before this time")),
            },
            _("Each record is sent in its newest version, also when it is confirmed. Choose a CRM "
              "or a policy. Dismissed records are left alone."),
            has_outcome=True,
        ),
    ),
}  # fmt: skip


def count(action: str, given: Mapping[str, Any]) -> flows.Counted:
    """How many rows the action would touch now, counted up to a bound."""
    _action, rows = chosen(action, given, sql.now())
    return bulk_cursor.count(rows.page)


def step(
    action: str, given: Mapping[str, Any], cursor: str, limit: int, note: flows.Note = flows.unnoted
) -> flows.Step:
    """The next page. A step that is repeated does nothing twice."""
    # The first step fixes the time at which the job began, and does nothing else.
    if not cursor:
        chosen(action, given, sql.now())  # refuses a wrong filter
        return flows.Step(BulkCursor.begin(), 0)
    at = BulkCursor.read(cursor)
    chosen_action, rows = chosen(action, given, at.begun)
    page = rows.page(at.position, limit)
    if page.ids and chosen_action.shown.has_outcome:
        note(page.ids)
    done = chosen_action.apply(page.ids, at.begun) if page.ids else 0
    return flows.Step(at.moved_to(page.position), done)


def chosen(action: str, given: Mapping[str, Any], begun: datetime) -> tuple[_Action, Chosen]:
    """An action, and the rows that a filter means for it. Raises InvalidInput."""
    if action not in ACTIONS:
        raise InvalidInput("there is no such bulk action", "action")
    found = ACTIONS[action]
    return found, found.chosen(parse(given, found.shown.filters), begun)
