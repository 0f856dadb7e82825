"""The present state of CRMs and policies, as the programs that serve them report it in Redis.

The reports may be lost: after a flush of the work Redis the next reports replace them. The poller
paces itself by a CRM's state; the console, metrics and alerts read both. All functions raise
RedisError.
"""

import msgspec

from msgplatform.core.connections import work_redis
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.rates.breaker import State

STALE_SECONDS = 15.0  # seconds; then a program without a report is dead or hangs


class LiveCrm(msgspec.Struct, frozen=True):
    """The state of a CRM, reported by its handler every two seconds. Durations are seconds.

    `latency` is a moving mean of the duration of calls, `per_second` of the records that were
    answered in a second while there was always something to send; 0 when that is not known.
    `held_for` is until the next call may go: the CRM wants fewer calls, or a limit is used up.
    """

    in_flight: int = 0
    latency: float = 0.0
    per_second: float = 0.0
    breaker: State = State.CLOSED
    retry_in: float = 0.0
    held_for: float = 0.0

    @property
    def is_open(self) -> bool:
        """True if the breaker forbids all calls except probes."""
        return self.breaker is not State.CLOSED


class PolicyFacts(msgspec.Struct, frozen=True):
    """The state of a policy, reported by its poller every second or two. Durations are seconds.

    `horizon_age`, `waiting` and `exact` are those of `poller.reading.increment.Facts`. `problem` is
    the reason why the source cannot be read, for `problem_for` seconds by now; '' when it can be.
    `without_time` is the number of its rows that are never read because they have no time.
    """

    horizon_age: float = 0.0
    waiting: int = 0
    exact: bool = True
    problem: str = ""
    problem_for: float = 0.0
    without_time: int = 0


# The names are ids of CRMs and of policies.
crms = Presence(work_redis, "crm:live", LiveCrm, STALE_SECONDS)
policies = Presence(work_redis, "crm:policies", PolicyFacts, STALE_SECONDS)
