"""The last minutes of every flow, for the overview: the same statement for all flows.

It names no flow, so that a database has no index to choose but the one by minute: what it reads
depends on the time that is looked at, and not on how long counters are kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum

from msgplatform.core.connections import RedisError
from msgplatform.core.flows import Activity, Flow
from msgplatform.core.flows.activity import WHOLE, Counts
from msgplatform.monitor import time_steps
from msgplatform.monitor.statistics.points import Point
from msgplatform.monitor.time_steps import Step

_HOUR, _INSTANT = timedelta(hours=1), timedelta(microseconds=1)


@dataclass(frozen=True)
class Span:
    """How far back the overview looks: `points` steps of `length`, the last one unfinished."""

    length: timedelta
    points: int

    def starts(self, now: datetime) -> list[datetime]:
        """The start of every step; steps begin at whole multiples of their length."""
        last = self.start(now)
        return [last - self.length * n for n in reversed(range(self.points))]

    def start(self, at: datetime) -> datetime:
        """The start of the step that a time lies in."""
        return at - timedelta(seconds=at.timestamp() % self.length.total_seconds())


def series(wanted: Iterable[Flow], span: Span, now: datetime) -> Mapping[str, list[Point]]:
    """Flow → a Point for every step up to now. Flows that count nothing are left out."""
    starts = span.starts(now)
    able = {
        one.health.activity.counters: (one, one.health.activity)
        for one in wanted
        if one.health.activity
    }
    names = {name for _flow, activity in able.values() for name in _shown(activity)}
    counts: dict[str, dict[datetime, Counter[str]]] = {
        flow.name: _live(activity, span, starts[0], now) for flow, activity in able.values()
    }
    # Hours are added up already, but for the last ones.
    step: Step = "minute" if span.length < _HOUR else "hour"
    for rows in time_steps.rows(step, starts[0], now + _INSTANT):
        wanted_rows = rows.filter(WHOLE, name__in=names).values_list("flow", "at", "name")
        for counters, at, name, value in wanted_rows.annotate(Sum("value")).order_by():
            if counters in able:
                counts[able[counters][0].name][span.start(at)][name] += value
    return {
        name: [Point(start, found.get(start, {})) for start in starts]
        for name, found in counts.items()
    }


def _shown(activity: Activity) -> set[str]:
    """The counters that the overview shows."""
    measures = [one for one in activity.stored if one.tone in ("accepted", "good", "lost")]
    found = {name for measure in measures for name in measure.counters}
    return found.union(*(figure.counters for figure in activity.figures))


def _live(
    activity: Activity, span: Span, since: datetime, until: datetime
) -> dict[datetime, Counter[str]]:
    """What a flow counts outside of the database, by the start of its step."""
    found: dict[datetime, Counter[str]] = defaultdict(Counter)
    try:
        counts: Mapping[datetime, Counts] = activity.live(since, until) if activity.live else {}
    except RedisError:
        return found  # the flow's status says that its Redis does not answer
    for minute, live in counts.items():
        found[span.start(minute)].update(live)
    return found
