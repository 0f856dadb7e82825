"""Rates: per key, per address for wrong keys, and no obstacle when Redis is away."""

import time
from typing import Any

import pytest
import redis
from django.test import override_settings
from pytest_django import DjangoAssertNumQueries

from msgplatform.core.web import long_polls
from msgplatform.doors.api.access import keys, throttling
from msgplatform.doors.api.access.key_cache import ApiCaller
from msgplatform.doors.api.access.throttling import client_address
from tests.support import api_support
from tests.support.api_support import Api, problem

api = pytest.fixture(api_support.api)
ECHO = "/api/v1/test/echo"


@pytest.fixture
def rates(settings: Any) -> Any:
    """Sets the rates of the scopes that are named, and no other."""

    def set_rates(num_proxies: int = 0, **scopes: str) -> None:
        settings.REST_FRAMEWORK = {
            **settings.REST_FRAMEWORK,
            "DEFAULT_THROTTLE_RATES": scopes,
            "NUM_PROXIES": num_proxies,
        }

    return set_rates


def expire(work_redis: redis.Redis) -> None:
    """The windows are over."""
    for name in work_redis.scan_iter("throttle:*"):
        assert 0 < work_redis.pttl(name) <= 60_000
        work_redis.delete(name)


class TestPerKey:
    def test_the_limit_and_the_wait(self, api: Api, rates: Any, work_redis: redis.Redis) -> None:
        rates(write="3/min")
        _, plain = api.key()
        assert [api.post(ECHO, b"{}", plain).status_code for _ in range(3)] == [200] * 3
        response = api.post(ECHO, b"{}", plain)
        body = problem(response, 429, "throttled")
        assert 1 <= int(response["Retry-After"]) <= 60
        assert response["Retry-After"] in body["detail"]
        expire(work_redis)
        assert api.post(ECHO, b"{}", plain).status_code == 200

    def test_the_window_really_ends(self, api: Api, rates: Any) -> None:
        rates(write="2/s")
        _, plain = api.key()
        statuses = [api.post(ECHO, b"{}", plain).status_code for _ in range(4)]
        assert statuses[:2] == [200, 200]
        response = api.post(ECHO, b"{}", plain)
        if response.status_code == 429:  # else a slow machine is in the next window already
            time.sleep(int(response["Retry-After"]))  # what a caller is told to do
            response = api.post(ECHO, b"{}", plain)
        assert response.status_code == 200

    def test_every_answer_says_how_far_the_limit_is(self, api: Api, rates: Any) -> None:
        rates(read="3/min", write="200/min")
        _, plain = api.key()
        answers = [api.get(ECHO, plain) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert [answer["RateLimit-Remaining"] for answer in answers] == ["2", "1", "0", "0"]
        assert {answer["RateLimit-Limit"] for answer in answers} == {"3"}
        assert all(0 < int(answer["RateLimit-Reset"]) <= 60 for answer in answers)
        assert answers[-1]["RateLimit-Reset"] == answers[-1]["Retry-After"]
        assert api.post(ECHO, b"{}", plain)["RateLimit-Remaining"] == "199"
        rates(read="off")
        assert not api.get(ECHO, plain).has_header("RateLimit-Limit")

    def test_a_long_poll_is_counted_when_it_comes(self, api: Api, rates: Any) -> None:
        rates(write="2/hour")
        _, plain = api.key()
        waited = {long_polls.HAS_WAITED: True}
        answers = [api.post(ECHO, b"{}", plain, **more) for more in ({}, waited, {}, waited, {})]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 429]
        assert [answer["RateLimit-Remaining"] for answer in answers] == ["1", "1", "0", "0", "0"]
        by_header = api.post(ECHO, b"{}", plain, headers={long_polls.HAS_WAITED: "1"})
        assert by_header.status_code == 429

    def test_refused_requests_do_not_prolong_it(
        self, api: Api, rates: Any, work_redis: redis.Redis
    ) -> None:
        rates(write="1/hour")
        _, plain = api.key()
        api.post(ECHO, b"{}", plain)
        (name,) = work_redis.keys("throttle:*")
        work_redis.pexpire(name, 1_000_000)
        problem(api.post(ECHO, b"{}", plain), 429, "throttled")
        assert work_redis.pttl(name) <= 1_000_000

    def test_each_key_has_its_own(self, api: Api, rates: Any) -> None:
        rates(write="1/min")
        biz = api.biz()
        first, second = api.key(biz=biz)[1], api.key(biz=biz)[1]
        assert api.post(ECHO, b"{}", first).status_code == 200
        assert api.post(ECHO, b"{}", first).status_code == 429
        assert api.post(ECHO, b"{}", second).status_code == 200

    def test_reading_and_writing_are_counted_apart(self, api: Api, rates: Any) -> None:
        rates(read="2/min", write="1/min")
        _, plain = api.key()
        assert api.post(ECHO, b"{}", plain).status_code == 200
        assert [api.get(ECHO, plain).status_code for _ in range(3)] == [200, 200, 429]

    @pytest.mark.parametrize("rate", ["off", "", None])
    def test_no_limit_asks_nobody(
        self, api: Api, rates: Any, work_redis: redis.Redis, rate: str | None
    ) -> None:
        rates(write=rate)
        _, plain = api.key()
        assert api.post(ECHO, b"{}", plain).status_code == 200
        assert work_redis.keys("*") == []

    def test_one_round_trip_a_request(self, api: Api, rates: Any, work_redis: redis.Redis) -> None:
        rates(write="100/min")
        _, plain = api.key()
        api.post(ECHO, b"{}", plain)
        work_redis.config_resetstat()
        for _ in range(10):
            api.post(ECHO, b"{}", plain)
        calls = {name: row["calls"] for name, row in work_redis.info("commandstats").items()}
        assert calls["cmdstat_evalsha"] == 10
        assert calls["cmdstat_incrby"] == 10
        assert set(calls) <= {"cmdstat_evalsha", "cmdstat_incrby", "cmdstat_pttl", "cmdstat_info",
                              "cmdstat_config|resetstat"}  # fmt: skip


