"""The failures of flows by place and answer, for the console, the API and alerts; and their
acknowledgement.

An acknowledgement covers the failures that the person saw on the page, not later ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from django.db.models import Sum

from msgplatform.core.data import engines, transactions
from msgplatform.core.flows.health import MAX_FAILURES, Failure
from msgplatform.models import Acknowledgement, AuditLog, FailureGroup
from msgplatform.models.failures import MAX_NOTE

if TYPE_CHECKING:
    from msgplatform.core.flows.contract import Flow

_MAX_COUNT = 100  # groups are counted up to this number
_MAX_READ = 5000  # groups that are read for a person who is limited to business systems


class GroupSnapshot(msgspec.Struct, frozen=True):
    """The state of a group on the page of the person who acknowledges it."""

    id: int
    lost: int
    until: datetime


def failures_of(flow: Flow, systems: Collection[str] | None) -> Sequence[Failure]:
    """A flow's failures, largest first. `systems` limits them to messages of these business
    systems. Raises UNAVAILABLE."""
    if systems is None:
        return flow.health.failures()
    groups = flow.health.failures(limit=_MAX_READ)
    return [group for group in groups if group.system in systems][:MAX_FAILURES]


def open_groups(flow: str, limit: int = MAX_FAILURES) -> list[FailureGroup]:
    """A flow's groups with open failures, the largest first."""
    groups = list(
        FailureGroup.objects.filter(flow=flow, count__gt=0).order_by("-count", "id")[:limit]
    )
    if groups:
        subjects = {group.subject for group in groups}
        rows = Acknowledgement.objects.filter(flow=flow, subject__in=subjects).order_by()
        acknowledged_keys = set(rows.values_list("subject", "answer"))
        for group in groups:
            group.has_acknowledged = (group.subject, group.answer) in acknowledged_keys
    return groups


def latest_answer(flow: str, subject: int) -> str:
    """The answer of the place's last failure; '' if there is no failure."""
    rows = FailureGroup.objects.filter(flow=flow, subject=subject).order_by("-last_at")
    return rows.values_list("answer", flat=True).first() or ""


def as_failure(group: FailureGroup, **place: Any) -> Failure:
    """A group as the console shows it; `place` has the fields that only the flow knows."""
    values = {
        "answer": group.answer, "said": group.said, "count": group.count, "lost": group.lost,
        "since": group.since, "last_at": group.last_at, **place,
    }  # fmt: skip
    return Failure(id=group.pk, subject=group.subject, **values)


def count_groups(flows: Iterable[str]) -> int:
    """The number of open groups of these flows, counted up to _MAX_COUNT."""
    rows = FailureGroup.objects.filter(flow__in=list(flows), count__gt=0).order_by()
    return rows.values("flow")[:_MAX_COUNT].count()


def count_by_subject(flow: str, subjects: Collection[int]) -> dict[int, int]:
    """Subject → number of its open failures. Runs one statement."""
    rows = FailureGroup.objects.filter(flow=flow, subject__in=subjects, count__gt=0).order_by()
    return dict(rows.values_list("subject").annotate(Sum("count")))


def count_by_flow(flows: Iterable[str]) -> dict[str, int]:
    """Flow → number of its open failures."""
    rows = FailureGroup.objects.filter(flow__in=list(flows), count__gt=0).order_by()
    return dict(rows.values_list("flow").annotate(Sum("count")))


@transactions.repeatable
def acknowledge(snapshot: GroupSnapshot, place: str, answer: str, note: str, actor: str) -> int:
    """Acknowledge the failures of a group that a person has seen, with a line in the audit log, and
    return their number.

    The call may be repeated. Failures that came after the snapshot stay open.
    """
    row = FailureGroup.objects.select_for_update().get(pk=snapshot.id)
    remaining_count = min(row.count, max(0, row.lost - snapshot.lost))
    acknowledged_count = row.count - remaining_count
    if not acknowledged_count:
        return 0
    until = min(snapshot.until, row.last_at)
    # One clock step after `until`: messages that ended at `until` are acknowledged too, and
    # `take_back` must not subtract them again.
    row.count = remaining_count
    row.counted_since = max(row.counted_since, until + engines.of().clock_step)
    row.since = max(row.since, until)
    row.save(update_fields=["count", "counted_since", "since"])
    Acknowledgement.objects.create(
        flow=row.flow, subject=row.subject, place=place[:200], answer=answer[:200],
        count=acknowledged_count, until=until, note=note[:MAX_NOTE], actor=actor[:150],
    )  # fmt: skip
    AuditLog.record(
        actor, "failures_acknowledged", f"{row.flow}: {place}, {answer}",
        count=acknowledged_count, note=note, until=snapshot.until.isoformat(),
    )  # fmt: skip
    return acknowledged_count


def acknowledge_group(flow: Flow, snapshot: GroupSnapshot, note: str, actor: str) -> int:
    """Acknowledge the failures of a group that a person or a key has seen. Returns their number; 0
    if the group has none left."""
    group = FailureGroup.objects.filter(pk=snapshot.id, flow=flow.name).first()
    if group is None:
        return 0
    place = next(
        (str(failure.where) for failure in flow.health.failures() if failure.id == group.pk),
        str(group.subject),
    )
    return acknowledge(snapshot, place, group.answer, note, actor)


def latest_acknowledgements(flows: Sequence[str], limit: int) -> list[Acknowledgement]:
    return list(Acknowledgement.objects.filter(flow__in=flows).order_by("-id")[:limit])
