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
    """Durations are seconds.

    `horizon_age`, `waiting` and `exact` are those of `poller.reading.increment.Facts`. `problem`
    says why the source cannot be read, which has been so for `problem_for` seconds; '' when it can.
    `without_time` rows of it are never read.
    """

    horizon_age: float = 0.0
    waiting: int = 0
    exact: bool = True
    problem: str = ""
    problem_for: float = 0.0
    without_time: int = 0


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
