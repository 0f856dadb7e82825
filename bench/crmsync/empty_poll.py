"""What a poll costs that finds nothing, beside a thousand leads and beside five million."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from bench.crmsync import leads
from bench.harness.processes import BenchFailed
from crmsync.models import lead_triggers
from crmsync.poller.reading.increment import Increment, Watermark
from crmsync.poller.reading.source import Columns, Source

LEADS = Source(
    "lead",
    Columns(
        is_deleted="IsDelete", version="version",
        values=("biz_id", "appkey", "uid", "name", "phone", "extra"),
    ),
)  # fmt: skip
# A horizon is kept for 0.2 s, and the server renews its list of transactions when nobody asked
# for 0.1 s.
_KEPT_SECONDS = 0.21


@dataclass(frozen=True)
class Cost:
    """Median and 95th percentile of one poll in milliseconds: with the horizon kept from the poll
    before, and with one that is asked for again."""

    rows: int
    kept: tuple[float, float]
    asked: tuple[float, float]


def measure(filler: Any, rows: int, calls: int = 200) -> Cost:
    """Fill the hive with `rows` leads through the connection `filler`, whose statements may take
    long, and poll it with the watermark of the last lead."""
    with connection.schema_editor(atomic=False) as editor:
        lead_triggers.drop(editor)
    with filler.cursor() as cursor:
        leads.fill_past(cursor, rows)
    with connection.schema_editor(atomic=False) as editor:
        lead_triggers.create(editor)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT CAST(UpdateTime AS CHAR), id FROM `lead` ORDER BY UpdateTime DESC, id DESC "
            "LIMIT 1"
        )
        newest = Watermark(*cursor.fetchone())
    increment = Increment(LEADS)
    # The first one asks for the horizon that the others keep.
    kept = [_poll(increment, newest, rows) for _ in range(calls + 1)]
    asked = []
    for _ in range(calls):
        time.sleep(_KEPT_SECONDS)
        asked.append(_poll(increment, newest, rows))
    return Cost(rows, _spread(kept[1:]), _spread(asked))


def _poll(increment: Increment, newest: Watermark, rows: int) -> float:
    """Milliseconds."""
    begun = time.perf_counter()
    page = increment.read(newest, 500)
    taken = time.perf_counter() - begun
    if page.rows or page.facts.waiting or not page.facts.exact:
        raise BenchFailed(f"a poll beside {rows} leads was not empty: {page}")
    return taken * 1000


def _spread(times: Sequence[float]) -> tuple[float, float]:
    return statistics.median(times), statistics.quantiles(times, n=20)[-1]
