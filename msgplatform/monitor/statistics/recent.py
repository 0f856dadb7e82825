"""The last minutes of every flow, and the last hour's groups in most trouble, for the overview.

The statement for the minutes names no flow, so that the database must choose the index by minute:
the number of rows it reads depends on the span, not on the retention of counters.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
from django.db.models import Sum

from msgplatform.core.connections import RedisError
from msgplatform.core.flows.activity import Group, Key
from msgplatform.core.flows.contract import Flow
from msgplatform.models import MinuteCounter
from msgplatform.models.counters import WHOLE
from msgplatform.monitor.statistics import groups
from msgplatform.monitor.statistics.points import Point, Step, counter_tables

_HOUR, _INSTANT = timedelta(hours=1), timedelta(microseconds=1)


class Span(msgspec.Struct, frozen=True):
    """The time that the overview shows: `count` steps of `length`. The last step is unfinished."""

    length: timedelta
    count: int

    def starts(self, now: datetime) -> list[datetime]:
        """The start of every step. Steps begin at multiples of their length."""
        last = self.start(now)
        return [last - self.length * n for n in reversed(range(self.count))]

    def start(self, at: datetime) -> datetime:
        """The start of the step of this time."""
        return at - timedelta(seconds=at.timestamp() % self.length.total_seconds())


def series(
    flows: Iterable[Flow], span: Span, now: datetime, systems: Collection[int] | None = None
) -> Mapping[str, list[Point]]:
    """Flow → a Point for every step up to now, without flows that count nothing. With `systems`
    only the counters of these business systems that are in the database."""
    starts = span.starts(now)
    activities = {
        activity.counters: (flow, activity) for flow in flows if (activity := flow.health.activity)
    }
    names: set[str] = set()  # of the counters that the overview shows
    counts: dict[str, dict[datetime, Counter[str]]] = {}
    for flow, activity in activities.values():
        for measure in activity.stored_measures:
            if measure.tone in ("accepted", "good", "lost"):
                names.update(measure.counters)
        names.update(*(figure.counters for figure in activity.figures))
        counts[flow.name] = defaultdict(Counter)
        if systems is None and activity.live is not None:
            with suppress(RedisError):  # the flow's status says that its Redis does not answer
                for minute, live_counts in activity.live(starts[0], now).items():
                    counts[flow.name][span.start(minute)].update(live_counts)
    # All hours but the last ones have been added up.
    step: Step = "minute" if span.length < _HOUR else "hour"
    for rows in counter_tables(step, starts[0], now + _INSTANT):
        own_rows = rows if systems is None else rows.filter(biz_id__in=systems)
        counter_rows = own_rows.filter(WHOLE, name__in=names).values_list("flow", "at", "name")
        for counters, at, name, value in counter_rows.annotate(Sum("value")).order_by():
            if counters in activities:
                counts[activities[counters][0].name][span.start(at)][name] += value
    return {
        name: [Point(start, counts_by_start.get(start, {})) for start in starts]
        for name, counts_by_start in counts.items()
    }


class Trouble(msgspec.Struct, frozen=True):
    """A group of a flow's first dimension, such as a subscription.

    `failures` and `failed_attempts` are of the last hour; `oldest_seconds` is None if nothing is
    late."""

    flow: Flow
    group: Group
    failures: int
    failed_attempts: int
    oldest_seconds: float | None


def worst(
    lags: Mapping[Flow, Mapping[str, float]],
    now: datetime,
    limit: int,
    late: float,
    systems: Collection[int] | None = None,
) -> list[Trouble]:
    """Groups in trouble, sorted by failures, then by lag, then by failed attempts.

    `lags` are the `Status.oldest_by` of the flows; a lag below `late` seconds is ignored. `systems`
    limits the counters to these business systems. Runs one statement for the counters, and at most
    three for the names of each flow.
    """
    activities = [
        (flow, flow.health.activity)
        for flow in lags
        if flow.health.activity and flow.health.activity.dimensions
    ]
    names: set[str] = set()
    for _flow, activity in activities:
        for measure in activity.measures:
            if measure.tone in ("lost", "bad"):
                names.update(measure.counters)
    rows = MinuteCounter.objects.filter(minute__gt=now - _HOUR, name__in=names)
    if systems is not None:
        rows = rows.filter(biz_id__in=systems)
    columns = ("flow", "biz_id", "subject", "name")
    sums: dict[str, dict[Key, int]] = defaultdict(dict)
    for counters, *key, value in rows.values_list(*columns).annotate(Sum("value")).order_by():
        sums[counters][Key(*key)] = value
    troubles = []
    for flow, activity in activities:
        dimension, totals = activity.dimensions[0], sums[activity.counters]
        lines = {line.group.key: line for line in groups.rank_groups(activity, dimension, totals)}
        ages = {key: age for key, age in lags[flow].items() if age >= late}
        late_groups = dimension.named([key for key in ages if key not in lines])
        for group in (*(line.group for line in lines.values()), *late_groups.values()):
            counts = lines[group.key].counts if group.key in lines else {}
            failures, attempts = activity.total("lost", counts), activity.total("bad", counts)
            if failures > 0 or attempts > 0 or group.key in ages:
                troubles.append(Trouble(flow, group, failures, attempts, ages.get(group.key)))
    troubles.sort(
        key=lambda trouble: (
            -trouble.failures,
            -(trouble.oldest_seconds or 0),
            -trouble.failed_attempts,
        )
    )
    return troubles[:limit]
