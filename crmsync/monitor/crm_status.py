"""How each CRM is doing right now, as the handler that serves it reports every two seconds.

Nothing depends on it for long: after a flush of the work Redis the next report fills it again. The
poller paces itself by it; the console and metrics show it. All functions raise RedisError.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from msgplatform.core.connections import work_redis
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.rates.breaker import State

STALE_SECONDS = 15.0  # a handler that reports no longer is dead, or hangs


class Live(msgspec.Struct, frozen=True):
    """Durations are seconds.

    `latency` is a moving mean of what a call takes. `per_second` is how many records a second were
    answered when there was last always something to send; 0 when that is not known.
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
        return self.breaker is not State.CLOSED


_lanes = Presence(work_redis, "crm:live", Live, STALE_SECONDS)


def report(states: Mapping[int, Live]) -> None:
    """Write the states of these CRMs."""
    _lanes.report({str(crm): state for crm, state in states.items()})


def withdraw(crms: list[int]) -> None:
    """Delete the reports of CRMs that this handler no longer serves."""
    _lanes.withdraw(*map(str, crms))


def read() -> dict[int, Live]:
    """The reports by CRM id; stale ones are left out."""
    return {int(key): state for key, state in _lanes.read().items()}
