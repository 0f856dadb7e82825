"""Dead records for the page Failures, by CRM and error class.

A dead record has an open entry of the recovery log. Code that opens or closes such an entry calls
`open_entries` or `take_back` in the same transaction.
"""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy, gettext_noop

from crmsync.models import Crm, RecoveryEntry
from crmsync.monitor.counters import FLOW
from msgplatform.core import personal
from msgplatform.core.data import chunks, claims, sql
from msgplatform.core.flows.health import MAX_FAILURES, Failure
from msgplatform.core.flows.text import ViewLink
from msgplatform.models import FailureGroup
from msgplatform.monitor import failure_groups, failure_store
from msgplatform.monitor.failure_store import Loss, Rescue
from msgplatform.monitor.subjects import Subject

_OPEN, _RETRIED = RecoveryEntry.State.OPEN, RecoveryEntry.State.RETRIED
_ENTRY = (
    "policy_id", "operation_id", "record_id", "key", "version", "error_class", "field", "reason",
    "attempts", "request",
)  # fmt: skip
CRM = Subject(
    "crm",
    gettext_lazy("CRM"),
    lambda: Crm.objects.only("name", "adapter"),
    gettext_noop("CRM %(id)d, which was deleted"),
)


def open_entries(crm: int, entries: Sequence[RecoveryEntry], now: datetime) -> None:
    """Open and count these entries, in the caller's transaction. A record has at most one open
    entry: an earlier one is replaced, as its reason may have changed. `now` is the time of these
    deaths: `take_back` compares it with the last acknowledgement."""
    earlier_entries = RecoveryEntry.open_entries(record_id__in=[e.record_id for e in entries])
    if earlier_ids := list(earlier_entries.select_for_update().values_list("id", flat=True)):
        earlier_entries = RecoveryEntry.objects.filter(id__in=earlier_ids)
        take_back(earlier_entries)
        earlier_entries.delete()
    constants = {"crm_id": crm, "state": int(_OPEN), "created_at": now, "handled_by": ""}
    rows = map(attrgetter(*_ENTRY), entries)  # requests may be large: `insert` bounds a statement
    sql.insert(RecoveryEntry._meta.db_table, _ENTRY, rows, constants=constants)
    losses = [
        Loss(crm, entry.error_class, entry.record_id, personal.mask_sentence(entry.reason))
        for entry in entries
        if entry.record_id
    ]
    failure_store.add(FLOW, losses, now)


def take_back(entries: QuerySet[RecoveryEntry]) -> None:
    """Remove entries from the counts. Call it before they are closed or reopened; entries that are
    not open, or not about a record, were never counted."""
    rows = entries.order_by().values_list(
        "state", "record_id", "crm_id", "error_class", "created_at"
    )
    rescues = [
        Rescue(crm, error, since)
        for state, record, crm, error, since in rows
        if state == _OPEN and record is not None
    ]
    failure_store.take_back(FLOW, rescues)


def solve_entries(record_ids: Sequence[int], crm_id: int, now: datetime) -> None:
    """Mark the entries of these records as solved, in the caller's transaction: the CRM holds the
    records now."""
    # One query for all records: nearly always it finds no open entry.
    entries = RecoveryEntry.objects.filter(crm_id=crm_id, state__in=(_OPEN, _RETRIED))
    if not record_ids or not entries.order_by().exists():
        return
    for page in chunks(record_ids, claims.CHUNK):
        page_entries = entries.filter(record_id__in=page).order_by()
        if entry_ids := list(page_entries.values_list("id", flat=True)):
            rows = RecoveryEntry.objects.filter(pk__in=entry_ids)
            take_back(rows)
            rows.update(state=RecoveryEntry.State.SOLVED, handled_at=now)


def failures(limit: int = MAX_FAILURES) -> Sequence[Failure]:
    """The dead records of each CRM, by error class."""

    def details(group: FailureGroup, row: Crm | None) -> dict[str, Any]:
        query = {"crm": str(group.subject), "error": group.answer, "state": str(int(_OPEN))}
        return {
            "list_page": ViewLink("admin:crmsync_recoveryentry_changelist", query=query),
            "action": "resend",
            "filter": {
                "crm": row.name if row else str(group.subject),
                "error_class": group.answer,
                **group.bound("since"),
            },
            "is_quiet": row is not None and row.adapter == Crm.SANDBOX,
        }

    return CRM.failures(failure_groups.open_groups(FLOW, limit), details)
