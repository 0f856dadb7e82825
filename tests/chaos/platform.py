"""The platform with two of each program, on servers that can be killed, hung, emptied or full."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from msgplatform.core.servers.embedded import MariaDb
from tests.cluster import LEASE_SECONDS, WEB
from tests.flows.sms_cluster import SmsCluster
from tests.flows.sms_traffic import OPERATORS

COMMANDS = {
    "maker": "run_maker",
    "deliverer": "run_sender",
    "marker": "run_marker",
    "archiver": "run_archiver",
    "sms-sender": "run_sms_sender",
    "receiver": "run_sms_receiver",
    "forwarder": "run_report_forwarder",
    "pump": "run_data_pump",
}
PROGRAMS = [f"{role}-{which}" for role in COMMANDS for which in "ab"]


def twin(name: str) -> str:
    role, _, which = name.rpartition("-")
    return f"{role}-{'b' if which == 'a' else 'a'}"


class ChaosPlatform(SmsCluster):
    """`start` knows PROGRAMS, the web server and the simulated gateways."""

    def __init__(self, folder: Path) -> None:
        # A process of the database may be killed, not the machine: what it wrote is the kernel's.
        self.database = MariaDb(folder / "db", {"innodb_flush_log_at_trx_commit": 2})
        self.database.start()
        manners = {name: operator.manners for name, operator in OPERATORS.items()}
        super().__init__(folder, self.database.create("platform"), manners, (WEB, *PROGRAMS))
        self.environment |= {
            "NOTIFY_LEASE_SECONDS": str(LEASE_SECONDS),
            "NOTIFY_TIMEOUT_SECONDS": "4",
            "NOTIFY_KEEP_DAYS": "0",  # the archive takes everything at once
        }

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.database_goes_on()
        super().__exit__(kind, error, traceback)
        self.database.kill()

    def freeze(self, name: str) -> None:
        self.pause(name)
        self.frozen.add(name)

    def thaw(self, name: str) -> None:
        self.frozen.discard(name)
        self.resume(name)

    def freeze_database(self) -> None:
        assert self.database.pid
        os.kill(self.database.pid, signal.SIGSTOP)

    def database_goes_on(self) -> None:
        if self.database.pid:
            os.kill(self.database.pid, signal.SIGCONT)

    def fill(self, client: Any) -> None:
        """From now on this Redis refuses every write that takes memory."""
        client.config_set("maxmemory", 1)

    def make_room(self, client: Any) -> None:
        client.config_set("maxmemory", 0)

    def _command(self, name: str) -> list[str]:
        role = name.rpartition("-")[0]
        if role in COMMANDS:
            return [sys.executable, "manage.py", COMMANDS[role]]
        command = super()._command(name)
        return [*command, "--workers", "2"] if name == WEB else command