class TestPerAddress:
    def test_callers_without_key(self, api: Api, rates: Any) -> None:
        rates(read="1/min")
        public = "/api/v1/test/public"
        statuses = [
            api.get(public, REMOTE_ADDR=a).status_code for a in ("10.0.0.1", "10.0.0.2", "10.0.0.1")
        ]
        assert statuses == [200, 200, 429]

    def test_guessing_ends(self, api: Api, rates: Any) -> None:
        rates(failed="3/min")
        statuses = [api.get(ECHO, f"guess-{n}").status_code for n in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        response = api.get(ECHO, "guess")
        assert 1 <= int(response["Retry-After"]) <= 60
        assert api.get(ECHO, "guess", REMOTE_ADDR="10.9.9.9").status_code == 401

    def test_a_guesser_costs_no_query(
        self, api: Api, rates: Any, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        rates(failed="3/min")
        for n in range(3):
            api.get(ECHO, f"guess-{n}")
        with django_assert_num_queries(0):
            assert api.get(ECHO, "mp_" + "a" * 12 + "_" + "b" * 43).status_code == 429

    def test_who_was_in_stays_in(self, api: Api, rates: Any) -> None:
        """Behind one address may be many: a guesser among them must not lock the others out."""
        rates(failed="1/min")
        _, known = api.key()
        _, never_seen = api.key()
        assert api.get(ECHO, known).status_code == 200
        for n in range(3):
            api.get(ECHO, f"guess-{n}")
        assert api.get(ECHO, known).status_code == 200
        assert api.get(ECHO, never_seen).status_code == 429
        assert api.get(ECHO, never_seen, REMOTE_ADDR="10.9.9.9").status_code == 200

    def test_behind_a_forgotten_proxy_a_guesser_locks_out_nobody(
        self, api: Api, rates: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rates(failed="2/min")
        monkeypatch.setattr(throttling, "_CALLERS_OF_A_PROXY", 3)
        _, never_seen = api.key()
        statuses = [
            api.get(ECHO, f"guess-{n}", HTTP_X_FORWARDED_FOR=f"x, 203.0.113.9{port}").status_code
            for n, port in enumerate(("", ":51234", ":51235"))
        ]
        assert statuses == [401, 401, 429]
        assert api.get(ECHO, never_seen, HTTP_X_FORWARDED_FOR="203.0.113.1").status_code == 200
        # Who reports another address each time is not let in more often than that.
        liar = [
            api.get(ECHO, f"guess-{n}", HTTP_X_FORWARDED_FOR=f"203.0.113.{n}").status_code
            for n in range(20, 26)
        ]
        assert liar == [401, 401, 401, 401, 429, 429]


@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"),
    [
        (0, "6.6.6.6", "10.0.0.1"),
        (1, "6.6.6.6, 7.7.7.7", "7.7.7.7"),
        (2, "5.5.5.5, 6.6.6.6, 7.7.7.7", "6.6.6.6"),
        (3, "7.7.7.7", "7.7.7.7"),
        (1, "203.0.113.7:51234", "203.0.113.7"),
        (1, "6.6.6.6, [2001:db8::1]:51234", "2001:db8::1"),
        (1, "2001:db8::1", "2001:db8::1"),
        (1, ", 7.7.7.7", "7.7.7.7"),
        (1, "", "10.0.0.1"),
        (1, None, "10.0.0.1"),
    ],
)
def test_client_address(
    rf: Any, rates: Any, proxies: int, forwarded: str | None, expected: str
) -> None:
    rates(num_proxies=proxies)
    extra = {} if forwarded is None else {"HTTP_X_FORWARDED_FOR": forwarded}
    assert client_address(rf.get("/", REMOTE_ADDR="10.0.0.1", **extra)) == expected


class TestWithoutRedis:
    there: str

    @pytest.fixture(autouse=True)
    def away(self, api: Api, rates: Any, settings: Any) -> Any:
        rates(read="1/min", write="1/min", failed="1/min")
        self.there = settings.REDIS_URL
        with override_settings(REDIS_URL="unix:///no/such/redis.sock"):
            yield

    def test_every_request_passes(self, api: Api) -> None:
        _, plain = api.key()
        assert [api.get(ECHO, plain).status_code for _ in range(4)] == [200] * 4
        keys.forget()
        assert api.get(ECHO, plain).status_code == 200
        assert [api.get(ECHO, "guess").status_code for _ in range(4)] == [401] * 4

    def test_it_is_not_asked_every_time(
        self, api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(throttling, "PAUSE_SECONDS", 3600.0)
        _, plain = api.key()
        for _ in range(5):
            api.get(ECHO, plain)
        assert [record.msg["event"] for record in caplog.records] == ["throttle_off"]

    def test_it_counts_again_when_redis_is_back(self, api: Api) -> None:
        _, plain = api.key()
        api.get(ECHO, plain)
        with override_settings(REDIS_URL=self.there):
            throttling._paused_until = 0.0
            assert [api.get(ECHO, plain).status_code for _ in range(2)] == [200, 429]


class TestReserve:
    """Writes that the fast intake may let in without asking Redis."""

    def caller(self, api: Api) -> tuple[ApiCaller, str]:
        plain = api.key()[1]
        caller = keys.verify(plain)
        assert caller is not None
        throttling._reserves.clear()
        return caller, plain

    def let_in(self, caller: ApiCaller) -> int:
        count = 0
        while throttling.is_allowed_without_redis(caller):
            count += 1
            assert count < 1000
        return count

    def test_a_hundredth_of_the_limit(self, api: Api, rates: Any, work_redis: redis.Redis) -> None:
        rates(write="500/min")
        caller, plain = self.caller(api)
        assert api.post(ECHO, b"{}", plain).status_code == 200
        assert self.let_in(caller) == 0, "the fast intake has not asked yet"
        assert api.post(ECHO, b"{}", plain).status_code == 200
        assert self.let_in(caller) == 5
        (name,) = work_redis.keys("throttle:*")
        assert work_redis.get(name) == b"7"
        assert api.post(ECHO, b"{}", plain).status_code == 200
        assert self.let_in(caller) == 5

    def test_the_fast_intake_says_how_far_the_limit_is(self, api: Api, rates: Any) -> None:
        rates(write="500/min")
        caller, plain = self.caller(api)
        self.let_in(caller)
        assert throttling.headers_without_redis(caller) == {}
        assert api.post(ECHO, b"{}", plain)["RateLimit-Remaining"] == "499"
        headers = []
        for _ in range(2):
            assert throttling.is_allowed_without_redis(caller)
            headers.append(throttling.headers_without_redis(caller))
        assert [one["RateLimit-Remaining"] for one in headers] == ["498", "497"]
        assert headers[0]["RateLimit-Limit"] == "500"
        assert 0 < int(headers[0]["RateLimit-Reset"]) <= 60

    def test_near_the_limit_redis_is_asked(
        self, api: Api, rates: Any, work_redis: redis.Redis
    ) -> None:
        rates(write="500/min")
        caller, plain = self.caller(api)
        self.let_in(caller)
        assert api.post(ECHO, b"{}", plain).status_code == 200
        (name,) = work_redis.keys("throttle:*")
        work_redis.incrby(name, 490)
        assert self.let_in(caller) == 5
        assert api.post(ECHO, b"{}", plain).status_code == 200
        assert self.let_in(caller) == 0
        assert [api.post(ECHO, b"{}", plain).status_code for _ in range(4)] == [200, 200, 200, 429]

    def test_a_small_limit_is_never_counted_ahead(self, api: Api, rates: Any) -> None:
        rates(write="99/min")
        caller, plain = self.caller(api)
        self.let_in(caller)
        assert api.post(ECHO, b"{}", plain).status_code == 200
        assert self.let_in(caller) == 0

    def test_it_ends_with_a_window(
        self, api: Api, rates: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rates(write="500/min")
        caller, plain = self.caller(api)
        self.let_in(caller)
        assert api.post(ECHO, b"{}", plain).status_code == 200
        assert throttling.is_allowed_without_redis(caller)
        later = time.monotonic() + 61
        monkeypatch.setattr(time, "monotonic", lambda: later)
        assert self.let_in(caller) == 0
        assert api.post(ECHO, b"{}", plain).status_code == 200
        assert self.let_in(caller) == 5

    def test_without_a_limit_nobody_asks(self, api: Api, rates: Any) -> None:
        rates()
        caller, _ = self.caller(api)
        assert throttling.is_allowed_without_redis(caller)
