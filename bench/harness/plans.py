"""What each statement reads: its plan, and the rows that it touched.

The platform's own code runs on the filled tables. Every statement that it sends is explained first,
then its reads are counted by the server's handler counters. So the statements are those that are
really sent, and a plan that reads more where tables are larger is seen by a number.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import connection

from msgplatform.core.data import engines

_READS = "SHOW SESSION STATUS LIKE 'Handler_read%'"
_EXPLAINED = re.compile(r"\(?\s*(SELECT|UPDATE|DELETE|INSERT.*?SELECT)\b", re.I | re.DOTALL)
_COLUMNS = ("table", "type", "key", "key_len", "rows", "Extra")


def read_plan(
    cursor: Any, statement: str, parameters: Any = None, using: str = "default"
) -> list[dict[str, Any]]:
    """The plan of a statement: the plan's columns for each step.

    `cursor` may also be a driver's cursor of the same database.
    """
    cursor.execute(f"{engines.of(using).explain} {statement}", parameters)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@dataclass(slots=True)
class Seen:
    """A statement (without its values), its plan, how often it ran and how many rows it read."""

    plan: Sequence[Mapping[str, Any]]
    times: int = 0
    reads: int = 0


@dataclass(slots=True)
class Recorder:
    """Explains every statement of a step that goes through the connection, and counts its reads."""

    steps: dict[str, dict[str, Seen]] = field(default_factory=dict)
    _own: int = 0

    def step(self, name: str, run: Callable[[], Any]) -> Any:
        """Run a step; what `run` returns."""
        seen = self.steps[name] = {}
        self._own = 0
        self._own = self._count(lambda: None)[1]  # what reading the counters costs by itself

        def wrapper(execute: Any, statement: Any, params: Any, many: bool, context: Any) -> Any:
            # Bytes are an INSERT of `msgplatform.core.data.sql`, with its rows.
            has_rows = isinstance(statement, bytes)
            shape = shape_of(_without_rows(statement) if has_rows else statement)
            plan: Sequence[Mapping[str, Any]] = []
            if not many and not has_rows and _EXPLAINED.match(statement):
                # Through another cursor, which this wrapper does not see.
                with _raw() as cursor:
                    plan = read_plan(cursor, statement, params)
            entry = seen.setdefault(shape, Seen(plan))
            answer, reads = self._count(lambda: execute(statement, params, many, context))
            entry.times += 1
            entry.reads += reads
            return answer

        with connection.execute_wrapper(wrapper):
            return run()

    def _count(self, run: Callable[[], Any]) -> tuple[Any, int]:
        before = _reads()
        answer = run()
        return answer, _reads() - before - self._own


def _without_rows(statement: bytes) -> str:
    start, _, rest = statement.decode(errors="replace").partition(" VALUES ")
    _, keep, clause = rest.rpartition(" ON DUPLICATE KEY ")
    return f"{start} VALUES (%s){keep}{clause if keep else ''}"


def shape_of(sql: str) -> str:
    """The statement without its values, with lists and repeated parts shortened."""
    text = " ".join(sql.split())
    text = re.sub(r"\((?:%s|\d+)(?:, ?(?:%s|\d+))*\)", "(…)", text)
    text = re.sub(r"WHEN %s THEN %s( WHEN %s THEN %s)+", "WHEN %s THEN %s …", text)
    text = re.sub(r"\b\d{5,}\b", "n", text)  # ids and moments
    text = re.sub(r"(UNION ALL SELECT .*?AS part_\d+_\d+ ?)+", "UNION ALL … ", text)
    text = re.sub(r"(OR \(`idempotency`.*?\) ?)+", "OR … ", text)
    return text if len(text) <= 700 else f"{text[:700]} …"


def _reads() -> int:
    with _raw() as cursor:
        cursor.execute(_READS)
        return sum(int(value) for _, value in cursor.fetchall())


@contextmanager
def _raw() -> Iterator[Any]:
    """A cursor of the same session that is not recorded."""
    connection.ensure_connection()
    assert connection.connection
    cursor = connection.connection.cursor()
    try:
        yield cursor
    finally:
        cursor.close()


# -- the document --------------------------------------------------------------------------------
def write(
    file: Path,
    introduction: str,
    small: Recorder,
    large: Recorder,
    small_rows: int,
    large_rows: int,
) -> None:
    """Writes the plans into `file`, and prints the overview. `introduction` may name {small} and
    {large}."""
    overview = _overview(small, large, small_rows, large_rows)
    parts = [introduction.format(small=small_rows, large=large_rows), overview]
    for step, statements in large.steps.items():
        parts += [f"## {step}", ""]
        for shape, seen in statements.items():
            other = small.steps[step].get(shape)
            if seen.plan or seen.reads:
                parts.append(_statement(shape, seen, other, small_rows, large_rows))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(parts))
    print(f"{overview}\nquery plans: {file}", file=sys.stderr)


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
