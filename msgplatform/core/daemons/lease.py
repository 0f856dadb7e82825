"""A lease in Redis for one process at a time. The holder renews it. Methods raise RedisError."""

from collections.abc import Callable

from redis import Redis

# KEYS: lease. ARGV: me, milliseconds.
_HOLD = """
redis.call('DEL', KEYS[1] .. ':none')  -- a script that begins by a DEL may write to a full Redis
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class Lease:
    """`key` holds the name of the holder, for `seconds` after the lease was taken or renewed."""

    def __init__(self, redis: Callable[[], Redis], key: str, seconds: float) -> None:
        self._redis, self.key, self._seconds = redis, key, seconds

    def hold(self, me: str) -> bool:
        """Take or renew the lease; false while another process holds it."""
        script = self._redis().register_script(_HOLD)
        return bool(script(keys=[self.key], args=[me, int(self._seconds * 1000)]) == 1)

    def release(self, me: str) -> None:
        """Give the lease up at once, unless `me` has lost it already."""
        self._redis().register_script(_RELEASE)(keys=[self.key], args=[me])
