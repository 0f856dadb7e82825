"""Records that are dead, as the page Failures shows them: by CRM and error class.

They are the open entries of the recovery log that are about a record. Whoever opens or closes one
says it here, in the same transaction.
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
from msgplatform.monitor.failure_store import Loss, Rescue

_OPEN = RecoveryEntry.State.OPEN


def add(crm: int, dead: Iterable[tuple[int, str, str]], now: datetime) -> None:
    """Count records that died: (record, error class, reason), in the caller's transaction."""
    lost = [
        Loss(crm, error, record, personal.in_sentence(reason)) for record, error, reason in dead
    ]
    failure_store.add(FLOW, lost, now)


def take_back(entries: QuerySet[RecoveryEntry]) -> None:
    """Those of these entries that are open are closed, or opened anew, after this."""
    rows = entries.order_by().values_list(
        "state", "record_id", "crm_id", "error_class", "created_at"
    )
    back = [
        Rescue(crm, error, since)
        for state, record, crm, error, since in rows
        if state == _OPEN and record is not None
    ]
    failure_store.take_back(FLOW, back)


def failures() -> Sequence[Failure]:
    """What died of each CRM, by error class."""
    groups = failure_store.open_groups(FLOW)
    wanted = {group.subject for group in groups}
    names = dict(Crm.objects.filter(id__in=wanted).values_list("id", "name"))
    found = []
    for group in groups:
        pk, error = group.subject, group.answer
        query = {"crm": str(pk), "error": error, "state": str(int(_OPEN))}
        found.append(
            failure_store.as_failure(
                group,
                where=names.get(pk) or lazy_message(_("CRM %(id)d, which was deleted"), id=pk),
                where_page=ViewLink("admin:crmsync_crm_change", (pk,)) if pk in names else None,
                list_page=ViewLink("admin:crmsync_recoveryentry_changelist", query=query),
                action="retry",
                filter={"crm": names.get(pk) or str(pk), "error_class": error},
            )
        )
    return found
