"""The platform with two of each program, as on two machines, on servers that can be killed, hung,
emptied or full. The second machine's clock can step, and a consumer can answer with a text that no
column of attempts holds."""

import os
import re
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.preload import Disk, MachineClock
from msgplatform.core.servers.private_server import PrivateServer, RedisServer
from tests.cluster import LEASE_SECONDS, WEB
from tests.flows import feed_town
from tests.flows.sms_cluster import SmsCluster
from tests.flows.sms_traffic import OPERATORS
from tests.servers import DatabaseServer
from tests.waiting import freeze

COMMANDS = {
    "maker": "run_maker",
    "deliverer": "run_sender",
    "marker": "run_marker",
    "archiver": "run_archiver",
    "sms-sender": "run_sms_sender",
    "receiver": "run_sms_receiver",
    "forwarder": "run_report_forwarder",
    "pump": "run_data_pump",
    "poller": "run_sync_poller",
    "handler": "run_sync_handler",
    "dispatcher": "run_feed_dispatcher",
    "cleaner": "run_feed_cleaner",
}
# In lines of a log: a row that was set aside, and the column that did not hold an answer.
SET_ASIDE = '"event": "set_aside"'
UNSTORABLE = re.compile(r"column (`\w+`\.`attempt`\.`|')response_")  # MariaDB's, MySQL's words
PROGRAMS = [f"{role}-{which}" for role in COMMANDS for which in "ab"]


def twin(name: str) -> str:
    role, _, which = name.rpartition("-")
    return f"{role}-{'b' if which == 'a' else 'a'}"


class ChaosPlatform(SmsCluster):
    """`start` knows PROGRAMS, the web server and the simulated gateways."""

    def __init__(self, folder: Path) -> None:
        # InnoDB of MariaDB 10.11 marked an index as corrupt after its file could not grow (error
        # 1034), which no client can repair: its tables have room, all its other files have none.
        self.disk = disk = Disk(folder / "disk", reserved=".ibd")
        self.clock = MachineClock(folder / "clock")  # of the programs "-b"

        class Database(DatabaseServer):  # type: ignore[misc, valid-type]  # of TEST_DATABASE
            @property
            def argv(self) -> list[str]:
                return ["/usr/bin/env", *disk.environment, *super().argv]

        class KeepingRedis(RedisServer):
            @property
            def argv(self) -> list[str]:
                return ["/usr/bin/env", *disk.environment, *super().argv]

        # A process of the database may be killed, not the machine: what it wrote is the kernel's.
        # Its own threads write, so that the disk sees what they write.
        options = {"innodb_flush_log_at_trx_commit": 2, "innodb_use_native_aio": 0}
        self.database = Database(folder / "db", options)
        self.database.start()
        manners = {name: operator.manners for name, operator in OPERATORS.items()}
        super().__init__(folder, self.database.create("platform"), manners, (WEB, *PROGRAMS))
        self.sms_server = KeepingRedis(folder / "sms", folder / "sms.sock", appendonly=True)
        # The errors that strikes themselves are. Every other row that is set aside is unexpected.
        self.expected_errors = {"database_away", "set_aside"}
        self.answer_text = folder / "answer-text"  # of the consumer "two"
        self.environment |= {
            "NOTIFY_LEASE_SECONDS": str(LEASE_SECONDS),
            "NOTIFY_TIMEOUT_SECONDS": "4",
            "NOTIFY_KEEP_DAYS": "0",  # the archive takes everything at once
            "CRM_LEASE_SECONDS": "12",
            "CRM_BREAKER_SECONDS": "2",
            **feed_town.SETTINGS,
        }

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in (self.database, self.redis_server, self.sms_server):
            self.resume_server(server)
        super().__exit__(kind, error, traceback)
        self.database.kill()

    def fill_database(self) -> None:
        super().fill_database()
        for table in ("attempt", "attempt_cold"):
            for column in ("response_headers", "response_body"):
                self.database.execute(
                    f"ALTER TABLE platform.{table} "
                    f"MODIFY {column} LONGTEXT CHARACTER SET utf8mb3 NOT NULL"
                )

    def unexpected_errors(self) -> list[str]:
        others = [line for line in self._set_aside_lines() if not UNSTORABLE.search(line)]
        return super().unexpected_errors() + others

    def unlogged_count(self) -> int:
        """The answers so far that the database could not store."""
        return sum(bool(UNSTORABLE.search(line)) for line in self._set_aside_lines())

    def _set_aside_lines(self) -> list[str]:
        lines = [line for name in self.processes for line in self.said(name).splitlines()]
        return [line for line in lines if SET_ASIDE in line]

    def freeze(self, name: str) -> None:
        self.pause(name)
        self.frozen.add(name)

    def thaw(self, name: str) -> None:
        self.frozen.discard(name)
        self.resume(name)

    def hang(self, server: PrivateServer) -> None:
        """Its connections stay, and it answers nothing."""
        assert server.pid
        freeze(server.pid)

    def resume_server(self, server: PrivateServer) -> None:
        if server.pid:
            os.kill(server.pid, signal.SIGCONT)

    def fill(self, client: Any) -> None:
        """From now on this Redis refuses every write that takes memory."""
        client.config_set("maxmemory", 1)

    def make_room(self, client: Any) -> None:
        client.config_set("maxmemory", 0)

    def refuse(self, client: Any, how: str) -> None:
        """From now on this Redis refuses every write: as a replica whose master is away, after a
        failover, or as a master that has lost its replicas."""
        if how == "READONLY":
            client.execute_command("REPLICAOF", "127.0.0.1", 1)
        else:
            client.config_set("min-replicas-to-write", 1)

    def take_writes(self, client: Any) -> None:
        client.execute_command("REPLICAOF", "NO", "ONE")
        client.config_set("min-replicas-to-write", 0)

    def _environment(self, name: str) -> dict[str, str]:
        ahead = self.clock.environment if name.endswith("-b") else {}
        return {**super()._environment(name), **ahead}

    def _command(self, name: str) -> list[str]:
        role = name.rpartition("-")[0]
        if role in COMMANDS:
            return [sys.executable, "manage.py", COMMANDS[role]]
        command = super()._command(name)
        return [*command, "--workers", "2"] if name == WEB else command
