"""Connections to the gateways, as their processes report them, and how senders share them.

One hash in Redis, however many messages wait beside it: field `<process>:<number>`, value the time
of the report (Redis' clock) and a LinkState. All raise RedisError when Redis is away.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Sequence

import msgspec

from gateway.connections import sms_redis
from gateway.lifecycle import keys, scripts
from msgplatform.core.connections import clock

# Reported once a second; a report this old is of a process that is gone.
TTL_SECONDS = 10


class LinkState(msgspec.Struct, frozen=True):
    """One connection of a gateway.

    `kind`: submit (ours to the SMG), report (the SMG's to us), or standby: a sender without a
    connection, because others hold all that the gateway allows.
    """

    gateway: int
    kind: str
    peer: str
    since: float
    in_flight: int = 0
    sent: int = 0
    received: int = 0
    problem: str = ""
    process: str = ""


def process_name() -> str:
    """A name for a new process. Names sort by age, so that the eldest keep what they hold."""
    return f"{time.time_ns() // 1000:016d}-{uuid.uuid4().hex[:12]}"


def say(process: str, states: Iterable[LinkState]) -> None:
    """All connections of a process; to be repeated, or they are forgotten. None: it ends."""
    arguments: list[scripts.Argument] = [TTL_SECONDS, process]
    for number, state in enumerate(states):
        state = msgspec.structs.replace(state, process=process)
        arguments += [f"{process}:{number}", msgspec.json.encode(state)]
    scripts.run("links", arguments, [keys.LINKS])


def live() -> list[LinkState]:
    """What processes said lately."""
    client = sms_redis()
    rows: dict[bytes, bytes] = client.hgetall(keys.LINKS)  # type: ignore[assignment]
    oldest = clock(client) - TTL_SECONDS if rows else 0.0
    found = (row.split(b" ", 1) for row in rows.values())
    return [
        msgspec.json.decode(state, type=LinkState) for at, state in found if float(at) >= oldest
    ]


def bound(states: Iterable[LinkState]) -> frozenset[int]:
    """The gateways that take Submits from some process."""
    return frozenset(s.gateway for s in states if s.kind == "submit" and not s.problem)


def share(connections: int, process: str, others: Collection[str]) -> int:
    """How many of a gateway's connections this process may open: dealt out in turn, eldest first.

    During a change two may hold one too many for a moment: the gateway then answers 3, and the
    login is tried again.
    """
    everybody: Sequence[str] = sorted({process, *others})
    return len(range(everybody.index(process), connections, len(everybody)))
