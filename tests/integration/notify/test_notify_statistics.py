"""Statistics: series, percentiles and CSV from counters; days made of minutes, and purged."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import override_settings
from pytest_django import Settings

from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.jobs import counters as platform_counters
from msgplatform.models import Biz, DayCounter, MinuteCounter
from notify.models import BizReceive
from notify.monitor import counters, statistics
from notify.monitor.counters import DURATION, LATENCY, Key
from tests.integration.support.notify_rows import subscription

pytestmark = pytest.mark.django_db(transaction=True)
NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
SHANGHAI = "Asia/Shanghai"


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"))


def count(row: BizReceive, at: datetime, **values: int) -> None:
    counters.add(Counter({Key(row.biz_id, row.pk, k): v for k, v in values.items()}), at)


def test_a_series_has_every_step_and_only_its_own_time(row: BizReceive) -> None:
    count(row, NOON - timedelta(minutes=1), delivered=100)
    count(row, NOON, delivered=3, failed=1)
    count(row, NOON + timedelta(seconds=59), delivered=2)
    count(row, NOON + timedelta(minutes=2), exhausted=1)
    count(row, NOON + timedelta(minutes=3), delivered=100)
    points = statistics.series("minute", NOON, NOON + timedelta(minutes=3))
    assert [p.at for p in points] == [NOON + timedelta(minutes=n) for n in range(3)]
    assert [(p.delivered, p.failed, p.exhausted) for p in points] == [
        (5, 1, 0),
        (0, 0, 0),
        (0, 0, 1),
    ]
    assert [p.success_share for p in points] == [5 / 6, None, None]


def test_a_series_of_one_subscription_of_one_system_and_of_all(row: BizReceive) -> None:
    second = subscription(row.biz, "second")
    other = subscription(Biz.objects.create(name="stock"), "third")
    for one, value in ((row, 1), (second, 10), (other, 100)):
        count(one, NOON, delivered=value)
    counters.accepted([row.biz_id, row.biz_id, other.biz_id], NOON)
    span: Any = ("hour", NOON, NOON + timedelta(hours=1))
    assert statistics.series(*span)[0].delivered == 111
    assert statistics.series(*span, biz=row.biz_id)[0].delivered == 11
    assert statistics.series(*span, biz=row.biz_id)[0].accepted == 2
    assert statistics.series(*span, subscription=second.pk)[0].delivered == 10
    assert statistics.total(*span).accepted == 3
    each = statistics.by_subscription(*span)
    assert {key: p.delivered for key, p in each.items()} == {
        row.pk: 1,
        second.pk: 10,
        other.pk: 100,
    }
    assert set(statistics.by_subscription(*span, biz=other.biz_id)) == {other.pk}


def test_hours_add_up_their_minutes(row: BizReceive) -> None:
    for minute in range(0, 180, 7):
        count(row, NOON + timedelta(minutes=minute), delivered=1)
    points = statistics.series("hour", NOON + timedelta(minutes=30), NOON + timedelta(hours=3))
    assert [p.at.hour for p in points] == [12, 13, 14]
    assert [p.delivered for p in points] == [9, 9, 8]


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_right_to_the_bucket(seed: int) -> None:
    """Against the sorted list itself: the bucket of the estimate is the bucket of the truth."""
    chance = random.Random(seed)
    times = sorted(chance.lognormvariate(-1, 2) for _ in range(999))
    counts = Counter(LATENCY.counter(seconds) for seconds in times)
    for share in (0.5, 0.95):
        truth = times[int(999 * share)]
        estimate = LATENCY.percentile(counts, share)
        assert estimate is not None
        assert LATENCY.counter(estimate) == LATENCY.counter(truth)


def test_percentiles_at_the_edges() -> None:
    assert LATENCY.percentile({}, 0.5) is None
    assert LATENCY.percentile({"latency_le_inf": 3}, 0.5) == 86400
    assert DURATION.percentile({DURATION.counter(0.0): 1}, 0.95) == pytest.approx(0.025 * 0.95)
    assert DURATION.counter(0.025) == DURATION.counter(0.0) == "duration_le_25ms"
    assert DURATION.counter(0.0251) == "duration_le_50ms"


def test_what_is_too_long_for_its_step_is_refused(row: BizReceive) -> None:
    with pytest.raises(InvalidInput) as caught:
        statistics.series("minute", NOON, NOON + timedelta(days=30))
    assert caught.value.field == "since"
    with pytest.raises(InvalidInput) as caught:
        list(statistics.csv_rows("day", NOON, NOON))
    assert caught.value.field == "until"


def test_csv(row: BizReceive) -> None:
    count(row, NOON, delivered=3, failed=1, latency_le_100ms=3)
    count(row, NOON + timedelta(minutes=70), delivered=1)
    counters.accepted([row.biz_id], NOON)
    lines = list(statistics.csv_rows("hour", NOON, NOON + timedelta(hours=2)))
    assert len({len(line) for line in lines}) == 1
    assert [line[:6] for line in lines[1:]] == [
        ["2026-03-10T12:00:00+00:00", "orders", "", "", "1", "0"],
        ["2026-03-10T12:00:00+00:00", "orders", str(row.pk), "warehouse", "0", "3"],
        ["2026-03-10T13:00:00+00:00", "orders", str(row.pk), "warehouse", "0", "1"],
    ]
    assert lines[2][8:10] == ["0.7500", "0.0500"]
    assert lines[1][8:] == ["", "", "", "", ""]


# -- days ----------------------------------------------------------------------------------------
def days() -> dict[str, int]:
    rows = DayCounter.objects.filter(name="delivered").values_list("day", "value")
    return {str(day): value for day, value in rows}


@override_settings(TIME_ZONE=SHANGHAI)
def test_days_are_those_of_the_time_zone(row: BizReceive) -> None:
    midnight = sql.now().astimezone(ZoneInfo(SHANGHAI)).replace(hour=0, minute=0)
    count(row, (midnight - timedelta(minutes=1)).astimezone(UTC), delivered=1)
    count(row, midnight.astimezone(UTC), delivered=10)
    platform_counters.roll_up(everything=True)
    today, yesterday = midnight.date(), midnight.date() - timedelta(days=1)
    assert days() == {str(yesterday): 1, str(today): 10}
    points = statistics.series("day", midnight - timedelta(hours=2), sql.now())
    assert [(p.at.isoformat()[:19], p.delivered) for p in points] == [
        (f"{yesterday}T00:00:00", 1), (f"{today}T00:00:00", 10),
    ]  # fmt: skip


def test_a_roll_up_can_be_repeated_and_sees_what_came_since(row: BizReceive) -> None:
    now = sql.now()
    count(row, now, delivered=2, latency_le_100ms=2)
    for _ in range(3):
        platform_counters.roll_up(everything=True)
    assert list(days().values()) == [2]
    count(row, now, delivered=3)
    platform_counters.roll_up()
    assert list(days().values()) == [5]
    assert statistics.total("day", now, now + timedelta(seconds=1)).latency_p50 is not None


def test_a_standstill_is_made_up_for(row: BizReceive) -> None:
    now = sql.now()
    for back in range(6):
        count(row, now - timedelta(days=back), delivered=back + 1)
    platform_counters.roll_up(everything=True)
    assert sorted(days().values()) == [1, 2, 3, 4, 5, 6]


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
    assert keeper.turn_if_due() is True
    assert keeper.turn_if_due() is False, "not before the next minute"
    oldest = (now - timedelta(days=3)).date()
    assert MinuteCounter.objects.earliest("minute").minute.date() == oldest
    assert str(now.date() - timedelta(days=32)) in before
    assert str(now.date() - timedelta(days=32)) not in days()
    kept = days()
    platform_counters.roll_up(everything=True)
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
