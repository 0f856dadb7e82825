"""Machines as network namespaces on one bridge, of this machine only; needs root."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Sequence
from types import TracebackType


def _ip(*words: str) -> str:
    return subprocess.run(
        ["ip", *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout


class Lan:
    """`hosts` maps a machine to its address, such as "10.77.0.2"; each has the interface eth0 in a
    network of 24 bits. The namespace `hub` has the bridge, whose address is `hub_address`."""

    def __init__(self, hosts: dict[str, str], hub_address: str) -> None:
        self.hosts, self._hub_address = hosts, hub_address
        self._prefix = f"mp-{uuid.uuid4().hex[:6]}"

    def space(self, host: str) -> str:
        """The name of a machine's namespace."""
        return f"{self._prefix}-{host}"

    def inside(self, host: str, command: Sequence[str]) -> list[str]:
        """The command line that runs a command on this machine."""
        return ["ip", "netns", "exec", self.space(host), *command]

    def __enter__(self) -> Lan:
        for host in ("hub", *self.hosts):
            _ip("netns", "add", self.space(host))
            _ip("-n", self.space(host), "link", "set", "lo", "up")
        hub = self.space("hub")
        _ip("-n", hub, "link", "add", "lan", "type", "bridge")
        _ip("-n", hub, "address", "add", f"{self._hub_address}/24", "dev", "lan")
        _ip("-n", hub, "link", "set", "lan", "up")
        for number, (host, address) in enumerate(self.hosts.items()):
            space = self.space(host)
            _ip(
                "-n",
                hub,
                "link",
                "add",
                f"port{number}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                space,
            )
            _ip("-n", hub, "link", "set", f"port{number}", "master", "lan", "up")
            _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for host in (*self.hosts, "hub"):
            _ip("netns", "del", self.space(host))

    def cut(self, host: str) -> None:
        """Pull this machine's cable."""
        _ip("-n", self.space("hub"), "link", "set", f"port{list(self.hosts).index(host)}", "down")

    def addresses(self, host: str) -> str:
        """What `ip address` says of the machine's interface."""
        return _ip("-n", self.space(host), "-4", "address", "show", "dev", "eth0")
