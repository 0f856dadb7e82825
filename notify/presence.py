"""The state of each subscription's lane, reported by the sender that owns its queue.

Reports may be lost: after a flush of the work Redis they return within a second. The maker reads
reports to queue no more than will be sent, the console shows them, and a sender that takes over a
queue goes on with its predecessor's breaker. All functions but one raise RedisError.
"""

from collections.abc import Iterable, Mapping

import msgspec

from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons.presence import Absences, Presence
from msgplatform.core.rates.breaker import State

# A report this old is from a sender that has ended. A report about an open breaker stays for longer
# than the longest pause between two probes (NOTIFY_BREAKER_SECONDS).
STALE_SECONDS = 15.0
_STALE_OPEN_SECONDS = 900.0


class LaneState(msgspec.Struct, frozen=True):
    """The state of a lane. Durations are seconds, counted from the time of reading.

    `retry_in`: until the next probe may go; `open_for`: since the failure that opened the breaker.
    While the breaker is closed these are 0. `per_second`: rate of answers while there was always a
    message to send; 0: not measured. `oldest_for`: since the first waiting message was due.
    `busy_for`: since all slots are taken or a message waits for a slot; `busy_per_second`: rate of
    answers in this time. Short gaps count as busy.
    """

    sender: str
    in_flight: int = 0
    waiting: int = 0
    breaker: State = State.CLOSED
    opened_in_a_row: int = 0
    retry_in: float = 0.0
    open_for: float = 0.0
    per_second: float = 0.0
    oldest_for: float = 0.0
    busy_for: float = 0.0
    busy_per_second: float = 0.0

    @property
    def is_open(self) -> bool:
        return self.breaker is not State.CLOSED

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.in_flight)


_lanes = Presence(
    work_redis,
    "notify:live",
    LaneState,
    lambda lane: _STALE_OPEN_SECONDS if lane.is_open else STALE_SECONDS,
)
_senders = Presence(work_redis, "notify:sender", bool, STALE_SECONDS)
_dedicated = Presence(work_redis, "notify:dedicated", list[int], STALE_SECONDS)
# Seconds that a requested probe waits. A probe in flight must end first.
_PROBE_SECONDS = 300.0
_probes = Presence(work_redis, "notify:probe", bool, _PROBE_SECONDS)
missing_processes = Absences(work_redis, "notify:missing")  # of subscriptions with one of their own


def after_death(state: LaneState) -> LaneState:
    """The state after the lane's sender has died: nothing is in flight, and a probe that was in
    flight may go again."""
    is_probing = state.breaker is State.HALF_OPEN
    return msgspec.structs.replace(
        state, in_flight=0, waiting=0, breaker=State.OPEN if is_probing else state.breaker,
        retry_in=0.0 if is_probing else state.retry_in,
    )  # fmt: skip


def report(states: Mapping[int, LaneState]) -> None:
    """Report the states of these subscriptions. A state that is not repeated becomes stale."""
    _lanes.report(states)


def read() -> dict[int, LaneState]:
    """The states by subscription id, without stale ones."""
    states = {}
    for key, (state, age) in _lanes.read_with_age().items():
        if state.is_open:  # its durations are from the time of the report
            retry_in, open_for = max(0.0, state.retry_in - age), state.open_for + age
            state = msgspec.structs.replace(state, retry_in=retry_in, open_for=open_for)
        states[int(key)] = state
    return states


def read_if_available() -> dict[int, LaneState] | None:
    """Like `read`; None while Redis is unavailable."""
    try:
        return read()
    except RedisError:
        return None


# -- probes that people ask for ------------------------------------------------------------------
def request_probe(subscription: int) -> None:
    """Make the next probe of this subscription due at once, whatever its breaker says."""
    _probes.report({subscription: True})


def requested_probes() -> frozenset[int]:
    """The subscriptions whose next probe a person asked for."""
    return frozenset(_probes.read_by_id())


def withdraw_probes(subscriptions: Iterable[int]) -> None:
    """Take the requests back: the probes are on their queues."""
    _probes.withdraw(*subscriptions)


# -- senders -------------------------------------------------------------------------------------
def report_sender(sender: str) -> int:
    """Report that this sender of all subscriptions runs; returns the number of such senders."""
    _senders.report({sender: True})
    return max(1, len(_senders.read()))


def report_dedicated(sender: str, subscriptions: Iterable[int]) -> None:
    """Report that this sender runs, dedicated to these subscriptions."""
    _dedicated.report({sender: sorted(subscriptions)})


def dedicated_subscriptions() -> set[int]:
    """The subscriptions for which dedicated senders run."""
    return {pk for subscriptions in _dedicated.read().values() for pk in subscriptions}


def withdraw(sender: str) -> None:
    """Withdraw the reports of a sender that ends. Reports of open breakers stay."""
    closed_ids = [
        key for key, state in read().items() if state.sender == sender and not state.is_open
    ]
    _lanes.withdraw(*closed_ids)
    _senders.withdraw(sender)
    _dedicated.withdraw(sender)
