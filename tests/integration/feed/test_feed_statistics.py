"""What dispatchers did over time: series, sums and the file."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.jobs.counters import roll_up
from msgplatform.models import Biz, MinuteCounter
from notify.feed.monitor import counters, statistics

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def count(biz: int, topic: str, at: datetime, **values: int) -> None:
    counters.add(Counter({counters.key(biz, what, topic): n for what, n in values.items()}), at)


class TestSums:
    def test_a_point_for_every_step(self, biz: Biz) -> None:
        count(biz.pk, "friend", NOON, handled=4, entries=100, merged=1)
        count(biz.pk, "vip", NOON + timedelta(minutes=90), handled=1, entries=7, set_aside=2)
        count(99, "vip", NOON, handled=3)
        first, second, third = statistics.series("hour", NOON, NOON + 3 * HOUR)
        assert (first.at, first.handled, first.entries, first.merged) == (NOON, 7, 100, 1)
        assert (second.handled, second.set_aside, second.entries_each) == (1, 2, 7)
        assert (third.handled, third.entries_each) == (0, None)
        minutes = statistics.series("minute", NOON, NOON + timedelta(minutes=2))
        assert [point.handled for point in minutes] == [7, 0]

    def test_of_a_system_and_of_topics(self, biz: Biz) -> None:
        count(biz.pk, "friend", NOON, handled=4)
        count(99, "vip", NOON, handled=3)
        (point,) = statistics.series("hour", NOON, NOON + HOUR, biz=biz.pk)
        assert point.handled == 4
        (point,) = statistics.series("hour", NOON, NOON + HOUR, topics=["vip", "upkeep"])
        assert point.handled == 3

    def test_by_topic(self, biz: Biz) -> None:
        count(biz.pk, "friend", NOON, handled=4, set_aside=1)
        count(99, "friend", NOON + HOUR, handled=3)
        count(99, "upkeep", NOON, handled=2)
        found = statistics.by_topic("hour", NOON, NOON + 2 * HOUR)
        assert {topic: point.handled for topic, point in found.items()} == {
            "friend": 7, "vip": 0, "upkeep": 2,
        }  # fmt: skip
        assert found["friend"].set_aside == 1
        whole = statistics.together(NOON, found.values())
        assert (whole.handled, whole.set_aside) == (9, 1)
        assert statistics.by_topic("hour", NOON, NOON + HOUR, biz=99)["friend"].handled == 0

    def test_days(self, biz: Biz) -> None:
        now = sql.now()
        count(biz.pk, "vip", now, handled=4)
        assert statistics.by_topic("day", now - HOUR, now + HOUR)["vip"].handled == 0
        roll_up()
        assert statistics.by_topic("day", now - HOUR, now + HOUR)["vip"].handled == 4

    def test_what_is_not_counted_here(self, biz: Biz) -> None:
        MinuteCounter.add("notify", {(biz.pk, 0, "handled_vip"): 7}, NOON)
        MinuteCounter.add("feed", {(biz.pk, 0, "of_a_later_version"): 7}, NOON)
        (point,) = statistics.series("hour", NOON, NOON + HOUR)
        assert point.counts == {}

    def test_too_long_for_its_step(self) -> None:
        with pytest.raises(InvalidInput) as caught:
            statistics.series("minute", NOON, NOON + timedelta(days=9))
        assert caught.value.field == "since"

    def test_as_many_queries_for_many_steps(self, biz: Biz) -> None:
        for minute in range(60):
            count(biz.pk, "friend", NOON + timedelta(minutes=minute), handled=1)
        with CaptureQueriesContext(connection) as queries:
            assert len(statistics.series("minute", NOON, NOON + HOUR)) == 60
        assert len(queries) == 1


class TestFile:
    def test_a_line_for_each_system_and_topic(self, biz: Biz) -> None:
        count(biz.pk, "friend", NOON, handled=4, entries=100)
        count(biz.pk, "vip", NOON, set_aside=1)
        count(99999, "friend", NOON + HOUR, merged=3, handled=3)
        header, *lines = statistics.csv_rows("hour", NOON, NOON + 3 * HOUR)
        assert header[:3] == ["time", "system", "topic"]
        assert len({len(line) for line in [header, *lines]}) == 1
        assert lines == [
            ["2026-11-20T12:00:00+00:00", "orders", "friend", "4", "100", "0", "0"],
            ["2026-11-20T12:00:00+00:00", "orders", "vip", "0", "0", "0", "1"],
            ["2026-11-20T13:00:00+00:00", "99999", "friend", "3", "0", "3", "0"],
        ]
        (_header,) = statistics.csv_rows("hour", NOON, NOON + HOUR, biz=10**9)
        _header, line = statistics.csv_rows("hour", NOON, NOON + HOUR, topics=["vip"])
        assert line[2] == "vip"
