"""Every program twice, as on two machines, with one address for clients and one for gateways."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from msgplatform.core import flows
from msgplatform.core.flows.programs import BULK
from msgplatform.core.servers.private_server import free_port
from tests.cluster import WEB
from tests.flows.sms_cluster import SmsCluster
from tests.scale.haproxy import HaProxy, render
from tests.support.cells_proxy import HOST

PROGRAMS = (WEB, BULK.command, *sorted(
    daemon.command for flow in flows.all() for daemon in flow.daemons
))  # fmt: skip
MACHINES = ("a", "b")
# A connection that one machine refuses goes to the other one at once. Gateways reach one machine
# only, as by a floating address.
_BALANCER = """
listen web
    bind "${WEB_ADDRESS}"
    option redispatch 1
    server a "${WEB_A}"
    server b "${WEB_B}"
listen receiver
    bind "${RECEIVER_ADDRESS}"
    server a "${RECEIVER_A}" check
    server b "${RECEIVER_B}" check backup
"""


class Balancer(HaProxy):
    def rendered(self, text: str) -> str:
        return render(text, ()) + _BALANCER


class TwoMachines(SmsCluster):
    """Programs named `run_maker@a` and `run_maker@b`: each machine has a STATE_DIR and ports.
    `base_url` is the balancer's, and so is the address that simulated gateways connect to."""

    def __init__(
        self, folder: Path, database_url: str, smgs: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        names = tuple(f"{name}@{machine}" for machine in MACHINES for name in PROGRAMS)
        super().__init__(folder, database_url, smgs or {}, names)
        self.web_ports = {machine: free_port() for machine in MACHINES}
        self.receiver_ports = {machine: free_port() for machine in MACHINES}
        addresses = {f"WEB_{m.upper()}": f"127.0.0.1:{self.web_ports[m]}" for m in MACHINES}
        addresses |= {
            f"RECEIVER_{m.upper()}": f"127.0.0.1:{self.receiver_ports[m]}" for m in MACHINES
        }
        self.balancer = Balancer(
            folder / "balancer", (), addresses, ["WEB_ADDRESS", "RECEIVER_ADDRESS"]
        )
        self.port = self.balancer.port("WEB_ADDRESS")
        self.receiver_port = self.balancer.port("RECEIVER_ADDRESS")
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.environment |= {"PUBLIC_URL": self.base_url, "ALLOWED_HOSTS": f"{HOST},127.0.0.1"}

    def __enter__(self) -> TwoMachines:
        for machine in MACHINES:
            (self.folder / f"state-{machine}").mkdir()
        self.balancer.start()
        super().__enter__()
        for machine in MACHINES:
            self.wait_until(lambda m=machine: self.serves(m), f"machine {machine}")  # type: ignore[misc]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.balancer.kill()

    def _environment(self, name: str) -> dict[str, str]:
        machine = name.rpartition("@")[2]
        if machine not in MACHINES:
            return super()._environment(name)
        return {
            **self.environment,
            "SMS_RECEIVER_PORT": str(self.receiver_ports[machine]),
            "STATE_DIR": str(self.folder / f"state-{machine}"),
        }

    def _command(self, name: str) -> list[str]:
        program, _, machine = name.rpartition("@")
        if machine not in MACHINES:
            return super()._command(name)
        if program == WEB:
            port = str(self.web_ports[machine])
            return [sys.executable, "-m", "msgplatform.doors.web", "--port", port]
        return [sys.executable, "manage.py", program]

    def serves(self, machine: str) -> bool:
        """True if the web server of this machine is ready."""
        try:
            url = f"http://127.0.0.1:{self.web_ports[machine]}/readyz"
            with urllib.request.urlopen(url, timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill_machine(self, machine: str) -> None:
        """SIGKILL to each of its programs."""
        for name in PROGRAMS:
            self.kill(f"{name}@{machine}")
