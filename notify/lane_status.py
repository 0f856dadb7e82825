"""How each subscription is doing right now, said by the sender that owns its queue.

A hash in the work Redis, field = subscription id. It is a report, not a truth: a flush empties it,
the next second fills it again. The maker reads it to queue no more than will be sent, the console
to show it, a sender that takes a queue over to go on with its predecessor's breaker.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from msgplatform.core.connections import clock, work_redis
from msgplatform.core.rates.breaker import State

_KEY = "notify:live"
_SENDERS = "notify:senders"  # zset: sender → unix time of its last word
# A report this old is of a sender that is gone. One about an open breaker stays for longer than
# the longest pause between two probes.
STALE_SECONDS = 15.0
_STALE_OPEN_SECONDS = 900.0


class Live(msgspec.Struct, frozen=True):
    """`at` is stamped by Redis' clock, the same for all machines; durations are seconds from there.

    `retry_in` is until the next probe may go, `open_for` since the failure that opened the breaker;
    both are 0 while it is closed. `per_second` is how many answers came lately while there was
    always something to send; 0 when that is not known.
    """

    sender: str
    at: float = 0.0
    in_flight: int = 0
    waiting: int = 0
    breaker: State = State.CLOSED
    opened_in_a_row: int = 0
    retry_in: float = 0.0
    open_for: float = 0.0
    per_second: float = 0.0

    @property
    def is_open(self) -> bool:
        return self.breaker is not State.CLOSED

    @property
    def has_in_hand(self) -> bool:
        return bool(self.waiting or self.in_flight)


def report(states: Mapping[int, Live]) -> None:
    """Write these subscriptions' states; what is closed and idle is said once, and gets stale."""
    now = clock(work_redis()) if states else 0.0
    with work_redis().pipeline(transaction=False) as pipe:
        for subscription, state in states.items():
            stamped = msgspec.structs.replace(state, at=now)
            pipe.hset(_KEY, str(subscription), msgspec.json.encode(stamped))
        pipe.expire(_KEY, int(_STALE_OPEN_SECONDS))
        pipe.execute()


def read() -> dict[int, Live]:
    """By subscription id, durations as of now; stale reports are left out. Raises RedisError."""
    rows: dict[bytes, bytes] = work_redis().hgetall(_KEY)  # type: ignore[assignment]
    now = clock(work_redis()) if rows else 0.0
    found = {}
    for subscription, raw in rows.items():
        try:
            state = msgspec.json.decode(raw, type=Live)
        except msgspec.MsgspecError:  # of another version: during an upgrade both run
            continue
        age = max(0.0, now - state.at)
        if age < (_STALE_OPEN_SECONDS if state.is_open else STALE_SECONDS):
            found[int(subscription)] = _aged(state, age)
    return found


def _aged(state: Live, age: float) -> Live:
    if not state.is_open:
        return state
    return msgspec.structs.replace(
        state, retry_in=max(0.0, state.retry_in - age), open_for=state.open_for + age
    )


def prune() -> None:
    """Drop what `read` leaves out; called now and then by the maker."""
    kept = read()
    fields: list[bytes] = work_redis().hkeys(_KEY)  # type: ignore[assignment]
    if dropped := [field for field in fields if int(field) not in kept]:
        work_redis().hdel(_KEY, *dropped)


# -- senders -------------------------------------------------------------------------------------
def present(sender: str) -> int:
    """Say that this sender is here; how many are, this one included."""
    now = clock(work_redis())
    with work_redis().pipeline(transaction=False) as pipe:
        pipe.zadd(_SENDERS, {sender: now})
        pipe.zremrangebyscore(_SENDERS, "-inf", now - STALE_SECONDS)
        pipe.zcard(_SENDERS)
        return max(1, int(pipe.execute()[-1]))


def withdraw(sender: str) -> None:
    """The sender ends: its closed lanes say nothing any more, open breakers stay known."""
    gone = [key for key, state in read().items() if state.sender == sender and not state.is_open]
    if gone:
        work_redis().hdel(_KEY, *map(str, gone))
    work_redis().zrem(_SENDERS, sender)
