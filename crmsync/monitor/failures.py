"""Dead records for the page Failures, by CRM and error class.

A dead record has an open entry of the recovery log. Code that opens or closes such an entry calls
`add` or `take_back` in the same transaction.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy, gettext_noop

from crmsync.models import Crm, RecoveryEntry
from crmsync.monitor.counters import FLOW
from msgplatform.core import personal
from msgplatform.core.data import chunks, claims
from msgplatform.core.flows.health import MAX_FAILURES, Failure
from msgplatform.core.flows.text import ViewLink
from msgplatform.models import FailureGroup
from msgplatform.monitor import failure_groups, failure_store
from msgplatform.monitor.failure_store import Loss, Rescue
from msgplatform.monitor.subjects import Subject

_OPEN, _RETRIED = RecoveryEntry.State.OPEN, RecoveryEntry.State.RETRIED
CRM = Subject(
    "crm",
    gettext_lazy("CRM"),
    lambda: Crm.objects.only("name", "adapter"),
    gettext_noop("CRM %(id)d, which was deleted"),
)


def add(crm: int, records: Iterable[tuple[int, str, str]], now: datetime) -> None:
    """Count records that died: (record, error class, reason), in the caller's transaction."""
    losses = [Loss(crm, error, pk, personal.mask_sentence(reason)) for pk, error, reason in records]
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
