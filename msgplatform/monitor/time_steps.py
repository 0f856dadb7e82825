"""Counters in steps of time, for the statistics of the flows.

`since` and `until` are aware; the first step contains `since`, and `until` itself is not included
(a day counts as a whole). Minutes and hours (UTC) come from minute and hour counters, kept for
MINUTE_COUNTER_DAYS. Days (in settings.TIME_ZONE) come from day counters, kept for DAY_COUNTER_DAYS
and up to date but for a minute or more. The last hours, which are not added up yet, come from their
minutes.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal

from django.db.models import F, QuerySet
from django.db.models.functions import TruncHour
from django.utils import timezone
from django.utils.translation import gettext as _

from msgplatform.core.errors import InvalidInput
from msgplatform.models import DayCounter, HourCounter, MinuteCounter

Step = Literal["minute", "hour", "day"]
# The most steps of one answer: two days of minutes, four months of hours.
MAX_POINTS = 3000
_LENGTH = {
    "minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1),
}  # fmt: skip
_INSTANT = timedelta(microseconds=1)
_TIMES: dict[Any, str] = {MinuteCounter: "minute", HourCounter: "hour", DayCounter: "day"}
_PIECE: dict[Any, timedelta] = {
    MinuteCounter: timedelta(minutes=10), HourCounter: timedelta(hours=10),
    DayCounter: timedelta(days=10),
}  # fmt: skip


def rows(step: Step, since: datetime, until: datetime) -> list[QuerySet[Any]]:
    """The counters of a period, of all flows, each with `at`, the start of its step. Several
    querysets follow each other in time, and no counter is in two of them."""
    if step == "day":
        first, last = DayCounter.of(since), DayCounter.of(until - _INSTANT)
        return [DayCounter.objects.filter(day__range=(first, last)).annotate(at=F("day"))]
    begin = start(step, since)
    if step == "minute":
        minutes = MinuteCounter.objects.filter(minute__gte=begin, minute__lt=until)
        return [minutes.annotate(at=F("minute"))]
    # If the period ends within an hour, only minutes can give that part of the hour.
    last_hour = start(step, until)
    hours_until = min(HourCounter.done_until() or begin, last_hour)
    hours = HourCounter.objects.filter(hour__gte=begin, hour__lt=hours_until).annotate(at=F("hour"))
    minutes = MinuteCounter.objects.filter(minute__gte=max(begin, hours_until), minute__lt=until)
    return [hours, minutes.annotate(at=TruncHour("minute", tzinfo=UTC))]


def rows_of_sum(step: Step, since: datetime, until: datetime) -> list[QuerySet[Any]]:
    """The counters of a period for one sum: like `rows`, but with hours instead of their minutes
    where possible, and steps that do not matter."""
    first = start("hour", since)
    if first < (begin := start("minute", since)):
        first += _LENGTH["hour"]
    hours_until = HourCounter.done_until() if step == "minute" else None
    last = min(hours_until, start("hour", until)) if hours_until else first
    if step != "minute" or last <= first:
        return rows(step, since, until)
    return [
        MinuteCounter.objects.filter(minute__gte=begin, minute__lt=first),
        HourCounter.objects.filter(hour__gte=first, hour__lt=last),
        MinuteCounter.objects.filter(minute__gte=last, minute__lt=until),
    ]


def in_order(rows: QuerySet[Any]) -> Iterator[QuerySet[Any]]:
    """A queryset of `rows`, sorted by time, in pieces that fit into memory: MariaDB's driver reads
    an answer as a whole, and a file is written piece by piece."""
    column = _TIMES[rows.model]
    times = rows.values_list(column, flat=True)
    begin, last = times.order_by(column).first(), times.order_by(f"-{column}").first()
    while begin is not None and last is not None and begin <= last:
        end = begin + _PIECE[rows.model]
        piece = rows.filter(**{f"{column}__gte": begin, f"{column}__lt": end})
        yield piece.order_by(column, "biz_id", "subject")
        begin = end


def starts(step: Step, since: datetime, until: datetime) -> list[datetime]:
    """The start of every step. Raises InvalidInput if there is none, or too many."""
    if since >= until:
        raise InvalidInput(_("the end must be after the beginning"), "until")
    if (until - since) / _LENGTH[step] > MAX_POINTS:
        raise InvalidInput(_("choose a shorter time or a coarser resolution"), "since")
    if step == "day":
        first, last = DayCounter.of(since), DayCounter.of(until - _INSTANT)
        return [moment(first + timedelta(days=n)) for n in range((last - first).days + 1)]
    at, moments = start(step, since), []
    while at < until:
        moments.append(at)
        at += _LENGTH[step]
    return moments


def start(step: Step, at: datetime) -> datetime:
    """The start of the step of this time."""
    if step == "day":
        return moment(DayCounter.of(at))
    whole = at.astimezone(UTC).replace(second=0, microsecond=0)
    return whole.replace(minute=0) if step == "hour" else whole


def is_last_open(step: Step, until: datetime) -> bool:
    """True if the last step of a period up to `until` is counted only in part: the step has not
    ended, or ends after `until`."""
    if step == "day":
        return start(step, until - _INSTANT) == start(step, timezone.now())
    return start(step, until) < until


def moment(at: date) -> datetime:
    """The start of a step as databases give it: a time, or a day in settings.TIME_ZONE."""
    if isinstance(at, datetime):
        return at
    return datetime.combine(at, time(), tzinfo=timezone.get_default_timezone())
