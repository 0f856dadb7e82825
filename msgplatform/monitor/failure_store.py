"""Failures, counted where messages end: the source of the page Failures.

A program that ends messages as failed calls `add` in the transaction that ends them: one statement
for a batch. Code that sends such messages again, or learns that they arrived after all, calls
`take_back` in its transaction. So the counts are exact without reading the messages, of which there
may be millions, in the archive too.

Where a count cannot be exact it is too high, never too low. An acknowledgement covers the failures
that the person has seen on the page, and none that came afterwards.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import F, Sum
from django.db.models.functions import Greatest

from msgplatform.core.data import sql, transactions
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.health import MAX_FAILURES, Failure
from msgplatform.models import Acknowledgement, AuditLog, FailureGroup
from msgplatform.models.failures import MAX_ANSWER, MAX_NOTE, MAX_SAID

_TABLE = FailureGroup._meta.db_table
_COLUMNS = (
    "flow", "subject", "answer", "count", "lost", "since", "sample", "said", "counted_since",
    "last_at",
)  # fmt: skip
_COUNTED = 100


class Loss(NamedTuple):
    """A message that failed: its place, the kind of answer, its id, the text of the answer."""

    subject: int
    answer: str
    message: int
    text: str = ""


class Rescue(NamedTuple):
    """A failure of the time `ended_at` whose message is sent again or has arrived."""

    subject: int
    answer: str
    ended_at: datetime


@dataclass(frozen=True)
class GroupSnapshot:
    """The state of a group on the page of the person who acknowledges it."""

    id: int
    lost: int
    until: datetime


def add(
    flow: str, messages: Iterable[Loss], now: datetime, ended_since: datetime | None = None
) -> None:
    """Count messages that failed, in the caller's transaction; they ended at `now` or later.

    `ended_since` is earlier where the times at which messages ended are not stored.
    """
    counts: Counter[tuple[int, str]] = Counter()
    last: dict[tuple[int, str], Loss] = {}
    for message in messages:
        key = message.subject, message.answer[:MAX_ANSWER]
        counts[key] += 1
        last[key] = message
    if not counts:
        return
    since, counted_since = sql.stored(now), sql.stored(ended_since or now)
    parameters: list[Any] = []
    for key in sorted(counts):  # two processes lock them in the same order
        count, sample = counts[key], last[key]
        # Without characters that a database may refuse: it is only an example.
        text = "".join(c if c.isprintable() else " " for c in sample.text[: 2 * MAX_SAID])
        example = text.strip()[:MAX_SAID]
        parameters += (
            flow, *key, count, count, since, sample.message, example, counted_since,
        )  # fmt: skip
    # The time of the statement, not `now`: no message in it may have ended later (`acknowledge`).
    row = f"({', '.join(['%s'] * (len(_COLUMNS) - 1))}, {sql.now_sql()})"
    names = ", ".join(map(connection.ops.quote_name, _COLUMNS))
    statement = (
        f"INSERT INTO {_TABLE} ({names}) VALUES {', '.join([row] * len(counts))} {_on_conflict()}"  # noqa: S608
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def _on_conflict() -> str:
    """The clause that adds to a group which exists already. MariaDB assigns in this order, and each
    expression sees the values assigned before it: `since` needs the old count."""
    name = connection.ops.quote_name
    if connection.vendor == "mysql":
        start, new = "ON DUPLICATE KEY UPDATE", "VALUES({})"
    else:
        start, new = "ON CONFLICT (flow, subject, answer) DO UPDATE SET", "excluded.{}"
    old = f"{_TABLE}.{{}}"
    sets = [f"since = CASE WHEN {old.format(name('count'))} > 0 THEN {old.format('since')} "
            f"ELSE {new.format('since')} END"]  # fmt: skip
    sum_columns = map(name, ("count", "lost"))
    sets += [f"{column} = {old.format(column)} + {new.format(column)}" for column in sum_columns]
    sets += [f"{column} = {new.format(column)}" for column in ("sample", "said", "last_at")]
    return f"{start} {', '.join(sets)}"


def take_back(flow: str, messages: Iterable[Rescue]) -> None:
    """Take back failures whose messages are sent again or have arrived, in the caller's
    transaction."""
    end_times: dict[tuple[int, str], list[datetime]] = defaultdict(list)
    for message in messages:
        end_times[message.subject, message.answer[:MAX_ANSWER]].append(message.ended_at)
    if not end_times:
        return
    rows = FailureGroup.objects.select_for_update().filter(
        flow=flow,
        subject__in={subject for subject, _ in end_times},
        answer__in={answer for _, answer in end_times},
    )
    ordered_rows = rows.order_by("subject", "answer")
    for pk, subject, answer, since in ordered_rows.values_list(
        "pk", "subject", "answer", "counted_since"
    ):
        number = sum(at >= since for at in end_times.get((subject, answer), ()))
        if number:
            fewer = Greatest(F("count") - number, 0)
            FailureGroup.objects.filter(pk=pk).update(count=fewer)


# The groups that are read for somebody who sees those of some business systems only.
_MAX_READ = 5000


def failures_of(flow: Flow, systems: Collection[str] | None) -> Sequence[Failure]:
    """A flow's failures; with `systems` those of their messages alone, the largest first. Raises
    UNAVAILABLE."""
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
    """The answer of the last failure of this place, '' without one."""
    rows = FailureGroup.objects.filter(flow=flow, subject=subject).order_by("-last_at")
    return rows.values_list("answer", flat=True).first() or ""


def as_failure(group: FailureGroup, **place: Any) -> Failure:
    """A group as the console shows it; `place` are the fields that its flow knows."""
    values = {
        "answer": group.answer, "said": group.said, "count": group.count, "lost": group.lost,
        "since": group.since, "last_at": group.last_at, **place,
    }  # fmt: skip
    return Failure(id=group.pk, subject=group.subject, **values)


def count_groups(flows: Iterable[str]) -> int:
    """The number of open groups of these flows, counted to a hundred."""
    rows = FailureGroup.objects.filter(flow__in=list(flows), count__gt=0).order_by()
    return rows.values("flow")[:_COUNTED].count()


def count_by_subject(flow: str, subjects: Collection[int]) -> dict[int, int]:
    """Subject → number of its open failures, of these subjects; one statement."""
    rows = FailureGroup.objects.filter(flow=flow, subject__in=subjects, count__gt=0).order_by()
    return dict(rows.values_list("subject").annotate(Sum("count")))


def count_by_flow(flows: Iterable[str]) -> dict[str, int]:
    """Flow → number of its open failures."""
    rows = FailureGroup.objects.filter(flow__in=list(flows), count__gt=0).order_by()
    return dict(rows.values_list("flow").annotate(Sum("count")))


def acknowledge(snapshot: GroupSnapshot, place: str, answer: str, note: str, actor: str) -> int:
    """Acknowledge the failures of a group that a person has seen, and return their number.

    It may be repeated. Failures that came after the snapshot stay.
    """

    def attempt() -> int:
        with transaction.atomic():
            row = FailureGroup.objects.select_for_update().get(pk=snapshot.id)
            remaining = min(row.count, max(0, row.lost - snapshot.lost))
            acknowledged_count = row.count - remaining
            if not acknowledged_count:
                return 0
            until = min(snapshot.until, row.last_at)
            # The next time that the database can tell from `until`: what ended at `until` is
            # acknowledged too, and must not be taken back as well.
            row.count, row.counted_since = (
                remaining,
                max(row.counted_since, until + sql.clock_step()),
            )
            row.since = max(row.since, until)
            row.save(update_fields=["count", "counted_since", "since"])
            Acknowledgement.objects.create(
                flow=row.flow, subject=row.subject, place=place[:200], answer=answer[:200],
                count=acknowledged_count, until=until, note=note[:MAX_NOTE], actor=actor[:150],
            )  # fmt: skip
            return acknowledged_count

    return transactions.retrying(attempt)


def acknowledge_group(flow: Flow, snapshot: GroupSnapshot, note: str, actor: str) -> int:
    """Acknowledge what a person or a key has seen of a group of the flow, with a line in the audit
    log; returns the number of failures, 0 when nothing is left of the group."""
    group = FailureGroup.objects.filter(pk=snapshot.id, flow=flow.name).first()
    if group is None:
        return 0
    place = next(
        (str(failure.where) for failure in flow.health.failures() if failure.id == group.pk),
        str(group.subject),
    )
    count = acknowledge(snapshot, place, group.answer, note, actor)
    if count:
        AuditLog.objects.create(
            actor=actor,
            action="failures_acknowledged",
            target=f"{flow.name}: {place}, {group.answer}"[:200],
            detail={"count": count, "note": note, "until": snapshot.until.isoformat()},
        )
    return count


def latest_acknowledgements(flows: Sequence[str], limit: int) -> list[Acknowledgement]:
    """The latest acknowledgements of these flows."""
    return list(Acknowledgement.objects.filter(flow__in=flows).order_by("-id")[:limit])
