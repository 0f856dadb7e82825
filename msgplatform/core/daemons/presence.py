"""Reports of running processes about themselves, records that expire unless they are repeated; and
how long a unit has been away.

Methods raise RedisError when Redis is unavailable.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

import msgspec
from redis import Redis

from msgplatform.core.connections import clock

T = TypeVar("T")

# A record is "<reported at> <over at> <JSON>", both by Redis' clock. Redis < 7.4 has no TTL for a
# field: readers skip expired records, and each report removes some. KEYS: hash. ARGV: name,
# seconds, JSON, and so on.
_REPORT = """
local key, longest = KEYS[1], 0
redis.call('HDEL', key, '')  -- a script that begins by an HDEL may write to a full Redis
local time = redis.call('TIME')
local at = tonumber(time[1]) + tonumber(time[2]) / 1000000
for i = 1, #ARGV, 3 do
  local seconds = tonumber(ARGV[i + 1])
  longest = math.max(longest, seconds)
  local times = string.format('%.6f %.6f ', at, at + seconds)
  redis.call('HSET', key, ARGV[i], times .. ARGV[i + 2])
end
local some = redis.call('HRANDFIELD', key, #ARGV / 3 + 10, 'WITHVALUES')
for i = 1, #some, 2 do
  local since, over, record = string.match(some[i + 1], '^(%S+) (%S+) (.*)$')
  since, over = tonumber(since), tonumber(over)
  if not since or not over or over <= at then
    redis.call('HDEL', key, some[i])
  elseif since > at + 1 then  -- the clock went back: the record must not last for longer
    redis.call('HSET', key, some[i], string.format('%.6f %.6f ', at, at + over - since) .. record)
  end
end
longest = math.ceil(longest * 1000)
if redis.call('PTTL', key) < longest then redis.call('PEXPIRE', key, longest) end
"""


class Presence(Generic[T]):
    """A hash of records by name, which is read as a whole.

    The name is a process, or the unit that a process works for, such as a row by its id. A record
    lasts for `seconds` after its last report; `seconds` may be computed from the record.
    """

    def __init__(
        self,
        redis: Callable[[], Redis],
        key: str,
        record: type[T],
        seconds: float | Callable[[T], float],
    ) -> None:
        self._redis, self._key = redis, key
        self._decoder = msgspec.json.Decoder(record)
        self._seconds = seconds

    def report(self, records: Mapping[str, T] | Mapping[int, T]) -> None:
        """Add or repeat these records; records of other names stay as they are."""
        arguments: list[str | float | bytes] = []
        for name, record in records.items():
            seconds = self._seconds(record) if callable(self._seconds) else self._seconds
            arguments += [str(name), seconds, msgspec.json.encode(record)]
        if arguments:
            self._redis().register_script(_REPORT)(keys=[self._key], args=arguments)

    def withdraw(self, *names: str | int) -> None:
        """Remove these records at once; for a process that ends in order."""
        if names:
            self._redis().hdel(self._key, *map(str, names))

    def read(self) -> dict[str, T]:
        """The records that have not expired, by name."""
        return {name: record for name, (record, _) in self.read_with_age().items()}

    def read_by_id(self) -> dict[int, T]:
        """Like `read`, of records whose names are ids of rows."""
        return {int(name): record for name, record in self.read().items()}

    def read_with_age(self) -> dict[str, tuple[T, float]]:
        """Like `read`, with the seconds since each record's report."""
        with self._redis().pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hgetall(self._key)
            (seconds, micros), rows = pipe.execute()
        now = seconds + micros / 1e6
        records = {}
        for name, row in rows.items():
            try:
                at, expires_at, record = row.split(b" ", 2)
                if float(expires_at) > now:
                    age = max(0.0, now - float(at))
                    records[name.decode()] = self._decoder.decode(record), age
            except (ValueError, msgspec.MsgspecError):
                continue  # of another release: both run during an upgrade
        return records


class Absences:
    """The times since which units, such as rows by their ids, have been away, as far as processes
    looked.

    Redis keeps the times, so that an absence does not begin anew for the next process that looks.
    Without a look for a minute, as while the platform is stopped, nothing is known.
    """

    def __init__(self, redis: Callable[[], Redis], key: str) -> None:
        self._redis, self._times = redis, Presence(redis, key, float, 60.0)

    def note(self, ids: Collection[int]) -> dict[int, float]:
        """Store that exactly these units are away; returns for how many seconds, by id."""
        now, stored_times = clock(self._redis()), self._times.read_by_id()
        times = {id: stored_times.get(id, now) for id in ids}
        self._times.withdraw(*(stored_times.keys() - times.keys()))
        self._times.report(times)
        return {id: max(0.0, now - at) for id, at in times.items()}
