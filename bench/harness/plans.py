"""What each statement of Notify's way reads: its plan, and the rows that it touched.

The platform's own code runs beside the filled tables; every statement that it sends is explained
first and counted by the server's handler counters. So this shows what is really sent, and a plan
that reads more where the tables are larger shows itself in a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from bench.harness import messages
from bench.harness.volume import Heavy
from msgplatform.core.archive.walk import PAGE
from msgplatform.core.connections import work_redis
from msgplatform.core.data import ids, sql
from msgplatform.core.queues import jobs
from notify import intake, queue_names
from notify.archive import due as walk
from notify.archive.listing import Messages
from notify.archive.move import move
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import ReceiveMsg
from notify.monitor import metrics
from notify.orders import Result
from notify.search import find

_EVENTS = 200
_READS = "SHOW SESSION STATUS LIKE 'Handler_read%'"
_EXPLAINED = re.compile(r"\(?\s*(SELECT|UPDATE|DELETE|INSERT.*?SELECT)\b", re.I | re.DOTALL)
_COLUMNS = ("table", "type", "key", "key_len", "rows", "Extra")


@dataclass(slots=True)
class Seen:
    """A statement (without its values), its plan, how often it ran and how many rows it read."""

    plan: Sequence[Mapping[str, Any]]
    times: int = 0
    reads: int = 0


@dataclass(slots=True)
class Recorder:
    """Explains and counts what goes through the connection, step by step."""

    steps: dict[str, dict[str, Seen]] = field(default_factory=dict)
    _own: int = 0

    def step(self, name: str, run: Callable[[], Any]) -> Any:
        self.steps[name] = {}
        self._own = 0
        self._own = self._count(lambda: None)[1]  # what looking costs itself
        with connection.execute_wrapper(self._wrapper(self.steps[name])):
            return run()

    def _wrapper(self, seen: dict[str, Seen]) -> Callable[..., Any]:
        def wrapper(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
            has_rows = isinstance(sql, bytes)  # an INSERT of `msgplatform.core.data.mysql_values`
            shape = shape_of(_without_rows(sql) if has_rows else sql)
            no_plan = many or has_rows or not _EXPLAINED.match(sql)
            plan = [] if no_plan else _plan(sql, params)
            entry = seen.setdefault(shape, Seen(plan))
            answer, reads = self._count(lambda: execute(sql, params, many, context))
            entry.times += 1
            entry.reads += reads
            return answer

        return wrapper

    def _count(self, run: Callable[[], Any]) -> tuple[Any, int]:
        before = _reads()
        answer = run()
        return answer, _reads() - before - self._own


def _without_rows(statement: bytes) -> str:
    start, _, rest = statement.decode(errors="replace").partition(" VALUES ")
    _, keep, clause = rest.rpartition(" ON DUPLICATE KEY ")
    return f"{start} VALUES (%s){keep}{clause if keep else ''}"


def shape_of(sql: str) -> str:
    """The statement without its values, lists and repeated parts shortened."""
    text = " ".join(sql.split())
    text = re.sub(r"\((?:%s|\d+)(?:, ?(?:%s|\d+))*\)", "(…)", text)
    text = re.sub(r"WHEN %s THEN %s( WHEN %s THEN %s)+", "WHEN %s THEN %s …", text)
    text = re.sub(r"\b\d{5,}\b", "n", text)
    text = re.sub(r"(UNION ALL SELECT .*?AS part_\d+_\d+ ?)+", "UNION ALL … ", text)
    text = re.sub(r"(OR \(`idempotency`.*?\) ?)+", "OR … ", text)
    return text if len(text) <= 700 else f"{text[:700]} …"


def _plan(statement: str, params: Any) -> list[dict[str, Any]]:
    with _raw() as cursor:
        return sql.plan(cursor, statement, params)


def _reads() -> int:
    with _raw() as cursor:
        cursor.execute(_READS)
        return sum(int(value) for _, value in cursor.fetchall())


@contextmanager
def _raw() -> Iterator[Any]:
    """A cursor of the same session that nobody watches."""
    connection.ensure_connection()
    assert connection.connection
    cursor = connection.connection.cursor()
    try:
        yield cursor
    finally:
        cursor.close()


# -- the way of messages, and what people ask ----------------------------------------------------
def record(heavy: Heavy) -> Recorder:
    """Run every step once on the connected database, with the work Redis empty."""
    work_redis().flushall()
    seen = Recorder()
    events = _events(heavy)
    verdicts = seen.step("Intake of new events", lambda: intake.publish_many(events))
    seen.step("Intake of the same events again", lambda: intake.publish_many(events))
    maker, marker = Maker(), Marker()
    maker.subscriptions.refresh(at_once=True)
    seen.step("Maker: settle, due, split and queue", maker.turn)
    _put_results(heavy, "failed")
    seen.step("Marker: all failed, to be tried again", marker.turn)
    _make_due(heavy)
    seen.step("Maker: queue what is due again", maker.turn)
    _put_results(heavy, "delivered")
    seen.step("Marker: all delivered", marker.turn)
    seen.step("Maker: an idle turn", maker.turn)
    _reading(seen, heavy, verdicts[0].id)
    _archiving(seen)
    return seen


def _events(heavy: Heavy) -> list[intake.Event]:
    names = [messages.scattered_key(f"plan-{timezone.now()}", n) for n in range(_EVENTS)]
    return [
        intake.Event(heavy.biz.pk, messages.EVENT_TYPE, messages.payload(name), name)
        for name in names
    ]


def _put_results(heavy: Heavy, outcome: str) -> None:
    """What a sender would say of all that is queued."""
    name = queue_names.subscription(heavy.biz.pk, heavy.subscription.receive_id)
    while order := jobs.claim(name, 60.0):
        jobs.done([order])
        status = 200 if outcome == "delivered" else 503
        results = [
            Result(
                item[0], heavy.subscription.pk, order.data["claim"], item[2], outcome, status,  # type: ignore[arg-type]
                at=timezone.now().timestamp(), seconds=0.01,
            )
            for item in order.data["items"]
        ]  # fmt: skip
        jobs.put(queue_names.MARKER, [results], ttl=None)


def _make_due(heavy: Heavy) -> None:
    newest = ReceiveMsg.objects.filter(send_times=1, status=ReceiveMsg.Status.PENDING)
    young = ids.first_id_at(timezone.now() - timedelta(minutes=1))
    newest.filter(id__gte=young).update(next_at=timezone.now() - timedelta(seconds=1))


def _reading(seen: Recorder, heavy: Heavy, message_id: int) -> None:
    biz, subscription = str(heavy.biz.pk), str(heavy.subscription.pk)
    for name, given in (
        ("by event type", {"event_type": "order.shipped"}),
        ("by system", {"biz": biz}),
        ("by system and event type", {"biz": biz, "event_type": "customer.changed"}),
        ("by subscription", {"subscription": subscription}),
        ("by status", {"status": "exhausted"}),
        ("by system and status", {"biz": biz, "status": "held"}),
        ("by idempotency key", {"key": "no-such-key"}),
        ("by id", {"id": str(message_id)}),
        ("by text", {"biz": biz, "text": "no such text"}),
    ):
        seen.step(f"Search {name}", lambda given=given: find.find(given, "", 20))  # type: ignore[misc]
    middle = ids.first_id_at(timezone.now() - timedelta(days=3))
    for name, given in (
        ("by event type", {"event_type": "order.shipped"}),
        ("by system", {"biz": biz}),
    ):
        seen.step(
            f"Search {name}, a page in the middle",
            lambda given=given: find.find(given, str(middle), 20),  # type: ignore[misc]
        )
    seen.step("Page of one message", lambda: find.page(str(message_id)))
    seen.step("API: first page of a system's messages", lambda: Messages(heavy.biz.pk)[:51])
    seen.step(
        "API: a page in the middle",
        lambda: Messages(heavy.biz.pk).filter(id__lt=middle)[:51],
    )
    seen.step("Metrics", lambda: list(metrics.samples()))


def _archiving(seen: Recorder) -> None:
    """The oldest hot messages, as if the archive took all whose copies ended well."""
    page = seen.step("Archiver: a page", lambda: list(walk.candidates(0, 2**62)[:PAGE]))
    due = walk.Due(2**62, 0)
    able = seen.step("Archiver: which may move", lambda: walk.movable(page, due))
    seen.step("Archiver: cut into chunks", lambda: list(walk.chunks(able)))
    seen.step("Archiver: move a chunk", lambda: move(able, due))


# -- the document --------------------------------------------------------------------------------
_INTRODUCTION = """\
# Query plans

