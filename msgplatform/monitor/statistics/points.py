"""A flow's counters in steps of time, and their sum.

    query = CounterQuery(flow.health.activity, "hour", since, until, {"subscription": "7"})
    query.series()       a Point for every hour, gaps filled with zeros
    total(points)        the whole time as one Point

`since`, `until` and the steps are those of `monitor/time_steps.py`. Raises InvalidInput for a
time that is too long for its step, and for a group that does not exist.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec
from django.db.models import Q, QuerySet, Sum, Value
from django.db.models.functions import Concat

from msgplatform.core.flows.activity import Activity, Counts
from msgplatform.models import MinuteCounter
from msgplatform.models.counters import WHOLE
from msgplatform.monitor import time_steps
from msgplatform.monitor.time_steps import Step


class Point(msgspec.Struct, frozen=True):
    """The counters of one step, without names that have no count."""

    at: datetime
    counts: Counts


@dataclass(frozen=True)
class CounterQuery:
    """The counters of a flow in a period. `selection` is dimension → key of a group. `systems`
    limits the counters to these business systems."""

    activity: Activity
    step: Step
    since: datetime
    until: datetime
    selection: Mapping[str, str] = field(default_factory=dict)
    systems: frozenset[int] | None = None

    def check(self) -> None:
        """Raises InvalidInput for a time that is too long for its step."""
        time_steps.starts(self.step, self.since, self.until)

    def series(self) -> list[Point]:
        """A Point for every step, also for steps without counts. Runs one statement for each table
        that it reads."""
        starts = time_steps.starts(self.step, self.since, self.until)
        counts: dict[datetime, Counter[str]] = defaultdict(Counter)
        for rows in self.rows():
            sums = rows.values_list("at", "name").annotate(Sum("value")).order_by()
            for at, name, value in sums:
                counts[time_steps.moment(at)][name] += value
        return [Point(start, counts.get(start, {})) for start in starts]

    @cached_property
    def condition(self) -> Q:
        """The condition for the counters of the selection. Raises InvalidInput."""
        condition = self.activity.condition(self.selection)
        return condition if self.systems is None else condition & Q(biz_id__in=self.systems)

    def rows(self) -> list[QuerySet[Any]]:
        """The counters in which each message counts once, with `at`, the start of the step. Several
        tables may hold them, see `time_steps.rows`."""
        tables = self.rows_of_groups()
        if self.activity.is_apart(self.selection):
            return tables
        return [rows.filter(WHOLE) for rows in tables]

    def rows_of_groups(self) -> list[QuerySet[Any]]:
        """Like `rows`, including the counters of dimensions that are counted apart."""
        tables = time_steps.rows(self.step, self.since, self.until)
        return [self._of_flow(rows.filter(self.condition)) for rows in tables]

    def rows_of_sum(self) -> list[QuerySet[Any]]:
        """Like `rows_of_groups`, for the sum of the whole period: without `at`, and with hours
        instead of their minutes."""
        tables = time_steps.rows_of_sum(self.step, self.since, self.until)
        return [self._of_flow(rows.filter(self.condition)) for rows in tables]

    def _of_flow(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        if rows.model is not MinuteCounter or self.activity.names_subjects(self.selection):
            return rows.filter(flow=self.activity.counters)
        # Filter an expression, not the column `flow`: with the column SQLite would choose an index
        # that begins with `flow`, and read all minutes.
        aliased_rows: QuerySet[Any] = rows.alias(of=Concat("flow", Value("")))
        return aliased_rows.filter(of=self.activity.counters)


def total(points: Iterable[Point]) -> Counts:
    """The counters of several steps together."""
    counts: Counter[str] = Counter()
    for point in points:
        counts.update(point.counts)
    return counts
