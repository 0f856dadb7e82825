"""What lost messages, lags or failed most in the last hour: groups of each flow's first dimension,
such as a subscription or a gateway."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum

from msgplatform.core.flows import Activity, Flow, Group, Key
from msgplatform.models import MinuteCounter
from msgplatform.monitor.statistics import groups

_HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Trouble:
    """`lost` and `failed` count the last hour; `oldest_seconds` is None when nothing is late."""

    flow: Flow
    group: Group
    lost: int
    failed: int
    oldest_seconds: float | None


def worst(
    lags: Mapping[Flow, Mapping[str, float]], now: datetime, most: int, late: float
) -> list[Trouble]:
    """First what lost messages, then what lags most, then what failed most.

    `lags` are the `Status.oldest_by` of the flows; what is younger than `late` seconds is no
    trouble. One statement for the counters, and at most three for the names of each flow.
    """
    able = [
        (flow, flow.health.activity)
        for flow in lags
        if flow.health.activity and flow.health.activity.dimensions
    ]
    sums = _last_hour([activity for _flow, activity in able], now)
    found = [
        trouble
        for flow, activity in able
        for trouble in _of_flow(flow, activity, sums[activity.counters], lags[flow], late)
    ]
    found.sort(key=lambda one: (-one.lost, -(one.oldest_seconds or 0), -one.failed))
    return found[:most]


def _last_hour(able: Collection[Activity], now: datetime) -> Mapping[str, dict[Key, int]]:
    """The counters of what was lost or failed, by their flow."""
    names = {
        name
        for activity in able
        for measure in activity.measures
        if measure.tone in ("lost", "bad")
        for name in measure.counters
    }
    rows = MinuteCounter.objects.filter(minute__gt=now - _HOUR, name__in=names)
    columns = ("flow", "biz_id", "subject", "name")
    found: dict[str, dict[Key, int]] = defaultdict(dict)
    for flow, *key, value in rows.values_list(*columns).annotate(Sum("value")).order_by():
        found[flow][Key(*key)] = value
    return found


def _of_flow(
    flow: Flow, activity: Activity, sums: groups.Sums, lags: Mapping[str, float], late: float
) -> Iterator[Trouble]:
    dimension = activity.dimensions[0]
    lines = {line.group.key: line for line in groups.ranked(activity, dimension, sums)}
    ages = {key: age for key, age in lags.items() if age >= late}
    silent = dimension.named([key for key in ages if key not in lines])
    for group in (*(line.group for line in lines.values()), *silent.values()):
        counts = lines[group.key].counts if group.key in lines else {}
        lost, failed = activity.counted("lost", counts), activity.counted("bad", counts)
        if lost > 0 or failed > 0 or group.key in ages:
            yield Trouble(flow, group, lost, failed, ages.get(group.key))
