"""Dead records for the page Failures, by CRM and error class.

They are the open entries of the recovery log that are about a record. Code that opens or closes an
entry calls `add` or `take_back` in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db.models import QuerySet
from django.utils.translation import gettext_noop as _

from crmsync.models import Crm, RecoveryEntry
from crmsync.monitor.counters import FLOW
from msgplatform.core import personal
from msgplatform.core.flows import Failure, ViewLink
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Back, Lost

_OPEN = RecoveryEntry.State.OPEN


def add(crm: int, records: Iterable[tuple[int, str, str]], now: datetime) -> None:
    """Count records that died: (record, error class, reason), in the caller's transaction."""
    losses = [
        Lost(crm, error, record, personal.in_sentence(reason)) for record, error, reason in records
    ]
    failure_store.add(FLOW, losses, now)


def take_back(entries: QuerySet[RecoveryEntry]) -> None:
    """Remove entries from the counts. Call it before they are closed or reopened; entries that are
    not open, or not about a record, were never counted."""
    rows = entries.order_by().values_list(
        "state", "record_id", "crm_id", "error_class", "created_at"
    )
    removals = [
        Back(crm, error, since)
        for state, record, crm, error, since in rows
        if state == _OPEN and record is not None
    ]
    failure_store.take_back(FLOW, removals)


def failures() -> Sequence[Failure]:
    """The groups of dead records by CRM and error class."""
    groups = failure_store.groups(FLOW)
    crm_ids = {group.subject for group in groups}
    names = dict(Crm.objects.filter(id__in=crm_ids).values_list("id", "name"))
    all_failures = []
    for group in groups:
        pk, error = group.subject, group.answer
        query = {"crm": str(pk), "error": error, "state": str(int(_OPEN))}
        all_failures.append(
            failure_store.failure(
                group,
                where=names.get(pk) or lazy_message(_("CRM %(id)d, which was deleted"), id=pk),
                where_page=ViewLink("admin:crmsync_crm_change", (pk,)) if pk in names else None,
                list_page=ViewLink("admin:crmsync_recoveryentry_changelist", query=query),
                action="retry",
                filter={"crm": names.get(pk) or str(pk), "error_class": error},
            )
        )
    return all_failures
