"""The sums of each group of a flow's dimensions, ranked by what was lost; and by what kept failing.

All dimensions come from the same sums: of each business system, subject and counter. There are as
many of those as there are things that people have set up, however many messages there were.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Sum

from msgplatform.core.flows import Activity, Dimension, Group, Key
from msgplatform.core.flows.activity import Counts
from msgplatform.monitor.statistics.points import Counted

Sums = Mapping[Key, int]


@dataclass(frozen=True)
class Line:
    """A group and its counters of the whole time."""

    group: Group
    counts: Counts


def sums(counted: Counted) -> Sums:
    """The counters of the whole time, by what they are about. One statement for each table that is
    read."""
    columns = ("biz_id", "subject", "name")
    found: Counter[Key] = Counter()
    for rows in counted.rows_of_sum():
        for *key, value in rows.values_list(*columns).annotate(Sum("value")).order_by():
            found[Key(*key)] += value
    return found


def table(counted: Counted, dimension: Dimension, found: Sums) -> list[Line]:
    """`ranked`, with each message counted once; `found` is what `sums` returned."""
    if not dimension.is_apart and not counted.activity.is_apart(counted.chosen):
        found = {key: value for key, value in found.items() if key.subject >= 0}
    return ranked(counted.activity, dimension, found)


def whole(found: Sums) -> Counts:
    """The counters by their name alone, each message counted once."""
    counts: Counter[str] = Counter()
    for key, value in found.items():
        if key.subject >= 0:
            counts[key.name] += value
    return counts


def ranked(activity: Activity, dimension: Dimension, found: Sums) -> list[Line]:
    """The groups of a dimension: first what lost most, then what failed most, then the busiest."""
    groups = dimension.groups(found.keys())
    counts: dict[Group, Counter[str]] = defaultdict(Counter)
    for key, group in groups.items():
        counts[group][key.name] += found[key]

    def rank(line: Line) -> tuple[int, int, int, str]:
        lost, bad, good = (activity.counted(tone, line.counts) for tone in ("lost", "bad", "good"))
        return -lost, -bad, -good, line.group.title

    return sorted((Line(group, found) for group, found in counts.items()), key=rank)


def answers(activity: Activity, counts: Counts) -> list[tuple[str, int]]:
    """(title, how many) of each answer with which attempts failed, the most frequent first."""
    if activity.answer is None:
        return []
    found: Counter[str] = Counter()
    for name, value in counts.items():
        if title := activity.answer(name):
            found[title] += value
    return [(title, value) for title, value in found.most_common() if value > 0]
