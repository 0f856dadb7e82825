"""Counts failures where messages end. The page Failures reads these counts (`failure_groups.py`).

A program that ends messages as failed calls `add` in the same transaction: one statement for a
batch. Code that resends such messages, or learns that they arrived after all, calls `take_back` in
its transaction. So the counts are exact without reading messages, which may be millions and in the
archive.

A count that cannot be exact is too high, never too low.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import F
from django.db.models.functions import Greatest

from msgplatform.core.data import engines, sql
from msgplatform.models import FailureGroup
from msgplatform.models.failures import MAX_ANSWER, MAX_SAID

_TABLE = FailureGroup._meta.db_table
_COLUMNS = (
    "flow", "subject", "answer", "count", "lost", "since", "sample", "said", "counted_since",
    "last_at",
)  # fmt: skip


class Loss(NamedTuple):
    """A failed message: its place, the kind of answer, its id, the text of the answer."""

    subject: int
    answer: str
    message: int
    text: str = ""


class Rescue(NamedTuple):
    """A failed message, which ended at `ended_at`, that is resent or has arrived."""

    subject: int
    answer: str
    ended_at: datetime


def add(
    flow: str, messages: Iterable[Loss], now: datetime, ended_since: datetime | None = None
) -> None:
    """Count failed messages, in the caller's transaction. The messages ended at `now` or later.

    `ended_since` is an earlier bound, for messages whose end was not stored.
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
    for key in sorted(counts):  # all processes lock rows in the same order
        count, sample = counts[key], last[key]
        # Databases may refuse control characters; blanks do for an example.
        text = "".join(c if c.isprintable() else " " for c in sample.text[: 2 * MAX_SAID])
        example = text.strip()[:MAX_SAID]
        parameters += (
            flow, *key, count, count, since, sample.message, example, counted_since,
        )  # fmt: skip
    # `last_at` is the statement's time, not `now`: no counted message ended later (`acknowledge`).
    row = f"({', '.join(['%s'] * (len(_COLUMNS) - 1))}, {sql.now_sql()})"
    name, engine = connection.ops.quote_name, engines.of()
    # The clause that adds to an existing group. `since` comes first, as it needs the old count.
    new, old = engine.new_value, f"{_TABLE}.{{}}"
    sets = [f"since = CASE WHEN {old.format(name('count'))} > 0 THEN {old.format('since')} "
            f"ELSE {new('since')} END"]  # fmt: skip
    sum_columns = map(name, ("count", "lost"))
    sets += [f"{column} = {old.format(column)} + {new(column)}" for column in sum_columns]
    sets += [f"{column} = {new(column)}" for column in ("sample", "said", "last_at")]
    upsert = f"{engine.upsert(['flow', 'subject', 'answer'])}{', '.join(sets)}"
    names, rows = ", ".join(map(name, _COLUMNS)), ", ".join([row] * len(counts))
    statement = f"INSERT INTO {_TABLE} ({names}) VALUES {rows} {upsert}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def take_back(flow: str, messages: Iterable[Rescue]) -> None:
    """Subtract failures whose messages are resent or have arrived, in the caller's transaction."""
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
