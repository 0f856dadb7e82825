"""Limits that processes keep together, on a real Redis; also on one that is full."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from msgplatform.core.connections import clock, work_redis as connect
from msgplatform.core.rates.shared import BURST_SECONDS, Quota, SharedRateLimit

KEY = "test:limit"


@pytest.fixture
def full(work_redis: redis.Redis) -> Iterator[redis.Redis]:
    work_redis.config_set("maxmemory", 1)
    yield work_redis
    work_redis.config_set("maxmemory", 0)


class TestRate:
    def limit(self) -> SharedRateLimit:
        return SharedRateLimit(connect, KEY)

    def test_it_is_shared(self, work_redis: redis.Redis) -> None:
        assert self.limit().take(0.001, 1000)[0] == 1
        more, wait = self.limit().take(0.001, 1000)
        assert (more, 900 < wait <= 1000) == (0, True)

    def test_a_burst_is_what_is_due_in_a_tenth_of_a_second(self, work_redis: redis.Redis) -> None:
        assert self.limit().take(100.0, 1000)[0] == 100 * BURST_SECONDS

    def test_no_more_than_the_rate_for_all_together(self, work_redis: redis.Redis) -> None:
        """Four that take what they can get, between two looks at Redis' clock."""
        rate, begun = 200.0, clock(work_redis)

        def taken(_: int) -> int:
            limit, count, end = self.limit(), 0, time.monotonic() + 1.0
            while time.monotonic() < end:
                allowed, wait = limit.take(rate, 7)
                count += allowed
                time.sleep(wait)
            return count

        with ThreadPoolExecutor(4) as pool:
            total = sum(pool.map(taken, range(4)))
        most = rate * (clock(work_redis) - begun + BURST_SECONDS)
        assert 0 < total <= most + 1

    def test_a_patient_caller_gets_the_whole_rate(self, work_redis: redis.Redis) -> None:
        limit, waited = self.limit(), 0.0
        for _ in range(20):
            allowed, wait = limit.take(50.0, 1)
            while not allowed:
                waited += wait
                time.sleep(wait)
                allowed, wait = limit.take(50.0, 1)
        assert waited <= 20 / 50.0

    def test_no_limit_asks_nobody(self, work_redis: redis.Redis) -> None:
        assert self.limit().take(0, 1000) == (1000, 0.0)
        assert self.limit().take(5.0, 0) == (0, 0.0)
        assert not work_redis.exists(KEY)

    def test_a_clock_that_went_back_stops_nobody(self, work_redis: redis.Redis) -> None:
        work_redis.set(KEY, clock(work_redis) + 3600)
        allowed, wait = self.limit().take(100.0, 50)
        assert (allowed, wait < 1) == (10, True)

    def test_it_goes_away(self, work_redis: redis.Redis) -> None:
        self.limit().take(0.001, 1)
        assert 0 < work_redis.pttl(KEY) <= 1_001_000

    def test_a_full_redis_lets_go(self, full: redis.Redis) -> None:
        assert self.limit().take(10.0, 1)[0] == 1


class TestQuota:
    def test_all_or_none(self, work_redis: redis.Redis) -> None:
        quota = Quota(connect)
        assert quota.spend(KEY, 5, 600, 3).wait == 0
        wait = quota.spend(KEY, 5, 600, 3).wait
        assert 0 < wait <= 600
        assert Quota(connect).spend(KEY, 5, 600, 2).wait == 0, "what was refused was not counted"
        assert quota.spend(KEY, 5, 600).wait > 0
        assert work_redis.get(KEY) == b"5"

    def test_looking_counts_nothing(self, work_redis: redis.Redis) -> None:
        quota = Quota(connect)
        assert [quota.spend(KEY, 1, 600, 0).wait for _ in range(3)] == [0, 0, 0]
        assert not work_redis.exists(KEY)
        quota.spend(KEY, 1, 600)
        assert 0 < quota.spend(KEY, 1, 600, 0).wait <= 600

    def test_the_window_begins_with_the_first(self, work_redis: redis.Redis) -> None:
        quota = Quota(connect)
        quota.spend(KEY, 5, 3600)
        work_redis.pexpire(KEY, 600_000)
        quota.spend(KEY, 5, 3600)
        assert work_redis.pttl(KEY) <= 600_000, "the second does not prolong it"
        work_redis.pexpire(KEY, 1)
        deadline = time.monotonic() + 60
        while work_redis.exists(KEY):
            assert time.monotonic() < deadline
        assert quota.spend(KEY, 5, 600, 5).wait == 0

    @pytest.mark.parametrize("count", [0, 1])
    def test_a_clock_that_went_back_makes_no_window_longer(
        self, work_redis: redis.Redis, count: int
    ) -> None:
        quota = Quota(connect)
        quota.spend(KEY, 5, 60, 5)
        work_redis.pexpire(KEY, 3_660_000)
        assert 0 < quota.spend(KEY, 5, 60, count).wait <= 60
        assert work_redis.pttl(KEY) <= 60_000

    def test_many_at_once_get_no_more(self, work_redis: redis.Redis) -> None:
        def spend(_: int) -> bool:
            return Quota(connect).spend(KEY, 10, 600, 3).wait == 0

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(spend, range(40))) == 3
        assert work_redis.get(KEY) == b"9"

    def test_a_full_redis_counts_nothing_more(self, full: redis.Redis) -> None:
        with pytest.raises(redis.exceptions.RedisError):
            Quota(connect).spend(KEY, 5, 600)
