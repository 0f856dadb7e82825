"""Statistics as the lines of a CSV file, which is written while the counters are read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from itertools import chain, groupby
from typing import Any

from django.utils.translation import gettext as _

from msgplatform.core.flows import Dimension, Group
from msgplatform.core.flows.activity import Counts
from msgplatform.monitor import time_steps
from msgplatform.monitor.statistics import groups
from msgplatform.monitor.statistics.points import CounterQuery

_WHOLE = Group("", "")


def lines(query: CounterQuery, dimension: Dimension | None = None) -> Iterator[list[str]]:
    """A line for every step in which anything was counted, and for each group of the dimension; the
    header first.

    Times are ISO 8601 with their zone, days are dates; figures in seconds, shares from 0 to 1.
    Raises InvalidInput before the first line.
    """
    query.check()
    activity = query.activity
    tables = query.rows_of_groups() if dimension and dimension.is_apart else query.rows()
    of = dimension.groups(groups.sums(query).keys()) if dimension else None
    titles = [dimension.name, f"{dimension.name}_title"] if dimension else []
    yield [
        _("time"), *titles, *(measure.name for measure in activity.stored),
        "success", *(figure.name for figure in activity.figures),
    ]  # fmt: skip
    columns = ("at", "biz_id", "subject", "name", "value")
    counter_rows = chain.from_iterable(
        piece.values_list(*columns).iterator()
        for rows in tables
        for piece in time_steps.in_order(rows)
    )
    # The rows come in the order of their steps: no more than one step is in memory.
    for at, step_rows in groupby(counter_rows, key=lambda row: row[0]):
        counts: dict[Group, Counter[str]] = defaultdict(Counter)
        for _at, *key, value in step_rows:
            group = of.get(tuple(key)) if of is not None else _WHOLE  # type: ignore[call-overload]
            if group is not None:
                counts[group][key[-1]] += value
        for group, each in sorted(counts.items(), key=lambda pair: pair[0].title):
            names = [group.key, group.title] if dimension else []
            yield [_time(at), *names, *_numbers(query, each)]


def _time(at: date) -> str:
    return at.isoformat()


def _numbers(query: CounterQuery, counts: Counts) -> list[str]:
    activity = query.activity
    measures = [str(measure.of(counts)) for measure in activity.stored]
    shares: list[Any] = [activity.success(counts), *(f.of(counts) for f in activity.figures)]
    return [*measures, *("" if share is None else f"{share:.4f}" for share in shares)]
