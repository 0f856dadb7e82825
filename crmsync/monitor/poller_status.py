"""How each policy is doing right now, as the poller that holds it reports every second or two.

Nothing depends on it for long: after a flush of the work Redis the next report fills it again. The
console, metrics and alerts read it. All functions raise RedisError.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from msgplatform.core.connections import work_redis
from msgplatform.core.daemons.presence import Presence

STALE_SECONDS = 15.0  # a poller that reports no longer is dead, or hangs


class Facts(msgspec.Struct, frozen=True):
    """Durations are seconds, `read_at` is unix seconds.

    `horizon_age`, `waiting`, `exact` and `clock_back` are those of
    `poller.reading.increment.Facts`. `read_at` is when the source was last read without an error, 0
    before the first time. `problem` says why it cannot be read, which has been so for `problem_for`
    seconds; '' when it can. `next_in` is until the next look, 0 while a run is going on.
    """

    poller: str
    horizon_age: float = 0.0
    waiting: int = 0
    exact: bool = True
    clock_back: float = 0.0
    read_at: float = 0.0
    next_in: float = 0.0
    problem: str = ""
    problem_for: float = 0.0


_policies = Presence(work_redis, "crm:policies", Facts, STALE_SECONDS)


def report(facts: Mapping[int, Facts]) -> None:
    """Write the facts of these policies."""
    _policies.report({str(policy): one for policy, one in facts.items()})


def withdraw(policies: list[int]) -> None:
    """Delete the reports of policies that this poller no longer holds."""
    _policies.withdraw(*map(str, policies))


def read() -> dict[int, Facts]:
    """The reports by policy id; stale ones are left out."""
    return {int(key): facts for key, facts in _policies.read().items()}
