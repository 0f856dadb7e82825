"""Which gateways a message may take, the best one first."""

from __future__ import annotations

import time
from collections.abc import Collection

import msgspec

from gateway.directory import Account, Directory, Gateway
from gateway.lifecycle import keys
from msgplatform.core.connections import sms_redis
from msgplatform.core.errors import InvalidInput

# A link is reported once a second; a report this old is of a process that is gone.
LINK_TTL_SECONDS = 10
_LOOK_SECONDS = 1.0


class LinkState(msgspec.Struct, frozen=True):
    """One connection of a gateway. `kind`: submit (ours to the SMG) or report (the SMG's to us)."""

    gateway: int
    kind: str
    peer: str
    since: float
    in_flight: int = 0
    sent: int = 0
    received: int = 0
    problem: str = ""


def say(connection: str, state: LinkState) -> None:
    """Report a live connection; it is forgotten when this is not repeated."""
    name = keys.link(state.gateway, connection)
    sms_redis().set(name, msgspec.json.encode(state), ex=LINK_TTL_SECONDS)


def links() -> list[LinkState]:
    """Every live connection. Raises RedisError."""
    client = sms_redis()
    names = list(client.scan_iter(match=f"{keys.PREFIX}link:*", count=500))
    rows = client.mget(names) if names else []
    return [msgspec.json.decode(row, type=LinkState) for row in rows if row]


class Router:
    """Asks for the links at most once a second, whatever the number of messages."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._bound: frozenset[int] = frozenset()
        self._next = 0.0

    def route(self, account: Account, user_number: str) -> list[int]:
        """Gateway ids in the order in which they are tried. Raises InvalidInput."""
        fitting = [
            (gateway, length)
            for gateway in self._directory.gateways.values()
            if (not account.gateways or gateway.id in account.gateways)
            and (length := _fit(gateway, user_number)) >= 0
        ]
        if not fitting:
            raise InvalidInput(f"no gateway takes {user_number} for this account", "to")
        bound = self._bound_now()
        fitting.sort(key=lambda pair: _rank(pair[0], pair[1], bound))
        return [gateway.id for gateway, _ in fitting]

    def _bound_now(self) -> Collection[int]:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LOOK_SECONDS
            self._bound = frozenset(
                link.gateway for link in links() if link.kind == "submit" and not link.problem
            )
        return self._bound


def _fit(gateway: Gateway, user_number: str) -> int:
    """Length of the longest prefix that fits; 0 for a gateway that takes everybody, -1 for none."""
    if not gateway.prefixes:
        return 0
    return max((len(p) for p in gateway.prefixes if user_number.startswith(p)), default=-1)


def _rank(gateway: Gateway, length: int, bound: Collection[int]) -> tuple[int, ...]:
    """A link that is up, then the longest prefix, then the priority."""
    return (gateway.id not in bound, -length, -gateway.row.priority, gateway.id)
