"""Statistics: series, percentiles and CSV from counters; days made of minutes, and purged."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext, override_settings
from pytest_django import Settings

from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.doors.console import flow_card
from msgplatform.models import Biz, DayCounter, MinuteCounter
from msgplatform.monitor import counters as platform_counters
from msgplatform.monitor.statistics import groups
from msgplatform.monitor.statistics.points import CounterQuery, Point, Step, total
from notify.models import BizReceive
from notify.monitor import counters
from notify.monitor.activity import ACTIVITY, percentile, span
from notify.monitor.counters import DURATION, LATENCY, CatalogueSubjects, Key
from notify.monitor.metrics import cumulative
from notify.orders import Result
from tests.support.notify_rows import subscription

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
SHANGHAI = "Asia/Shanghai"
PAID = "order.paid"


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"))


def count(row: BizReceive, at: datetime, **values: int) -> None:
    counters.add(Counter({Key(row.biz_id, row.pk, k): v for k, v in values.items()}), at)


def accept(*messages: tuple[int, str]) -> None:
    counters.count_accepted(messages, CatalogueSubjects(), NOON, {})


def counted(step: Step, since: datetime, until: datetime, **chosen: object) -> CounterQuery:
    return CounterQuery(
        ACTIVITY, step, since, until, {name: str(key) for name, key in chosen.items()}
    )


def each(points: Sequence[Point], *names: str) -> list[tuple[int, ...]]:
    """The counters of these names in each step."""
    return [tuple(point.counts.get(name, 0) for name in names) for point in points]


def test_a_series_has_every_step_and_only_its_own_time(row: BizReceive) -> None:
    count(row, NOON - timedelta(minutes=1), delivered=100)
    count(row, NOON, delivered=3, failed=1)
    count(row, NOON + timedelta(seconds=59), delivered=2)
    count(row, NOON + timedelta(minutes=2), exhausted=1)
    count(row, NOON + timedelta(minutes=3), delivered=100)
    points = counted("minute", NOON, NOON + timedelta(minutes=3)).series()
    assert [p.at for p in points] == [NOON + timedelta(minutes=n) for n in range(3)]
    wanted = [(5, 1, 0), (0, 0, 0), (0, 0, 1)]
    assert each(points, "delivered", "failed", "exhausted") == wanted
    assert [ACTIVITY.success(p.counts) for p in points] == [1.0, None, 0.0]
    assert ACTIVITY.success(total(points)) == 5 / 6
    assert ACTIVITY.success({"delivered": 2, "exhausted": 1, "poison": 1}) == 0.5


def test_a_series_of_one_subscription_of_one_system_and_of_all(row: BizReceive) -> None:
    second = subscription(row.biz, "second")
    other = subscription(Biz.objects.create(name="stock"), "third")
    for one, value in ((row, 1), (second, 10), (other, 100)):
        count(one, NOON, delivered=value)
    accept((row.biz_id, PAID), (row.biz_id, PAID), (other.biz_id, PAID))
    span: Any = ("hour", NOON, NOON + timedelta(hours=1))
    assert each(counted(*span).series(), "delivered", "accepted") == [(111, 3)]
    of_system = counted(*span, system=row.biz_id)
    assert each(of_system.series(), "delivered", "accepted") == [(11, 2)]
    assert each(counted(*span, subscription=second.pk).series(), "delivered") == [(10,)]
    both = counted(*span, subscription=second.pk, system=other.biz_id)
    assert each(both.series(), "delivered") == [(0,)]
    lines = groups.rank_groups(ACTIVITY, ACTIVITY.dimensions[0], groups.sums(of_system))
    found = {line.group.key: line.counts["delivered"] for line in lines}
    assert found == {str(row.pk): 1, str(second.pk): 10}


def test_what_lost_most_comes_first(row: BizReceive) -> None:
    busy, lossy, failing = (subscription(row.biz, name) for name in ("busy", "lossy", "failing"))
    count(row, NOON, exhausted=2, delivered=1)
    count(busy, NOON, delivered=1000)
    count(lossy, NOON, exhausted=3, failed=3)
    count(failing, NOON, failed=50, delivered=10)
    sums = groups.sums(counted("hour", NOON, NOON + timedelta(hours=1)))
    lines = groups.rank_groups(ACTIVITY, ACTIVITY.dimensions[0], sums)
    assert [line.group.title for line in lines] == [str(one) for one in (lossy, row, failing, busy)]
    lossy.delete()
    again = groups.rank_groups(ACTIVITY, ACTIVITY.dimensions[0], sums)
    assert again[0].group.title == lines[0].group.key, "one that was deleted keeps its counts"


def test_answers_are_few_whatever_a_consumer_answers(row: BizReceive) -> None:
    tally = counters.Tally({row.pk: row.biz_id}, CatalogueSubjects())
    given = [(503, ""), (503, ""), (499, ""), (498, ""), (0, "timeout"), (200, "body_too_large")]
    results = [
        Result(n, row.pk, "claim", 1, "failed", status, error)
        for n, (status, error) in enumerate(given)
    ]
    tally.count_failed(results, [])
    counters.add(tally.counts, NOON)
    (point,) = counted("hour", NOON, NOON + timedelta(hours=1)).series()
    found = groups.answers(ACTIVITY, point.counts)
    assert sorted(found) == [
        ("HTTP 4xx", 2), ("HTTP 503", 2), ("body_too_large", 1), ("timeout", 1),
    ]  # fmt: skip
    assert sum(how_often for _answer, how_often in found) == point.counts["failed"]


def test_hours_add_up_their_minutes(row: BizReceive) -> None:
    for minute in range(0, 180, 7):
        count(row, NOON + timedelta(minutes=minute), delivered=1)
    points = counted("hour", NOON + timedelta(minutes=30), NOON + timedelta(hours=3)).series()
    assert [p.at.hour for p in points] == [12, 13, 14]
    assert each(points, "delivered") == [(9,), (9,), (8,)]


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_right_to_the_bucket(seed: int) -> None:
    """Against the sorted list itself: the bucket of the estimate is the bucket of the truth."""
    chance = random.Random(seed)
    times = sorted(chance.lognormvariate(-1, 2) for _ in range(999))
    counts = Counter(LATENCY.bucket(seconds).name for seconds in times)
    for share in (0.5, 0.95):
        truth = times[int(999 * share)]
        estimate = percentile(LATENCY, counts, share)
        assert estimate is not None
        assert LATENCY.bucket(estimate).name == LATENCY.bucket(truth).name


def test_percentiles_at_the_edges() -> None:
    assert percentile(LATENCY, {}, 0.5) is None
    assert percentile(LATENCY, {"latency_le_inf": 3}, 0.5) == 86400
    assert percentile(DURATION, {DURATION.bucket(0.0).name: 1}, 0.95) == pytest.approx(0.025 * 0.95)
    assert DURATION.bucket(0.025).name == DURATION.bucket(0.0).name == "duration_le_25ms"
    assert DURATION.bucket(0.0251).name == "duration_le_50ms"


def test_twenty_two_minutes_are_not_thirty_three() -> None:
    counts = Counter(LATENCY.bucket(seconds).name for seconds in [22 * 60] * 6000)
    for share in (0.5, 0.95):
        assert 20 * 60 <= (percentile(LATENCY, counts, share) or 0) <= 30 * 60
        assert span(LATENCY, counts, share) is None
    counts = Counter(DURATION.bucket(6.0).name for _ in range(100))
    assert 5 <= (percentile(DURATION, counts, 0.95) or 0) <= 10


def test_no_bucket_is_wide() -> None:
    for histogram in (LATENCY, DURATION):
        for low, high in pairwise(histogram.bounds):
            assert high <= 2.5 * low
        assert all(len(bucket.name) <= 32 for bucket in histogram.stored_buckets)
        names = {bucket.name for bucket in histogram.stored_buckets}
        assert len(names) == len(histogram.stored_buckets)


def test_counters_of_earlier_releases_keep_their_meaning() -> None:
    """What was counted between one and ten minutes is not taken for five to ten."""
    assert LATENCY.bucket(400).name == "latency_gt_300_le_600s"
    old = {"latency_le_600000ms": 100}
    assert span(LATENCY, old, 0.5) == (60, 600)
    assert percentile(LATENCY, old, 0.5) == pytest.approx(330)
    both = {**old, LATENCY.bucket(400).name: 100}
    assert percentile(LATENCY, both, 0.999) == pytest.approx(600, rel=0.01)
    assert 300 < (percentile(LATENCY, both, 0.5) or 0) < 420
    bounds = dict(cumulative(LATENCY, both))
    assert (bounds["300.0"], bounds["600.0"], bounds["+Inf"]) == (0, 200, 200)
    (median, _p95, _request) = ACTIVITY.figures
    assert flow_card.format_figure(median, old) == "1 min to 10 min"
    assert flow_card.format_figure(median, {"latency_le_inf": 1}) == "more than 1 d"


def test_what_is_too_long_for_its_step_is_refused(row: BizReceive) -> None:
    with pytest.raises(InvalidInput) as caught:
        counted("minute", NOON, NOON + timedelta(days=30)).series()
    assert caught.value.field == "since"
    with pytest.raises(InvalidInput) as caught:
        list(groups.csv_lines(counted("day", NOON, NOON)))
    assert caught.value.field == "until"


def test_csv(row: BizReceive) -> None:
    count(row, NOON, delivered=3, failed=2, exhausted=1, latency_le_100ms=3)
    count(row, NOON + timedelta(minutes=70), delivered=1)
    accept((row.biz_id, PAID))
    wanted = counted("hour", NOON, NOON + timedelta(hours=2))
    header, *lines = groups.csv_lines(wanted, ACTIVITY.dimensions[0])
    assert header[:3] == ["time", "subscription", "subscription_title"]
    found = [dict(zip(header, line, strict=True)) for line in lines]
    assert [(line["time"], line["subscription"], line["delivered"]) for line in found] == [
        ("2026-03-10T12:00:00+00:00", str(row.pk), "3"),
        ("2026-03-10T13:00:00+00:00", str(row.pk), "1"),
    ]
    assert (found[0]["success"], found[0]["delivery_p50"]) == ("0.7500", "0.0500")
    assert (found[1]["success"], found[1]["delivery_p50"]) == ("1.0000", "")
    header, *lines = groups.csv_lines(wanted)
    assert [dict(zip(header, line, strict=True))["accepted"] for line in lines] == ["1", "0"]
    header, *lines = groups.csv_lines(wanted, ACTIVITY.dimensions[1])
    assert [line[1:3] for line in lines] == [[str(row.biz_id), "orders"]] * 2


# -- days ----------------------------------------------------------------------------------------
def days() -> dict[str, int]:
    rows = DayCounter.objects.filter(name="delivered").values_list("day", "value")
    return {str(day): value for day, value in rows}


@override_settings(TIME_ZONE=SHANGHAI)
def test_days_are_those_of_the_time_zone(row: BizReceive) -> None:
    midnight = sql.now().astimezone(ZoneInfo(SHANGHAI)).replace(hour=0, minute=0)
    count(row, (midnight - timedelta(minutes=1)).astimezone(UTC), delivered=1)
    count(row, midnight.astimezone(UTC), delivered=10)
    platform_counters.roll_up()
    today, yesterday = midnight.date(), midnight.date() - timedelta(days=1)
    assert days() == {str(yesterday): 1, str(today): 10}
    points = counted("day", midnight - timedelta(hours=2), midnight + timedelta(hours=1)).series()
    assert [(p.at.isoformat()[:19], p.counts["delivered"]) for p in points] == [
        (f"{yesterday}T00:00:00", 1), (f"{today}T00:00:00", 10),
    ]  # fmt: skip


def test_a_roll_up_can_be_repeated_and_sees_what_came_since(row: BizReceive) -> None:
    now = sql.now()
    count(row, now, delivered=2, latency_le_100ms=2)
    for _ in range(3):
        platform_counters.roll_up()
    assert list(days().values()) == [2]
    count(row, now, delivered=3)
    platform_counters.roll_up()
    assert list(days().values()) == [5]
    counts = total(counted("day", now, now + timedelta(seconds=1)).series())
    assert ACTIVITY.figures[0].of(counts) is not None


def test_a_standstill_is_made_up_for(row: BizReceive) -> None:
    now = sql.now()
    for back in range(6):
        count(row, now - timedelta(days=back), delivered=back + 1)
    platform_counters.roll_up()
    assert sorted(days().values()) == [1, 2, 3, 4, 5, 6]


def test_a_day_is_made_up_for_that_ended_while_nothing_was_added_up(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    midnight = NOON + timedelta(hours=12)
    keeper = platform_counters.Housekeeping()
    for hours, value in ((-3, 1), (-2, 10), (2, 100)):
        now = midnight + timedelta(hours=hours)
        count(row, now - timedelta(minutes=150), delivered=value)
        monkeypatch.setattr(sql, "now", lambda now=now: now)
        keeper._next = 0.0
        keeper.turn_if_due()
    assert days() == {"2026-03-10": 111}


def test_counters_that_cannot_be_added_up_are_no_hindrance(
    row: BizReceive, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, hang = time.monotonic(), 0.0

    def too_slow(*_given: object) -> int:
        nonlocal now
        now += hang
        raise OperationalError(2013, "Lost connection to server during query")

    settings.MINUTE_COUNTER_DAYS = 3
    count(row, sql.now() - timedelta(days=6), delivered=1)
    monkeypatch.setattr(platform_counters, "roll_up", too_slow)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    keeper = platform_counters.Housekeeping()
    for seconds, pause in ((8 * 3600, 660), (20, 460)):  # ten minutes at most; 20 times as long
        hang = seconds
        with pytest.raises(OperationalError):
            keeper.turn_if_due()
        assert not MinuteCounter.objects.exists()
        now += pause - 1
        keeper.turn_if_due()  # the owner's other work comes first
        now += 1


def test_old_counters_are_deleted_after_they_were_added_up(
    row: BizReceive, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MINUTE_COUNTER_DAYS, settings.DAY_COUNTER_DAYS = 3, 31
    monkeypatch.setattr(platform_counters, "_CHUNK", 7)
    now = sql.now()
    for back in range(6):
        for minute in range(20):
            count(row, now - timedelta(days=back, minutes=minute), delivered=1)
    DayCounter.objects.create(
        day=now.date() - timedelta(days=32), flow="notify", biz_id=1, name="delivered", value=1
    )
    before = days()
    keeper = platform_counters.Housekeeping()
    keeper.turn_if_due()
    with CaptureQueriesContext(connection) as queries:
        keeper.turn_if_due()
    assert not queries, "not before the next minute"
    oldest = (now - timedelta(days=3)).date()
    assert MinuteCounter.objects.earliest("minute").minute.date() == oldest
    assert str(now.date() - timedelta(days=32)) in before
    assert str(now.date() - timedelta(days=32)) not in days()
    kept = days()
    platform_counters.roll_up()
    assert days() == kept, "a day whose minutes are gone is not computed again"


def test_one_subscriptions_chart_reads_its_own_rows_only(row: BizReceive) -> None:
    others = [subscription(row.biz, f"s{number}") for number in range(20)]
    rows: Counter[Key] = Counter()
    for minute in range(60):
        rows.update({Key(row.biz_id, other.pk, "delivered"): 1 for other in others})
        counters.add(rows, NOON + timedelta(minutes=minute))
    query = MinuteCounter.objects.filter(
        flow="notify", subject=row.pk, minute__gte=NOON, minute__lt=NOON + timedelta(hours=1)
    )
    # By statistics of now: another test may have left some of an empty table.
    table = "TABLE " if connection.vendor == "mysql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {table}msgplatform_minutecounter")
        cursor.fetchall()
    assert "minute_counter_subject" in query.explain()
