"""From which addresses each gateway may connect to us: its networks, or else its own host."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection
from ipaddress import ip_network

from gateway.directory import Directory
from msgplatform.core import logging
from msgplatform.core.http.addresses import Network, is_inside

log = logging.get(__name__)

# How long the addresses of a host's name are used before it is asked for again (seconds).
_NAME_SECONDS = 60.0


class Networks:
    """`refresh` asks the resolver, which may take seconds: never in the net's loop, which only
    reads. The dict that it reads is replaced as a whole."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._by_gateway: dict[int, tuple[Network, ...]] = {}
        self._hosts: dict[str, tuple[tuple[Network, ...], float]] = {}  # with the time they are due

    def refresh(self) -> None:
        """Take over what was changed in the console, and where names point to by now."""
        gateways = self._directory.gateways
        self._by_gateway = {
            gateway.id: gateway.networks or self._of_host(str(gateway.row.host))
            for gateway in gateways.values()
        }

    def may(self, gateway: int, address: str) -> bool:
        """Whether this gateway connects from there."""
        return is_inside(address, self._by_gateway.get(gateway, ()))

    def gateways(self, address: str) -> Collection[int]:
        """The gateways that connect from there; none: it is a stranger's address."""
        return [gateway for gateway in self._by_gateway if self.may(gateway, address)]

    def _of_host(self, host: str) -> tuple[Network, ...]:
        known, due = self._hosts.get(host, ((), 0.0))
        now = time.monotonic()
        if now < due:
            return known
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            known = tuple({ip_network(str(address[0]).partition("%")[0]) for *_, address in found})
        except (OSError, ValueError) as error:  # the addresses known before stay
            log.warning("gateway_host_unknown", host=host, why=str(error)[:200])
        self._hosts[host] = known, now + _NAME_SECONDS
        return known
