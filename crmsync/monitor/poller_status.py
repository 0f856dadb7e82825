"""How each policy is doing right now, reported by the poller that holds it.

A report, not a truth: after a flush of the work Redis the next second fills it again. Console,
metrics and alerts read it. All raise RedisError.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from msgplatform.core.connections import work_redis
from msgplatform.core.daemons.presence import Presence

STALE_SECONDS = 15.0


class Facts(msgspec.Struct, frozen=True):
    """Durations are seconds, `read_at` is unix seconds.

    `horizon_age`, `waiting`, `exact` and `clock_back` are those of `poller.increment.Facts`.
    `read_at` is when the source was last read without an error, 0 when it was not yet. `problem`
    says why it cannot be read, for `problem_for` seconds by now; '' when it can. `next_in` is until
    the next look, 0 while a run is going on.
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
    """Write these policies' facts."""
    _policies.report({str(policy): one for policy, one in facts.items()})


def withdraw(policies: list[int]) -> None:
    """Of policies that this poller holds no longer."""
    _policies.withdraw(*map(str, policies))


def read() -> dict[int, Facts]:
    """By policy id; stale reports are left out."""
    return {int(key): facts for key, facts in _policies.read().items()}
