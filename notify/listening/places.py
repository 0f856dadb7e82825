"""The place of a subscription's listener: one at a time has it.

It keeps two programs from getting the deliveries by turns. What is delivered depends on the leases
in the database alone: after a flush of Redis a second listener may come, and loses nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.errors import AlreadyListening

# Seconds that a place is kept after a request: for the next one to come.
GRACE_SECONDS = 10.0
_KEY = "notify:listener:"  # string by subscription, expiring: the name of the listener
# KEYS: the place. ARGV: listener, milliseconds, 1 to take over. Returns the milliseconds for which
# another one has it, or 0 when it is taken or kept.
_TAKE = """
redis.call('DEL', KEYS[1] .. ':none')  -- a full Redis lets a script go on that began by freeing
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and ARGV[3] ~= '1' then return redis.call('PTTL', KEYS[1]) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 0
"""


def take(subscription: int, listener: str, seconds: float, takes_over: bool = False) -> None:
    """Take the place, or keep it, for `seconds` and the grace. Raises AlreadyListening while
    another listener has it, unless this one takes over; RedisError."""
    milliseconds = int((seconds + GRACE_SECONDS) * 1000)
    script = work_redis().register_script(_TAKE)
    answer: Any = script(
        keys=[f"{_KEY}{subscription}"], args=[listener, milliseconds, int(takes_over)]
    )
    if answer:
        text = "Another listener gets its deliveries. Stop it, wait, or take over."
        raise AlreadyListening(text, answer / 1000)


def shorten(subscription: int) -> None:
    """Its listener has sent a result: the next request follows at once, or none."""
    with suppress(RedisError):  # then the place is free when the lease would have ended
        work_redis().pexpire(f"{_KEY}{subscription}", int(GRACE_SECONDS * 1000))