Written by `BENCH_PLANS=docs/query-plans.md manage.py bench notify-at-scale`; do not edit. The
platform's own code ran beside tables of {small:,} and of {large:,} rows each (hot and archived);
every statement that it sent to MariaDB was explained just before, and the rows that it read were
counted by the server (the sum of `Handler_read_*`, over all times that the statement ran).
{events} messages went through intake, split, queue, a failed and a successful mark.

The cost is flat where both numbers of rows read are alike, whatever the plan's `rows` (an estimate)
says. Counts of `/metrics` and of a search by status stop at a bound, which the smaller tables do
not always reach.
"""


def document(small: Recorder, large: Recorder, small_rows: int, large_rows: int) -> str:
    parts = [_INTRODUCTION.format(small=small_rows, large=large_rows, events=_EVENTS)]
    parts.append(_overview(small, large, small_rows, large_rows))
    for step, statements in large.steps.items():
        parts += [f"## {step}", ""]
        for shape, seen in statements.items():
            other = small.steps[step].get(shape)
            if seen.plan or seen.reads:
                parts.append(_statement(shape, seen, other, small_rows, large_rows))
    return "\n".join(parts)


def _overview(small: Recorder, large: Recorder, small_rows: int, large_rows: int) -> str:
    lines = [
        f"| step | statements | rows read at {small_rows:,} | at {large_rows:,} |",
        "|---|---:|---:|---:|",
    ]
    for step, statements in large.steps.items():
        reads = [sum(s.reads for s in r.steps[step].values()) for r in (small, large)]
        times = sum(seen.times for seen in statements.values())
        lines.append(f"| {step} | {times} | {reads[0]:,} | {reads[1]:,} |")
    return "\n".join([*lines, ""])


def _statement(shape: str, seen: Seen, other: Seen | None, small_rows: int, large_rows: int) -> str:
    was = f"{other.reads:,}" if other else "not sent"
    head = (
        f"```sql\n{shape}\n```\n\nRan {seen.times} times; rows read: {was} at {small_rows:,}, "
        f"{seen.reads:,} at {large_rows:,}.\n"
    )
    if not seen.plan:
        return head
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|---" * len(_COLUMNS) + "|"]
    for row in seen.plan[:6]:
        cells = [str(row.get(name) if row.get(name) is not None else "") for name in _COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    if len(seen.plan) > 6:
        lines.append(f"| … {len(seen.plan) - 6} more like these | | | | | |")
    return "\n".join([head, *lines, ""])
