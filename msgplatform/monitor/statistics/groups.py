"""The sums of each group of a flow's dimensions, ranked by failures; and the lines of a CSV file.

All dimensions use the same sums, one for each business system, subject and counter. The number of
sums grows with subscriptions, gateways and the like, not with messages.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain, groupby
from typing import Any

import msgspec
from django.db.models import Sum
from django.utils.translation import gettext as _

from msgplatform.core.flows.activity import Activity, Counts, Dimension, Group, Key
from msgplatform.monitor.statistics.points import CounterQuery, in_order

Sums = Mapping[Key, int]
_WHOLE = Group("", "")


class Line(msgspec.Struct, frozen=True):
    """A group and its counters of the whole period."""

    group: Group
    counts: Counts


def sums(query: CounterQuery) -> Sums:
    """The counters of the whole period by system, subject and name. Runs one statement for each
    table."""
    columns = ("biz_id", "subject", "name")
    totals: Counter[Key] = Counter()
    for rows in query.rows_of_sum():
        for *key, value in rows.values_list(*columns).annotate(Sum("value")).order_by():
            totals[Key(*key)] += value
    return totals


def table(query: CounterQuery, dimension: Dimension, totals: Sums) -> list[Line]:
    """The groups of a dimension in the order of `rank_groups`. Each message counts once. `totals`
    is the result of `sums`."""
    if not dimension.is_apart and not query.activity.is_apart(query.selection):
        totals = {key: value for key, value in totals.items() if key.subject >= 0}
    return rank_groups(query.activity, dimension, totals)


def whole(totals: Sums) -> Counts:
    """The counters by name only. Each message counts once."""
    counts: Counter[str] = Counter()
    for key, value in totals.items():
        if key.subject >= 0:
            counts[key.name] += value
    return counts


def rank_groups(activity: Activity, dimension: Dimension, totals: Sums) -> list[Line]:
    """The groups of a dimension, sorted by failures, then failed attempts, then deliveries."""
    counts_by_group: dict[Group, Counter[str]] = defaultdict(Counter)
    for key, group in dimension.groups(totals.keys()).items():
        counts_by_group[group][key.name] += totals[key]

    def rank(line: Line) -> tuple[int, int, int, str]:
        failures, failed_attempts, deliveries = (
            activity.total(tone, line.counts) for tone in ("lost", "bad", "good")
        )
        return -failures, -failed_attempts, -deliveries, line.group.title

    return sorted((Line(group, counts) for group, counts in counts_by_group.items()), key=rank)


def answers(activity: Activity, counts: Counts) -> list[tuple[str, int]]:
    """(title, count) of each answer to failed attempts, the most frequent first."""
    if activity.answer is None:
        return []
    counts_by_title: Counter[str] = Counter()
    for name, value in counts.items():
        if title := activity.answer(name):
            counts_by_title[title] += value
    return [(title, value) for title, value in counts_by_title.most_common() if value > 0]


def csv_lines(query: CounterQuery, dimension: Dimension | None = None) -> Iterator[list[str]]:
    """The header, then a line for every step with counts and for each group of the dimension.

    Times are ISO 8601 with their zone, days are dates; figures in seconds, shares from 0 to 1.
    Raises InvalidInput before the first line.
    """
    query.check()
    activity = query.activity
    tables = query.rows_of_groups() if dimension and dimension.is_apart else query.rows()
    group_by_key = dimension.groups(sums(query).keys()) if dimension else None
    titles = [dimension.name, f"{dimension.name}_title"] if dimension else []
    yield [
        _("time"), *titles, *(measure.name for measure in activity.stored_measures),
        "success", *(figure.name for figure in activity.figures),
    ]  # fmt: skip
    columns = ("at", "biz_id", "subject", "name", "value")
    counter_rows = chain.from_iterable(
        piece.values_list(*columns).iterator() for rows in tables for piece in in_order(rows)
    )
    # Rows are sorted by step, so that only one step is in memory.
    for at, step_rows in groupby(counter_rows, key=lambda row: row[0]):
        counts_by_group: dict[Group, Counter[str]] = defaultdict(Counter)
        for _at, *key, value in step_rows:
            group = group_by_key.get(tuple(key)) if group_by_key is not None else _WHOLE  # type: ignore[call-overload]
            if group is not None:
                counts_by_group[group][key[-1]] += value
        for group, counts in sorted(counts_by_group.items(), key=lambda pair: pair[0].title):
            names = [group.key, group.title] if dimension else []
            sums_of_group = [str(measure.of(counts)) for measure in activity.stored_measures]
            figures: list[Any] = [activity.success(counts)]
            figures += [figure.of(counts) for figure in activity.figures]
            texts = ["" if figure is None else f"{figure:.4f}" for figure in figures]
            yield [at.isoformat(), *names, *sums_of_group, *texts]
