"""Reports of dispatchers in the work Redis: their connections, the scheduler's lease and decision.

Reports may be lost: after a flush they return within a second. Dispatchers follow the decision;
console and metrics show the decision. All functions raise RedisError.
"""

from typing import Any

import msgspec

from msgplatform.core.connections import work_redis
from msgplatform.core.daemons.lease import Lease
from msgplatform.core.daemons.presence import Presence

LEASE_SECONDS = 6.0  # a scheduler that is idle decides every two seconds
# A decision that is older says nothing about the load now.
STALE_SECONDS = 15.0

# String, expiring: JSON of the last decision. Rename a field only together with this key: during an
# update a dispatcher of the other release would read the field's default.
_DECISION = "feed:pace-decision"

# KEYS: lease, decision. ARGV: me, JSON, milliseconds. A dispatcher that has lost the lease changes
# nothing.
_PUBLISH = """
redis.call('DEL', KEYS[2] .. ':none')  -- a script that begins by a DEL may write to a full Redis
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1
"""


class PaceDecision(msgspec.Struct, frozen=True):
    """A decision of the dispatcher `by` as the scheduler, with the load that it measured.

    `share` (0 to 1), `events`, `load`, `cause`, `statements` and `cpu` are as in `FeedPace`;
    `latency` and `baseline` are milliseconds. `oldest` is the age in seconds of each topic's oldest
    waiting event; topics without waiting events are left out. `min_share` and `max_share` bound the
    share at this time; `at` is unix seconds. Only the dispatchers `working_names` work, each with
    `share_each`.
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
    min_share: float = 0.0
    max_share: float = 1.0
    oldest: dict[str, float] = {}
    working_names: tuple[str, ...] = ()
    share_each: float = 1.0


class DispatcherReport(msgspec.Struct, frozen=True):
    """A dispatcher's report. `connection`: the number that the database server gave to the
    dispatcher's connection; 0: no connection. `has_work`: it handled events lately. `takes_turns`:
    False for a dispatcher of some topics only, because nobody else might work on these topics."""

    connection: int
    takes_turns: bool = True
    has_work: bool = True


# The holder of the lease is the scheduler.
lease = Lease(work_redis, "feed:scheduler", LEASE_SECONDS)
dispatchers = Presence(work_redis, "feed:dispatchers", DispatcherReport, STALE_SECONDS)


def read_decision() -> PaceDecision | None:
    """The last decision; None when no dispatcher has decided lately."""
    text: Any = work_redis().get(_DECISION)
    try:
        return msgspec.json.decode(text, type=PaceDecision) if text else None
    except msgspec.MsgspecError:
        return None  # from another version, during an upgrade


def publish_decision(decision: PaceDecision) -> bool:
    """Store the decision; False, and nothing changes, when `by` no longer holds the lease."""
    arguments: list[Any] = [decision.by, msgspec.json.encode(decision), int(STALE_SECONDS * 1000)]
    keys = [lease.key, _DECISION]
    return bool(work_redis().register_script(_PUBLISH)(keys=keys, args=arguments))
