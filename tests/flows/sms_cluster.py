"""The SMS programs as real processes, with simulated gateways and a Redis that keeps its file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from msgplatform.core.servers.private_server import RedisServer, free_port
from tests.cluster import Cluster
from tests.flows.smg_books import Books
from tests.redis_client import connect

LEASE_SECONDS = 5
SENDERS = ("sender-a", "sender-b")
ROLES = {
    "sender-a": "run_sms_sender",
    "sender-b": "run_sms_sender",
    "receiver": "run_sms_receiver",
    "forwarder": "run_report_forwarder",
    "pump": "run_data_pump",
}


class SmsCluster(Cluster):
    """`smgs`: the simulators by name, with their manners as arguments. `start` knows them, ROLES,
    and the platform's other daemons by their own names."""

    def __init__(
        self,
        folder: Path,
        database_url: str,
        smgs: Mapping[str, Sequence[str]],
        programs: tuple[str, ...] = (),
    ) -> None:
        super().__init__(folder, database_url, programs)
        self.sms_server = RedisServer(folder / "sms", folder / "sms.sock", appendonly=True)
        self.manners = {name: list(manners) for name, manners in smgs.items()}
        self.ports = {name: free_port() for name in smgs}
        self.books = {
            name: Books(folder / f"{name}.accepted", folder / f"{name}.journal") for name in smgs
        }
        self.receiver_port = free_port()
        self.environment |= {
            "SMS_REDIS_URL": self.sms_server.url,
            "SMS_RECEIVER_PORT": str(self.receiver_port),
            "SMS_LEASE_SECONDS": str(LEASE_SECONDS),
            # No process of Notify dies here: what it publishes is to be heard once.
            "NOTIFY_LEASE_SECONDS": "120",
            "NOTIFY_TIMEOUT_SECONDS": "30",
        }

    def __enter__(self) -> SmsCluster:
        self.sms_server.start()
        self.sms = connect(self.sms_server.url)
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for name in self.manners:
            self._hang_up(name)
        super().__exit__(kind, error, traceback)
        self.sms_server.kill()

    def kill(self, name: str) -> None:
        self._hang_up(name)
        super().kill(name)

    def deliver(self, smg: str, user: str, sp_number: str, text: str) -> None:
        """A user of this gateway sends a text; it is on its way when the journal has it."""
        known = self.books[smg].count_put()
        pipe = self.processes[smg].stdin
        assert pipe is not None
        pipe.write(f"{user}:{sp_number}:{text}\n".encode())
        self.wait_until(lambda: self.books[smg].count_put() > known, f"{smg} to take an MO")

    def _stdin(self, name: str) -> int:
        return subprocess.PIPE if name in self.manners else super()._stdin(name)

    def _hang_up(self, name: str) -> None:
        process = self.processes.get(name)
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def _command(self, name: str) -> list[str]:
        manage = [sys.executable, "manage.py"]
        if name in ROLES:
            return [*manage, ROLES[name]]
        if name in self.manners:
            books = self.books[name]
            return [
                *manage, "run_smg_simulator", "--port", str(self.ports[name]),
                "--sp-port", str(self.receiver_port), "--smg-login-name", name,
                "--log", str(books.log), "--journal", str(books.journal), *self.manners[name],
            ]  # fmt: skip
        return super()._command(name)

    def _ready(self) -> bool:
        return super()._ready() if self.programs else True
