"""CRM sync's bulk actions: which entries or records each is about, and what is done to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from django.utils.translation import gettext_lazy as _

from crmsync.actions import preview
from crmsync.actions.pages import DismissedEntries, OpenEntries, Records, select_message
from crmsync.messages.fields import CRM, ERROR_CLASS, POLICY
from msgplatform.api import filter_fields, filters
from msgplatform.core import flows
from msgplatform.core.flows import FilterField
from msgplatform.core.flows.messages import Values
from msgplatform.messages.engine import read_filter


def _since(help: flows.Text) -> FilterField:
    """Times of rows, not of ids."""
    return replace(filter_fields.since(help), read=filters.moment)


def _until(help: flows.Text) -> FilterField:
    return replace(filter_fields.until(help), read=filters.moment)


_Select = Callable[[Values, datetime], flows.Selection]


def _action(
    title: flows.Text,
    fields: flows.Fields,
    help: flows.Text,
    selection: _Select,
    of_records: bool = False,
    has_outcome: bool = True,
    **more: Any,
) -> flows.BulkAction:
    def select(filter: Mapping[str, Any], started_at: datetime) -> flows.Selection:
        return selection(read_filter(fields, filter), started_at)

    return flows.BulkAction(
        title=title,
        fields=fields,
        help=help,
        select=select,
        describe=preview.records if of_records else preview.entries,
        show=partial(preview.show, of_records=of_records),
        outcome=partial(preview.outcome, of_records=of_records) if has_outcome else None,
        lines=partial(preview.lines, of_records=of_records),
        **more,
    )


_ENTRIES = {
    "crm": CRM,
    "policy": POLICY,
    "error_class": ERROR_CLASS,
    "since": _since(_("In the recovery log since this time or later")),
    "until": _until(_("In the recovery log before this time")),
    "ids": filter_fields.ids(_("Ids of entries of the recovery log, at most 500")),
}

ACTIONS: Mapping[str, flows.BulkAction] = {
    "resend": _action(
        _("Try dead records again"),
        _ENTRIES,
        _("Each gets all its tries again. Rows that the mapping refused are read again."),
        OpenEntries,
        select_message=select_message,
    ),
    "dismiss": _action(
        _("Dismiss dead records"),
        _ENTRIES,
        _("These records are not sent. Later changes at the source are sent as usual."),
        DismissedEntries,
        has_outcome=False,
    ),
    "replay": _action(
        _("Send records again"),
        {
            "crm": CRM,
            "policy": POLICY,
            "key": FilterField(
                _("Record key"), _("Exact: the key of the row at its source")
            ),
            "since": _since(_("Last changed at this time or later")),
            "until": _until(_("Last changed before this time")),
        },
        _("Each record is sent in its newest version, also when it is confirmed. Choose a CRM "
          "or a policy. Dismissed records are left alone."),
        Records,
        of_records=True,
    ),
}  # fmt: skip
