"""Failures, counted where messages end: the source of the page Failures.

Whoever ends messages as lost calls `add` in the transaction that ends them: one statement for a
batch. Whoever sends such messages again, or learns that they arrived after all, calls `take_back`
in that transaction. So the counts are exact without reading the messages, of which there may be
millions, in the archive too.

Where a count cannot be exact it is too high: it is never said that nothing is lost while something
is. For a person who acknowledges a group means what they have seen, and no message that was given
up afterwards.
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
from msgplatform.core.flows import MAX_FAILURES, Failure
from msgplatform.models import Acknowledgement, FailureGroup
from msgplatform.models.failures import MAX_ANSWER, MAX_NOTE, MAX_SAID

_TABLE = FailureGroup._meta.db_table
_COLUMNS = (
    "flow", "subject", "answer", "count", "lost", "since", "sample", "said", "counted_since",
    "last_at",
)  # fmt: skip
_COUNTED = 100


class Lost(NamedTuple):
    """A message that failed: where, with which answer, its id, what was said."""

    subject: int
    answer: str
    message: int
    said: str = ""


class Back(NamedTuple):
    """A message that failed at `ended_at`, and is lost no longer."""

    subject: int
    answer: str
    ended_at: datetime


@dataclass(frozen=True)
class Seen:
    """What the page showed of a group to the person who acknowledges it."""

    id: int
    lost: int
    until: datetime


def add(
    flow: str, messages: Iterable[Lost], now: datetime, ended_since: datetime | None = None
) -> None:
    """Count messages that failed, in the caller's transaction; they ended at `now` or later.

    `ended_since` is earlier where `Back.ended_at` will be: where it is not stored when they ended.
    """
    counts: Counter[tuple[int, str]] = Counter()
    last: dict[tuple[int, str], Lost] = {}
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
        said = _printable(sample.said)[:MAX_SAID]
        parameters += (
            flow, *key, count, count, since, sample.message, said, counted_since,
        )  # fmt: skip
    # The time of the statement, not `now`: no message in it may have ended later (`acknowledge`).
    row = f"({', '.join(['%s'] * (len(_COLUMNS) - 1))}, {sql.now_sql()})"
    names = ", ".join(map(connection.ops.quote_name, _COLUMNS))
    statement = f"INSERT INTO {_TABLE} ({names}) VALUES {', '.join([row] * len(counts))} {_more()}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def _more() -> str:
    """What becomes of a group that is there already. MariaDB assigns in this order, and each
    expression sees what was assigned before it: `since` is decided by the old count."""
    name = connection.ops.quote_name
    if connection.vendor == "mysql":
        start, new = "ON DUPLICATE KEY UPDATE", "VALUES({})"
    else:
        start, new = "ON CONFLICT (flow, subject, answer) DO UPDATE SET", "excluded.{}"
    old = f"{_TABLE}.{{}}"
    sets = [f"since = CASE WHEN {old.format(name('count'))} > 0 THEN {old.format('since')} "
            f"ELSE {new.format('since')} END"]  # fmt: skip
    added = map(name, ("count", "lost"))
    sets += [f"{column} = {old.format(column)} + {new.format(column)}" for column in added]
    sets += [f"{column} = {new.format(column)}" for column in ("sample", "said", "last_at")]
    return f"{start} {', '.join(sets)}"


def take_back(flow: str, messages: Iterable[Back]) -> None:
    """Take back failures whose messages are sent again or have arrived, in the caller's
    transaction."""
    ended: dict[tuple[int, str], list[datetime]] = defaultdict(list)
    for message in messages:
        ended[message.subject, message.answer[:MAX_ANSWER]].append(message.ended_at)
    if not ended:
        return
    rows = FailureGroup.objects.select_for_update().filter(
        flow=flow,
        subject__in={subject for subject, _ in ended},
        answer__in={answer for _, answer in ended},
    )
    found = rows.order_by("subject", "answer")
    for pk, subject, answer, since in found.values_list("pk", "subject", "answer", "counted_since"):
        number = sum(at >= since for at in ended.get((subject, answer), ()))
        if number:
            fewer = Greatest(F("count") - number, 0)
            FailureGroup.objects.filter(pk=pk).update(count=fewer)


def groups(flow: str, most: int = MAX_FAILURES) -> list[FailureGroup]:
    """A flow's groups with messages that somebody has to look at, the largest first."""
    return list(FailureGroup.objects.filter(flow=flow, count__gt=0).order_by("-count", "id")[:most])


def latest_answer(flow: str, subject: int) -> str:
    """The answer of the last failure of this place, '' without one."""
    rows = FailureGroup.objects.filter(flow=flow, subject=subject).order_by("-last_at")
    return rows.values_list("answer", flat=True).first() or ""


def failure(group: FailureGroup, **place: Any) -> Failure:
    """A group as the console shows it; `place` is what its flow knows."""
    given = {
        "answer": group.answer, "said": group.said, "count": group.count, "lost": group.lost,
        "since": group.since, "last_at": group.last_at, **place,
    }  # fmt: skip
    return Failure(id=group.pk, subject=group.subject, **given)


def number(flows: Iterable[str]) -> int:
    """How many groups of these flows somebody has to look at, counted to a hundred."""
    found = FailureGroup.objects.filter(flow__in=list(flows), count__gt=0).order_by()
    return found.values("flow")[:_COUNTED].count()


def by_subject(flow: str, subjects: Collection[int]) -> dict[int, int]:
    """How many messages of each of these subjects somebody has to look at; one statement."""
    found = FailureGroup.objects.filter(flow=flow, subject__in=subjects, count__gt=0).order_by()
    return dict(found.values_list("subject").annotate(Sum("count")))


def messages(flows: Iterable[str]) -> dict[str, int]:
    """Flow → number of failures that somebody has to look at."""
    found = FailureGroup.objects.filter(flow__in=list(flows), count__gt=0).order_by()
    return dict(found.values_list("flow").annotate(Sum("count")))


def acknowledge(seen: Seen, place: str, answer: str, note: str, actor: str) -> int:
    """Somebody leaves what they have seen of a group at that; how many messages those are.

    It may be repeated. Failures since it was shown stay.
    """

    def once() -> int:
        with transaction.atomic():
            row = FailureGroup.objects.select_for_update().get(pk=seen.id)
            left = min(row.count, max(0, row.lost - seen.lost))
            done = row.count - left
            if not done:
                return 0
            until = min(seen.until, row.last_at)
            # The next time that the database can tell from `until`: what ended at `until` is
            # acknowledged too, and must not be taken back as well.
            row.count, row.counted_since = left, max(row.counted_since, until + sql.clock_step())
            row.since = max(row.since, until)
            row.save(update_fields=["count", "counted_since", "since"])
            Acknowledgement.objects.create(
                flow=row.flow, subject=row.subject, place=place[:200], answer=answer[:200],
                count=done, until=until, note=note[:MAX_NOTE], actor=actor[:150],
            )  # fmt: skip
            return done

    return transactions.retrying(once)


def acknowledged(flows: Sequence[str], most: int) -> list[Acknowledgement]:
    """The latest acknowledgements of these flows."""
    return list(Acknowledgement.objects.filter(flow__in=flows).order_by("-id")[:most])


def _printable(text: str) -> str:
    """An answer may hold what no database takes, and is only an example here."""
    return "".join(c if c.isprintable() else " " for c in text[: 2 * MAX_SAID]).strip()
