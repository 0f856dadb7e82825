"""Connections to the gateways, as their processes report them, and how senders share them.

The SMS Redis keeps them, so that no other server is needed. Every function but `bound`, `share` and
`process_name` raises RedisError.
"""

import socket
import time
import uuid
from collections.abc import Collection, Iterable, Sequence

import msgspec

from gateway.connections import sms_redis
from gateway.lifecycle import keys
from msgplatform.core.connections import write_into_full
from msgplatform.core.daemons.presence import Absences, Presence

# Seconds between the reports of a process, and until a process without a report counts as gone.
REPORT_SECONDS, TTL_SECONDS = 2.0, 10
# A receiver that hangs still holds its port: the next receiver shares the port.
_LISTENER_SECONDS = 600


class LinkState(msgspec.Struct, frozen=True):
    """A connection of a gateway.

    `kind`: submit (ours to the SMG), report (the SMG's to us), or standby: a sender without a
    connection, because others hold all that the gateway allows.
    """

    gateway: int
    kind: str
    peer: str
    since: float
    problem: str = ""
    process: str = ""


links = Presence(sms_redis, keys.LINKS, list[LinkState], TTL_SECONDS)
outages = Absences(sms_redis, keys.GATEWAYS_AWAY)  # of gateways without a connection


def process_name() -> str:
    """A name for a new process. Names sort by age: the eldest processes keep their connections."""
    return f"{time.time_ns() // 1000:016d}-{uuid.uuid4().hex[:12]}"


def report(process: str, states: Iterable[LinkState]) -> None:
    """Publish a process' connections; call again within TTL_SECONDS."""
    # Added here: the makers of states need not know their process.
    links.report({process: [msgspec.structs.replace(state, process=process) for state in states]})


def note_listener(port: int) -> None:
    """A receiver listens on this port of this machine; call again within minutes."""
    key = keys.listener(socket.gethostname(), port)
    write_into_full(sms_redis(), "SET", key, "", "EX", _LISTENER_SECONDS)


def is_own_port(port: int) -> bool:
    """True if a receiver of this platform listened lately on this port of this machine."""
    return bool(sms_redis().exists(keys.listener(socket.gethostname(), port)))


def live() -> list[LinkState]:
    """The connections that processes have reported lately."""
    return [state for states in links.read().values() for state in states]


def connected_gateways(states: Iterable[LinkState]) -> frozenset[int]:
    """The gateways that take Submits from some process."""
    return frozenset(s.gateway for s in states if s.kind == "submit" and not s.problem)


def share(connections: int, process: str, others: Collection[str]) -> int:
    """How many of a gateway's connections this process may open: dealt out in turn, eldest first.

    During a change two processes may hold one too many for a moment: the gateway then answers 3,
    and the login is tried again.
    """
    # All processes have the same list, so that their shares add up to what the gateway allows.
    processes: Sequence[str] = sorted({process, *others})
    return len(range(processes.index(process), connections, len(processes)))
