"""CRM sync's bulk actions: the entries or records of each, and its effect on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from django.utils.translation import gettext_lazy as _

from crmsync.actions import preview
from crmsync.actions.pages import DismissedEntries, OpenEntries, Records, select_message
from crmsync.messages.fields import CRM, ERROR_CLASS, POLICY
from msgplatform.api import filter_fields, filters
from msgplatform.core import flows
from msgplatform.core.flows import FilterField
from msgplatform.messages.bulk import bulk_action


def _since(help: flows.Text) -> FilterField:
    """Times of rows, not of ids."""
    return replace(filter_fields.since(help), read=filters.moment)


def _until(help: flows.Text) -> FilterField:
    return replace(filter_fields.until(help), read=filters.moment)


# The parts of actions on entries of the recovery log, and on records.
_OF_ENTRIES: Mapping[str, Any] = {
    "describe": preview.entries,
    "show": partial(preview.show, of_records=False),
    "lines": partial(preview.lines, of_records=False),
}
_OF_RECORDS: Mapping[str, Any] = {
    "describe": preview.records,
    "show": partial(preview.show, of_records=True),
    "outcome": partial(preview.outcome, of_records=True),
    "lines": partial(preview.lines, of_records=True),
}
_ENTRIES = {
    "crm": CRM,
    "policy": POLICY,
    "error_class": ERROR_CLASS,
    "since": _since(_("In the recovery log since this time or later")),
    "until": _until(_("In the recovery log before this time")),
    "ids": filter_fields.ids(_("Ids of entries of the recovery log, at most 500")),
}

ACTIONS: Mapping[str, flows.BulkAction] = {
    "resend": bulk_action(
        OpenEntries,
        title=_("Try dead records again"),
        fields=_ENTRIES,
        help=_("Each gets all its tries again. Rows that the mapping refused are read again."),
        select_message=select_message,
        outcome=partial(preview.outcome, of_records=False),
        **_OF_ENTRIES,
    ),
    "dismiss": bulk_action(
        DismissedEntries,
        title=_("Dismiss dead records"),
        fields=_ENTRIES,
        help=_("These records are not sent. Later changes at the source are sent as usual."),
        **_OF_ENTRIES,
    ),
    "replay": bulk_action(
        Records,
        title=_("Send records again"),
        fields={
            "crm": CRM,
            "policy": POLICY,
            "key": FilterField(_("Record key"), _("Exact: the key of the row at its source")),
            "since": _since(_("Last changed at this time or later")),
            "until": _until(_("Last changed before this time")),
        },
        help=_("Each record is sent in its newest version, also when it is confirmed. Choose a CRM "
               "or a policy. Dismissed records are left alone."),
        **_OF_RECORDS,
    ),
}  # fmt: skip
