"""The scheduler's lease and its last decision, and which connections are the dispatchers' own.

Reports, not truths: after a flush of the work Redis the next second fills them again. Dispatchers
follow the decision, console and metrics show it. All raise RedisError.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from redis.commands.core import Script

from msgplatform.core.connections import work_redis
from msgplatform.core.daemons.lease import Lease
from msgplatform.core.daemons.presence import Presence

LEASE_SECONDS = 3.0
# A decision that is older says nothing about the load any more.
STALE_SECONDS = 15.0

_DECISION = "feed:pace"  # string, expiring: JSON of the last decision

# KEYS: lease, decision. ARGV: me, JSON, milliseconds. Who lost the lease changes nothing.
_PUBLISH = """
redis.call('DEL', KEYS[2] .. ':none')  -- a full Redis lets a script go on that began by freeing
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1
"""


class Decision(msgspec.Struct, frozen=True):
    """What the scheduler `by` decided, and what it had measured.

    `share` (0 to 1), `events`, `load`, `cause`, `statements` and `cpu` are those of `FeedPace`;
    `latency` and `baseline` are milliseconds. `oldest` is the age in seconds of the oldest event
    that waits, by topic; a topic without one is left out. `least` and `most` are the bounds of the
    share at this moment; `at` is unix seconds. Of the dispatchers only those `at_work` do anything,
    `each` of them with this share.
    """

    by: str
    at: float
    share: float
    events: int
    load: float = 0.0
    cause: str = ""
    latency: float = 0.0
    baseline: float = 0.0
    statements: float = 0.0
    cpu: float = 0.0
    least: float = 0.0
    most: float = 1.0
    oldest: dict[str, float] = {}
    at_work: tuple[str, ...] = ()
    each: float = 1.0


class Working(msgspec.Struct, frozen=True):
    """A dispatcher's connection, by the database server's number; 0 when it has none. One that
    works on some topics only takes no turns with others: nobody would work on its topics.
    `has_work`: it handled events lately."""

    connection: int
    takes_turns: bool = True
    has_work: bool = True


# Which dispatcher decides.
lease = Lease(work_redis, "feed:scheduler", LEASE_SECONDS)
dispatchers = Presence(work_redis, "feed:dispatchers", Working, STALE_SECONDS)


def read() -> Decision | None:
    """The last decision; None when no dispatcher has decided lately."""
    text: Any = work_redis().get(_DECISION)
    try:
        return msgspec.json.decode(text, type=Decision) if text else None
    except msgspec.MsgspecError:
        return None  # of another version: during an upgrade both run


def publish(decision: Decision) -> bool:
    """Let everybody know; false, and nothing changes, when `by` no longer holds the lease."""
    arguments: list[Any] = [decision.by, msgspec.json.encode(decision), int(STALE_SECONDS * 1000)]
    keys = [lease.key, _DECISION]
    return bool(_publish()(keys=keys, args=arguments, client=work_redis()))


@lru_cache(maxsize=1)
def _publish() -> Script:
    return work_redis().register_script(_PUBLISH)
