"""Records that vanish when they are not repeated, on a real Redis."""

import time
from collections.abc import Callable

import msgspec
import pytest
import redis

from msgplatform.core.connections import work_redis as connect
from msgplatform.core.daemons.presence import Presence

KEY = "test:presence"


class Load(msgspec.Struct, frozen=True):
    waiting: int
    for_long: bool = False


def lasts(load: Load) -> float:
    return 600.0 if load.for_long else 0.3


@pytest.fixture
def loads(work_redis: redis.Redis) -> Presence[Load]:
    return Presence(connect, KEY, Load, 600.0)


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_all_are_read_at_once(loads: Presence[Load]) -> None:
    assert loads.read() == {}
    loads.report({"a": Load(1), "b": Load(2)})
    loads.report({"b": Load(3)})
    other = Presence(connect, KEY, Load, 600.0)
    other.report({"c": Load(4)})
    assert loads.read() == {"a": Load(1), "b": Load(3), "c": Load(4)}


def test_nothing_to_report_is_no_record(loads: Presence[Load], work_redis: redis.Redis) -> None:
    loads.report({})
    assert not work_redis.exists(KEY)


def test_who_withdraws_is_gone(loads: Presence[Load], work_redis: redis.Redis) -> None:
    loads.report({"a": Load(1), "b": Load(2)})
    loads.withdraw("a", "never there")
    loads.withdraw()
    assert loads.read() == {"b": Load(2)}
    loads.withdraw("b")
    assert not work_redis.exists(KEY)


def test_what_is_not_repeated_vanishes_alone(work_redis: redis.Redis) -> None:
    loads = Presence(connect, KEY, Load, lasts)
    loads.report({"short": Load(1), "long": Load(2, for_long=True)})
    until(lambda: set(loads.read()) == {"long"})
    # A short record does not shorten the life of a long one beside it.
    loads.report({"short": Load(3)})
    assert work_redis.pttl(KEY) > 500_000
    until(lambda: set(loads.read()) == {"long"})


def test_the_hash_goes_with_its_last_record(work_redis: redis.Redis) -> None:
    Presence(connect, KEY, Load, lasts).report({"a": Load(1)})
    until(lambda: not work_redis.exists(KEY))


def test_records_that_are_over_do_not_pile_up(
    loads: Presence[Load], work_redis: redis.Redis
) -> None:
    brief = Presence(connect, KEY, Load, lasts)
    brief.report({f"brief {number}": Load(0) for number in range(500)})
    loads.report({"long": Load(1)})
    until(lambda: set(loads.read()) == {"long"})

    def tidied() -> bool:
        loads.report({"long": Load(1)})
        return work_redis.hkeys(KEY) == [b"long"]

    until(tidied)


def test_the_age_is_by_the_clock_of_redis(loads: Presence[Load]) -> None:
    loads.report({"a": Load(1)})
    until(lambda: loads.read_with_age()["a"][1] > 0.1)
    loads.report({"a": Load(2)})
    before = time.monotonic()
    load, age = loads.read_with_age()["a"]
    assert load == Load(2)
    assert 0 <= age <= time.monotonic() - before + 60


def test_who_died_before_the_clock_went_back_vanishes(
    loads: Presence[Load], work_redis: redis.Redis
) -> None:
    at = time.time() + 3600
    work_redis.hset(KEY, "dead", f'{at:.6f} {at + 0.3:.6f} {{"waiting": 1}}')

    def vanished() -> bool:
        loads.report({"alive": Load(2)})
        return loads.read() == {"alive": Load(2)}

    until(vanished)


def test_records_of_another_version_are_passed_over(
    loads: Presence[Load], work_redis: redis.Redis
) -> None:
    loads.report({"good": Load(1)})
    at = f"{time.time():.6f} {time.time() + 600:.6f}"
    work_redis.hset(KEY, "no number", f'{at} {{"waiting": "many"}}')
    work_redis.hset(KEY, "plain", '{"waiting": 1}')
    assert loads.read() == {"good": Load(1)}
    loads.report({"good": Load(2)})
    assert set(work_redis.hkeys(KEY)) == {b"good", b"no number"}, "what has no time is removed"


def test_a_full_redis_takes_reports(loads: Presence[Load], work_redis: redis.Redis) -> None:
    try:
        work_redis.config_set("maxmemory", 1)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            work_redis.set("test:other", 1)
        loads.report({"a": Load(1)})
        assert loads.read() == {"a": Load(1)}
    finally:
        work_redis.config_set("maxmemory", 0)
