"""Hours: added up when they are over, read instead of their minutes, deleted with these."""

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import Settings

from msgplatform.core import flows
from msgplatform.core.data import sql
from msgplatform.models import DayCounter, HourCounter, MinuteCounter
from msgplatform.monitor import counters
from msgplatform.monitor.statistics import groups
from msgplatform.monitor.statistics.points import CounterQuery, Step, total

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
# A system's own counter, and one of a subscription that has an id of its own.
KEYS = ((1, 0, "accepted"), (1, 7, "delivered"))


@pytest.fixture
def this_hour() -> datetime:
    return sql.now().replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def closed(this_hour: datetime, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """The end of the last hour that is over for good. No other one will be during the test: the
    time until which hours are over is half past now."""
    now = sql.now()
    monkeypatch.setattr(HourCounter, "OPEN_FOR", now - this_hour + timedelta(minutes=30))
    return (now - HourCounter.OPEN_FOR).replace(minute=0, second=0, microsecond=0)


def count(at: datetime, value: int = 1) -> None:
    MinuteCounter.add("notify", dict.fromkeys(KEYS, value), at)


def counted(since: datetime, until: datetime, step: Step = "hour") -> CounterQuery:
    activity = next(flow.health.activity for flow in flows.all() if flow.name == "notify")
    assert activity
    return CounterQuery(activity, step, since, until)


def delivered(since: datetime, until: datetime) -> list[int]:
    return [point.counts.get("delivered", 0) for point in counted(since, until).series()]


def hours() -> list[tuple[datetime, int]]:
    rows = HourCounter.objects.filter(name="delivered").order_by("hour")
    return list(rows.values_list("hour", "value"))


def test_hours_are_read_instead_of_their_minutes(closed: datetime) -> None:
    for back, value in ((5, 3), (5, 4), (2, 10)):
        count(closed - back * HOUR + value * MINUTE, value)
    now = sql.now()
    before = delivered(closed - 6 * HOUR, now)
    sums = groups.sums(counted(closed - 6 * HOUR, now))
    assert counters.roll_up_hours() == 2, "hours in which nothing was counted are passed over"
    assert hours() == [(closed - 5 * HOUR, 7), (closed - 2 * HOUR, 10)]
    MinuteCounter.objects.all().delete()
    assert delivered(closed - 6 * HOUR, now) == before
    assert before[:6] == [0, 7, 0, 0, 10, 0]
    assert groups.sums(counted(closed - 6 * HOUR, now)) == sums


def test_an_hour_that_is_open_is_in_its_minutes(closed: datetime) -> None:
    count(closed - MINUTE, 1)
    count(closed, 10)
    counters.roll_up_hours()
    assert hours() == [(closed - HOUR, 1)]
    count(closed, 100)
    assert delivered(closed - HOUR, closed + HOUR) == [1, 110]


def test_a_clock_that_was_ahead_loses_nothing(
    closed: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    count(closed + MINUTE, 1)
    with monkeypatch.context() as context:
        ahead = sql.now() + 3 * HOUR
        context.setattr(sql, "now", lambda: ahead)
        counters.roll_up_hours()
    assert hours() == [(closed, 1)], "its hour is not over"
    count(closed + 2 * MINUTE, 10)
    counters.roll_up_hours()
    counters.roll_up()
    assert delivered(closed, closed + HOUR) == [11]
    assert sum(DayCounter.objects.filter(name="delivered").values_list("value", flat=True)) == 11


def test_a_time_that_ends_within_an_hour_has_a_part_of_it(closed: datetime) -> None:
    for minute in (10, 20, 30):
        count(closed - 3 * HOUR + minute * MINUTE)
    count(closed - HOUR)
    counters.roll_up_hours()
    since = closed - 3 * HOUR
    assert delivered(since, since + 25 * MINUTE) == [2]
    assert delivered(since, since + HOUR) == [3]


@pytest.mark.parametrize("first", [-185, -180, -95, -60, -20])
@pytest.mark.parametrize("last", [-15, -1, 0, 10])
def test_the_sum_of_minutes_reads_their_hours(closed: datetime, first: int, last: int) -> None:
    for minute in range(-200, 20, 5):
        count(closed + minute * MINUTE, 1000 + minute)
    counters.roll_up_hours()
    wanted = counted(closed + first * MINUTE, closed + last * MINUTE, "minute")
    sums = groups.whole(groups.sums(wanted))
    assert sums == total(wanted.series())
    assert sums["delivered"] == sum(1000 + m for m in range(-200, 20, 5) if first <= m < last)
    whole_hours = range(-(-first // 60), last // 60)
    MinuteCounter.objects.filter(
        minute__gte=closed + whole_hours.start * HOUR, minute__lt=closed + whole_hours.stop * HOUR
    ).delete()
    assert groups.whole(groups.sums(wanted)) == sums


def test_adding_up_can_be_repeated(closed: datetime) -> None:
    count(closed - 2 * HOUR, 5)
    for _ in range(2):
        counters.roll_up_hours()
    # As after a kill before the next one: the same hour is computed again.
    HourCounter.objects.all().delete()
    counters.roll_up_hours()
    assert hours() == [(closed - 2 * HOUR, 5)]
    assert counters.roll_up_hours() == 0


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/Havana"])
def test_days_are_computed_from_hours_that_are_over(
    zone: str, settings: Settings, closed: datetime
) -> None:
    settings.TIME_ZONE = zone
    for quarters in range(-180, 4):
        count(closed + quarters * 15 * MINUTE)
    counters.roll_up()
    days = DayCounter.objects.order_by("day", "name").values_list("day", "name", "value")
    expected = list(days)
    counters.roll_up_hours()
    # Only the hour in which India's days begin is read by the minute.
    gone = [
        pk for pk, minute in MinuteCounter.objects.values_list("pk", "minute")
        if minute < closed and minute.astimezone(UTC).hour != 18
    ]  # fmt: skip
    MinuteCounter.objects.filter(pk__in=gone).delete()
    counters.roll_up()
    assert gone
    assert list(days.all()) == expected


def test_a_turn_computes_so_many_hours(closed: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_HOURS_A_TURN", 2)
    for back in range(1, 6):
        count(closed - back * HOUR, back)
    assert [counters.roll_up_hours() for _ in range(3)] == [2, 2, 1]
    assert [value for _hour, value in hours()] == [5, 4, 3, 2, 1]


def test_a_correction_reaches_the_hour(closed: datetime) -> None:
    count(closed - 2 * HOUR, 5)
    count(closed - HOUR, 5)
    counters.roll_up_hours()
    at = (closed - 2 * HOUR + MINUTE).astimezone(UTC)
    MinuteCounter.correct("notify", {KEYS[1]: -1}, at, sql.now())
    MinuteCounter.correct("notify", {KEYS[1]: -1}, closed, sql.now())
    assert hours() == [(closed - 2 * HOUR, 4), (closed - HOUR, 5)]
    assert delivered(closed - 2 * HOUR, closed + HOUR) == [4, 5, -1]


def test_a_file_has_each_hour_once(closed: datetime) -> None:
    for back in (3, 2, 0):
        count(closed - back * HOUR, 1)
    counters.roll_up_hours()
    header, *lines = groups.csv_lines(counted(closed - 3 * HOUR, closed + HOUR))
    found = [dict(zip(header, line, strict=True)) for line in lines]
    assert [(line["time"], line["delivered"]) for line in found] == [
        ((closed - back * HOUR).isoformat(), "1") for back in (3, 2, 0)
    ]


def test_old_hours_are_deleted_with_their_minutes(settings: Settings, closed: datetime) -> None:
    settings.MINUTE_COUNTER_DAYS = 3
    for days in (1, 6):
        count(closed - timedelta(days=days), days)
    counters.roll_up_hours()
    assert [value for _hour, value in hours()] == [6, 1]
    counters.purge()
    assert [value for _hour, value in hours()] == [1]
