"""Counters of all flows: adds minutes up to hours and days, and deletes old counters.

Days are in settings.TIME_ZONE, hours in UTC. Every step may be repeated, and run by several
processes at once, because hours and days are always computed anew from their minutes.
"""

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, time as time_of_day, timedelta
from functools import partial
from typing import NamedTuple

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max
from django.utils import timezone

from msgplatform.core import logging
from msgplatform.core.data import engines, sql, transactions
from msgplatform.models import DayCounter, HourCounter, MinuteCounter
from msgplatform.models.counters import Counter

log = logging.get(__name__)

EVERY_SECONDS = 60.0
# The roll-up pauses for 20 times its duration, so that it takes at most a twentieth of the time;
# for ten minutes at most, because the database may have hung: one of 120 s takes a sixth.
_REST_FACTOR, _MAX_REST_SECONDS = 20, 600.0
_CHUNK = 5000  # rows, about, in one DELETE
_CHUNKS_A_TURN = 20
_HOURS_A_TURN = 48
_HOUR = timedelta(hours=1)
_MICROSECOND = timedelta(microseconds=1)

_ROLL_UP = """
INSERT INTO {table} ({step}, flow, biz_id, subject, name, value)
SELECT %s, flow, biz_id, subject, name, SUM(value) FROM ({parts}) counted
GROUP BY flow, biz_id, subject, name ORDER BY flow, biz_id, subject, name
"""
_PART = """
SELECT flow, biz_id, subject, name, value FROM {table} WHERE {step} >= %s AND {step} < %s
"""


class Part(NamedTuple):
    """The counters of a table from `begin` until before `end`."""

    model: type[Counter]
    begin: datetime
    end: datetime


class Housekeeping:
    """Rolls up and purges counters when due. The owner's loop may call it at every turn."""

    def __init__(self) -> None:
        self._next = 0.0
        self._last: datetime | None = None  # the database's time of the last roll-up

    def turn_if_due(self) -> None:
        start = time.monotonic()
        if start < self._next:
            return
        has_more = False
        try:
            try:
                now = sql.now()
                # Hours first, because days are computed from them.
                has_more = roll_up_hours() >= _HOURS_A_TURN
                roll_up(self._last)
                self._last = now
            finally:
                has_more = purge() or has_more
        finally:
            # Pause after an error too, so that the owner has time for other work.
            end = time.monotonic()
            pause = min(_MAX_REST_SECONDS, (end - start) * _REST_FACTOR)
            self._next = end + pause + (0 if has_more else EVERY_SECONDS)


def roll_up(last: datetime | None = None) -> None:
    """Compute today and every day that may have new counts since `last`, the last roll-up.

    Without `last`, as after a start, compute yesterday and all days since the last day with
    counters, which may have been computed before its end. Days whose minutes may have been deleted
    are never computed.
    """
    now = sql.now()
    today = DayCounter.of(now)
    oldest = _oldest_minute_day(today)
    if last is None:
        newest = DayCounter.objects.aggregate(newest=Max("day"))["newest"] or oldest
        # Late counts may have come for the day before, too.
        first = min(today, newest) - timedelta(days=1)
    else:
        first = DayCounter.of(min(now, last) - DayCounter.OPEN_FOR)
    first = max(first, oldest)
    for number in range((today - first).days + 1):
        transactions.retrying(partial(_roll_up_day, first + timedelta(days=number)))


def roll_up_hours() -> int:
    """Compute the hours that have ended since the last computed hour, oldest first, at most
    _HOURS_A_TURN of them. Returns the number of hours."""
    end = HourCounter.of(sql.now() - HourCounter.OPEN_FOR)
    # A clock ahead of time may have added up open hours. Readers would ignore their minutes.
    HourCounter.objects.filter(hour__gte=end).delete()
    begin = HourCounter.done_until() or datetime.min.replace(tzinfo=UTC)
    for number in range(_HOURS_A_TURN):
        # Skip hours without counts.
        minutes = MinuteCounter.objects.filter(minute__gte=begin, minute__lt=end)
        first = minutes.order_by("minute").values_list("minute", flat=True).first()
        if first is None:
            return number
        begin = HourCounter.of(first)
        parts = [Part(MinuteCounter, begin, begin + _HOUR)]
        transactions.retrying(partial(_roll_up, HourCounter, begin, parts))
        begin += _HOUR
    return _HOURS_A_TURN


def purge() -> bool:
    """Delete a bounded number of counters older than the settings allow. True if old counters are
    left."""
    today = DayCounter.of(sql.now())
    oldest_day = today - timedelta(days=settings.DAY_COUNTER_DAYS)
    oldest_minute = _midnight(_oldest_minute_day(today))
    has_minutes = _purge(MinuteCounter, oldest_minute)
    has_hours = _purge(HourCounter, oldest_minute)
    return _purge(DayCounter, oldest_day) or has_minutes or has_hours


def _roll_up_day(day: date) -> None:
    """Compute a day from the closed hours that lie completely in the day, and the minutes before
    and after these hours."""
    begin, end = _midnight(day), _midnight(day + timedelta(days=1))
    rolled_up_until = HourCounter.done_until() or begin
    hours_begin = HourCounter.of(begin.astimezone(UTC) + _HOUR - _MICROSECOND)
    hours_end = max(hours_begin, HourCounter.of(min(end, rolled_up_until)))
    parts = [
        Part(MinuteCounter, begin, hours_begin),
        Part(HourCounter, hours_begin, hours_end),
        Part(MinuteCounter, hours_end, end),
    ]
    _roll_up(DayCounter, day, parts)


def _roll_up(model: type[Counter], at: date, parts: Sequence[Part]) -> None:
    """Compute the counters of the step `at` from these parts of other steps."""
    step = model.step
    engine = engines.of()
    clause = engine.upsert([step, "flow", "biz_id", "subject", "name"])
    selects = [
        _PART.format(table=part.model._meta.db_table, step=part.model.step) for part in parts
    ]
    statement = _ROLL_UP.format(
        table=model._meta.db_table, step=step, parts=" UNION ALL ".join(selects)
    )
    statement += f"{clause}value = {engine.new_value('value')}"
    bounds = [sql.stored(bound) for part in parts for bound in (part.begin, part.end)]
    start = sql.stored(at) if isinstance(at, datetime) else at.isoformat()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, [start, *bounds])


def _purge(model: type[Counter], before: date) -> bool:
    """Delete whole steps, oldest first. True if old rows are left."""
    field = model.step
    old_rows = model._default_manager.filter(**{f"{field}__lt": before})
    for _ in range(_CHUNKS_A_TURN):
        steps = old_rows.order_by(field).values_list(field, flat=True)
        last_step = steps[_CHUNK - 1 : _CHUNK].first() or steps.last()
        if last_step is None:
            return False
        chunk = old_rows.filter(**{f"{field}__lte": last_step})
        row_count = transactions.retrying(chunk.delete)[0]
        log.info("counters_purged", table=model._meta.db_table, rows=row_count, upto=str(last_step))
    return True


def _oldest_minute_day(today: date) -> date:
    """The oldest day whose minutes have not been deleted."""
    return today - timedelta(days=settings.MINUTE_COUNTER_DAYS)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time_of_day(), tzinfo=timezone.get_default_timezone())
