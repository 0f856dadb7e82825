"""Limits that all processes share, counted in Redis. Methods raise RedisError.

`rate_limit.py` spreads the calls of one loop without any I/O; here each decision is one script.
"""

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec
from redis import Redis
from redis.commands.core import Script

# The algorithm of `rate_limit.py`, by Redis' clock. Bursts are longer, as each costs a round trip.
BURST_SECONDS = 0.1

_SECONDS = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
_RATE = re.compile(rf"([1-9][0-9]{{0,8}})/({'|'.join(_SECONDS)})")
RATE_HINT = "Write it as 100/s, 600/min, 5000/hour or 20000/day, or off for no limit."

# KEYS: when the next call is due. ARGV: rate, wanted, burst in seconds.
_TAKE = """
redis.call('DEL', KEYS[1] .. ':none')  -- a script that begins by a DEL may write to a full Redis
local rate, wanted = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local at = tonumber(time[1]) + tonumber(time[2]) / 1000000
local due = tonumber(redis.call('GET', KEYS[1]) or 0)
local burst = math.max(1, math.floor(rate * ARGV[3]))
-- Further ahead than the limit ever gets: the clock went back, or the limit was raised.
if due > at + burst / rate + 1 then due = 0 end
local base = math.max(due, at)
local allowed = math.max(0, math.min(wanted, math.floor(burst - (base - at) * rate + 1e-6)))
if allowed > 0 then
  due = base + allowed / rate
  redis.call('SET', KEYS[1], string.format('%.6f', due), 'PX', math.ceil((due - at) * 1000) + 1000)
end
local wait = math.max(0, (due - at) - (burst - 1) / rate)
return {allowed, math.ceil(wait * 1000)}
"""

# KEYS: counter. ARGV: limit, window in ms, count (0: only look). Returns 1 if allowed, the
# remaining units, and the milliseconds until the window ends.
_SPEND = """
local limit, add = tonumber(ARGV[1]), tonumber(ARGV[3])
local spent, allowed
if add == 0 then
  spent = tonumber(redis.call('GET', KEYS[1]) or '0')
  allowed = spent < limit
else
  spent = redis.call('INCRBY', KEYS[1], add)
  if spent == add then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  allowed = spent <= limit
  if not allowed then spent = redis.call('DECRBY', KEYS[1], add) end
end
local ends = math.max(redis.call('PTTL', KEYS[1]), 1)
-- Later than any window ends: the clock went back, or the window was shortened.
if ends > tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  ends = tonumber(ARGV[2])
end
return {allowed and 1 or 0, math.max(limit - spent, 0), ends}
"""


class Rate(NamedTuple):
    """At most `limit` requests in a window of `seconds`."""

    limit: int
    seconds: int


@lru_cache(maxsize=64)
def parse_rate(text: str | None) -> Rate | None:
    """The rate of a setting in the form `600/min`; None for "no limit" (None, empty, `off`). Raises
    ValueError if it is not a rate."""
    if not text or text.lower() == "off":
        return None
    match = _RATE.fullmatch(text.lower())
    if match is None:
        raise ValueError(f"{text!r} is not a rate")
    return Rate(int(match[1]), _SECONDS[match[2]])


class Usage(msgspec.Struct, frozen=True):
    """The state of a quota: `remaining` units for `reset` seconds, until the window ends."""

    is_allowed: bool
    remaining: int
    reset: float

    @property
    def wait(self) -> float:
        """Seconds until another unit may pass; 0: now."""
        return 0.0 if self.is_allowed else self.reset


class SharedRateLimit:
    """Spread the calls of all processes evenly: at most `rate` a second (0: no limit), and at most
    a burst of BURST_SECONDS at the same moment. `key` is the key in Redis."""

    def __init__(self, redis: Callable[[], Redis], key: str) -> None:
        self._redis, self._key = redis, key

    def take(self, rate: float, count: int) -> tuple[int, float]:
        """The number of calls, `count` at most, that may start now; and the seconds until more
        may."""
        if not rate or count <= 0:
            return max(0, count), 0.0
        arguments = [rate, count, BURST_SECONDS]
        allowed_count, wait = self._script(keys=[self._key], args=arguments, client=self._redis())
        return int(allowed_count), int(wait) / 1000

    @cached_property
    def _script(self) -> Script:
        return self._redis().register_script(_TAKE)


class Quota:
    """Limits the units in a window of time, which begins with the first unit."""

    def __init__(self, redis: Callable[[], Redis]) -> None:
        self._redis = redis

    def spend(self, key: str, limit: int, seconds: float, count: int = 1) -> Usage:
        """Count `count` units; none if they exceed `limit`. With `count` 0 only check whether
        another unit would be allowed."""
        arguments = [limit, int(seconds * 1000), count]
        answer: Any = self._script(keys=[key], args=arguments, client=self._redis())
        is_allowed, remaining, milliseconds = answer
        return Usage(bool(is_allowed), int(remaining), float(milliseconds) / 1000)

    @cached_property
    def _script(self) -> Script:
        return self._redis().register_script(_SPEND)
