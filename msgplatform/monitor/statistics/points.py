"""Counters in steps of time, for the statistics of the flows.

    query = CounterQuery(flow.health.activity, "hour", since, until, {"subscription": "7"})
    query.series()       a Point for every hour, gaps filled with zeros
    total(points)        the whole time as one Point

`since` and `until` are aware; the first step contains `since`, and `until` itself is not included
(a day counts as a whole). Minutes and hours (UTC) come from minute and hour counters, kept for
MINUTE_COUNTER_DAYS. Days (in settings.TIME_ZONE) come from day counters, kept for DAY_COUNTER_DAYS
and up to date but for a minute or more. The last hours, which are not added up yet, come from their
minutes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any, Literal

import msgspec
from django.db.models import F, Q, QuerySet, Sum, Value
from django.db.models.functions import Concat, TruncHour
from django.utils import timezone
from django.utils.translation import gettext as _

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.activity import Activity, Counts
from msgplatform.models import DayCounter, HourCounter, MinuteCounter
from msgplatform.models.counters import WHOLE

Step = Literal["minute", "hour", "day"]
# The most steps of one answer: two days of minutes, four months of hours.
MAX_POINTS = 3000
_LENGTH: dict[str, timedelta] = {
    "minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1),
}  # fmt: skip
_INSTANT = timedelta(microseconds=1)


def counter_tables(step: Step, since: datetime, until: datetime) -> list[QuerySet[Any]]:
    """The counters of a period, of all flows, each with `at`, the start of its step. Several
    querysets follow each other in time, and no counter is in two of them."""
    if step == "day":
        first, last = DayCounter.of(since), DayCounter.of(until - _INSTANT)
        return [DayCounter.objects.filter(day__range=(first, last)).annotate(at=F("day"))]
    begin = step_start(step, since)
    if step == "minute":
        minutes = MinuteCounter.objects.filter(minute__gte=begin, minute__lt=until)
        return [minutes.annotate(at=F("minute"))]
    # If the period ends within an hour, only minutes can give that part of the hour.
    last_hour = step_start(step, until)
    hours_end = min(HourCounter.done_until() or begin, last_hour)
    hours = HourCounter.objects.filter(hour__gte=begin, hour__lt=hours_end).annotate(at=F("hour"))
    minutes = MinuteCounter.objects.filter(minute__gte=max(begin, hours_end), minute__lt=until)
    return [hours, minutes.annotate(at=TruncHour("minute", tzinfo=UTC))]


def sum_tables(step: Step, since: datetime, until: datetime) -> list[QuerySet[Any]]:
    """The counters of a period for one sum: like `counter_tables`, but with hours instead of their
    minutes where possible, and steps that do not matter."""
    if step != "minute":
        return counter_tables(step, since, until)
    begin, hours_begin = step_start("minute", since), step_start("hour", since)
    if hours_begin < begin:
        hours_begin += _LENGTH["hour"]
    hours_end = min(HourCounter.done_until() or hours_begin, step_start("hour", until))
    if hours_end <= hours_begin:
        return counter_tables(step, since, until)
    return [
        MinuteCounter.objects.filter(minute__gte=begin, minute__lt=hours_begin),
        HourCounter.objects.filter(hour__gte=hours_begin, hour__lt=hours_end),
        MinuteCounter.objects.filter(minute__gte=hours_end, minute__lt=until),
    ]


def in_order(rows: QuerySet[Any]) -> Iterator[QuerySet[Any]]:
    """A queryset of `counter_tables`, sorted by time, in pieces that fit into memory: MariaDB's
    driver reads an answer as a whole, and a file is written piece by piece."""
    column = rows.model.step
    times = rows.values_list(column, flat=True)
    begin, last = times.order_by(column).first(), times.order_by(f"-{column}").first()
    while begin is not None and last is not None and begin <= last:
        end = begin + 10 * _LENGTH[column]
        piece = rows.filter(**{f"{column}__gte": begin, f"{column}__lt": end})
        yield piece.order_by(column, "biz_id", "subject")
        begin = end


def step_starts(step: Step, since: datetime, until: datetime) -> list[datetime]:
    """The start of every step. Raises InvalidInput if there is none, or too many."""
    if since >= until:
        raise InvalidInput(_("the end must be after the beginning"), "until")
    if (until - since) / _LENGTH[step] > MAX_POINTS:
        raise InvalidInput(_("choose a shorter time or a coarser resolution"), "since")
    if step == "day":
        first, last = DayCounter.of(since), DayCounter.of(until - _INSTANT)
        return [time_of(first + timedelta(days=n)) for n in range((last - first).days + 1)]
    at, moments = step_start(step, since), []
    while at < until:
        moments.append(at)
        at += _LENGTH[step]
    return moments


def step_start(step: Step, at: datetime) -> datetime:
    """The start of the step of this time."""
    if step == "day":
        return time_of(DayCounter.of(at))
    minute = at.astimezone(UTC).replace(second=0, microsecond=0)
    return minute.replace(minute=0) if step == "hour" else minute


def is_last_open(step: Step, until: datetime) -> bool:
    """True if the last step of a period up to `until` is counted only in part: the step has not
    ended, or ends after `until`."""
    if step == "day":
        return step_start(step, until - _INSTANT) == step_start(step, timezone.now())
    return step_start(step, until) < until


def time_of(at: date) -> datetime:
    """The start of a step as databases give it: a time, or a day in settings.TIME_ZONE."""
    if isinstance(at, datetime):
        return at
    return datetime.combine(at, time(), tzinfo=timezone.get_default_timezone())


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
        step_starts(self.step, self.since, self.until)

    def series(self) -> list[Point]:
        """A Point for every step, also for steps without counts."""
        moments, counts = step_starts(self.step, self.since, self.until), self.counts()
        return [Point(moment, counts.get(moment, {})) for moment in moments]

    def counts(self, condition: Q | None = None) -> dict[datetime, Counter[str]]:
        """The counters of each step that has some, by the start of the step; with `condition` only
        those for which it holds. Runs one statement for each table that it reads."""
        counts: dict[datetime, Counter[str]] = defaultdict(Counter)
        for table in self.rows():
            rows = table.filter(condition or Q()).values_list("at", "name")
            for at, name, value in rows.annotate(Sum("value")).order_by():
                counts[time_of(at)][name] += value
        return counts

    @cached_property
    def condition(self) -> Q:
        """The condition for the counters of the selection. Raises InvalidInput."""
        condition = self.activity.condition(self.selection)
        return condition if self.systems is None else condition & Q(biz_id__in=self.systems)

    def rows(self) -> list[QuerySet[Any]]:
        """The counters in which each message counts once, with `at`, the start of the step. Several
        tables may hold them, see `counter_tables`."""
        is_apart = self.activity.is_apart(self.selection)
        return [rows if is_apart else rows.filter(WHOLE) for rows in self.rows_of_groups()]

    def rows_of_groups(self) -> list[QuerySet[Any]]:
        """Like `rows`, including the counters of dimensions that are counted apart."""
        return list(map(self._of_flow, counter_tables(self.step, self.since, self.until)))

    def rows_of_sum(self) -> list[QuerySet[Any]]:
        """Like `rows_of_groups`, for the sum of the whole period: without `at`, and with hours
        instead of their minutes."""
        return list(map(self._of_flow, sum_tables(self.step, self.since, self.until)))

    def _of_flow(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        rows = rows.filter(self.condition)
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
