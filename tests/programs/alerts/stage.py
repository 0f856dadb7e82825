"""The platform on which incidents happen: a program of each kind, as real processes."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.harness.mariadb import MariaDb
from demo.sink_process import SinkProcess
from tests.cluster import WEB
from tests.flows.sms_cluster import SmsCluster

PROGRAMS = (
    "run_maker", "run_sender", "run_marker", "run_archiver", "run_data_pump",
    "run_report_forwarder", "run_sms_receiver", "run_sms_sender", "run_feed_dispatcher",
    "run_feed_cleaner", "run_sync_handler", "run_sync_poller", "run_bulk",
)  # fmt: skip
_ARGUMENTS = {"run_feed_dispatcher": ["--topic=friend", "--topic=upkeep"]}
ENVIRONMENT = {
    "NOTIFY_FAILING_MINUTES": "0.01", "NOTIFY_BREAKER_ENABLED": "no", "NOTIFY_KEEP_DAYS": "0",
    "NOTIFY_ARCHIVE_DAYS": "100", "ALERT_SILENT_SECONDS": "20", "ALERT_BACKLOG_MINUTES": "0.05",
    "ALERT_MIXED_SECONDS": "1",
    "AUDIT_SIGNING_KEY": "A" * 43 + "=", "AUDIT_EXPORT_ALERT_MINUTES": "0.02",
    "FEED_LATE_SECONDS": "1", "FEED_CLEAN_SECONDS": "1", "CRM_BREAKER_SECONDS": "1",
}  # fmt: skip
SINKS = {"well": 200, "busy": 503, "gone": 410, "locked": 401, "picky": 422}
_IMPORTS = """
import json
from tests.programs.alerts import (
    crm_incidents, feed_incidents, incidents, notify_incidents, platform_incidents,
    retention_incidents, sms_incidents,
)
from django.db import connection
# All these programs write to the same file.
connection.cursor().execute("PRAGMA busy_timeout = 300000")
"""
_INCIDENTS = f"""{_IMPORTS}
every = incidents.INCIDENTS.values()
print(json.dumps({{one.kind: [one.says, one.is_for_person, one.act] for one in every}}))
"""
_KINDS = """
import json
from msgplatform.monitor import runbooks
print(json.dumps(list(runbooks.by_kind())))
"""
_PAGER = """
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
biz = Biz.objects.create(name="platform")
pager = Receive.objects.create(name="pager", url={url!r})
BizReceive.objects.create(biz=biz, receive=pager)
"""
_ALERTS = """
import json
from msgplatform.models import Alert
from notify.models import BizMsg, ColdBizMsg
rows = Alert.objects.order_by("id").values("kind", "key", "subject", "text", "open_key")
events = [
    [kind, json.loads(bytes(payload))["kind"]]
    for model in (BizMsg, ColdBizMsg)
    for kind, payload in model.objects.filter(event_type__startswith="platform.").values_list(
        "event_type", "payload")
]
print(json.dumps([list(rows), events]))
"""


class Stage(SmsCluster):
    """Programs in a hurry (`hasty_program.py`), and servers for what they speak to; without
    `mariadb` there is no database that CRM sync reads."""

    def __init__(
        self, folder: Path, mariadb: MariaDb | None, programs: tuple[str, ...] = PROGRAMS
    ) -> None:
        super().__init__(folder, f"sqlite:///{folder / 'platform.db'}", {}, programs)
        self.environment |= ENVIRONMENT
        self.environment["AUDIT_EXPORT"] = f"syslog://{folder / 'audit.sock'}"
        self.mariadb = mariadb
        self._open = ExitStack()
        self.places: dict[str, str] = {}

    def __enter__(self) -> Stage:
        self._open.enter_context(_syslog(self.folder / "audit.sock"))
        for name, status in SINKS.items():
            sink = SinkProcess(self.folder / f"{name}.seen", ["--status", str(status)])
            self.places[name] = self._open.enter_context(sink).url
        self.places["receiver"] = str(self.receiver_port)
        if self.mariadb is not None:
            self.places |= _shop(self.mariadb)
        super().__enter__()
        return self

    def fill_database(self) -> None:
        """With the consumer of alerts: an alert that a program raises before there is one is not
        published, except later by the maker."""
        super().fill_database()
        self.console.run(_PAGER.format(url=self.places["well"]))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._open.close()

    def _ready(self) -> bool:
        return True

    def _command(self, name: str) -> list[str]:
        if name == WEB:
            return super()._command(name)
        program = [sys.executable, "-m", "tests.programs.hasty_program", "alerts"]
        return [*program, name, *_ARGUMENTS.get(name, ())]

    # -- incidents -------------------------------------------------------------------------------
    def happen(self, act: int) -> None:
        self.console.run(f"{_IMPORTS}incidents.happen({self.places!r}, {act})")

    def repair(self) -> None:
        self.console.run(f"{_IMPORTS}incidents.repair()")

    def begin_without_programs(self) -> None:
        url = self.places["well"]
        self.console.run(f"{_IMPORTS}crm_incidents.begin_without_programs({url!r})")

    def end_without_programs(self) -> None:
        self.console.run(f"{_IMPORTS}crm_incidents.end_without_programs()")

    def incidents(self) -> dict[str, tuple[str, bool, int]]:
        """Kind → what its alert says, whether a person resolves it, in which act it happens."""
        return {kind: tuple(facts) for kind, facts in self.script(_INCIDENTS).items()}

    def break_subscriptions(self) -> list[str]:
        """Subscriptions of Notify that need a person; the keys of their alerts."""
        code = "print(json.dumps(notify_incidents.broken_subscriptions()))"
        return list(self.script(f"{_IMPORTS}{code}"))

    def mend_subscriptions(self) -> None:
        self.console.run(f"{_IMPORTS}notify_incidents.mended_subscriptions()")

    def open_keys(self) -> set[str]:
        rows, _events = self.alerts()
        return {row["key"] for row in rows if row["open_key"]}

    def kinds(self) -> set[str]:
        """Every kind of alert that somebody has written a runbook for."""
        return set(self.script(_KINDS))

    def alerts(self) -> tuple[list[Mapping[str, Any]], list[tuple[str, str]]]:
        """All alerts so far, and the published events: (its type, the alert's kind)."""
        rows, events = self.script(_ALERTS)
        return rows, [(event, kind.partition(":")[0]) for event, kind in events]

    def start_with_wrong_clock(self, name: str, seconds: float) -> None:
        """A further copy of a program, on a machine whose clock is ahead."""
        folder = self.folder / "wrong-clock"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(
            f"import time\nright = time.time\ntime.time = lambda: right() + {seconds}\n"
        )
        before = dict(self.environment)
        self.environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(Path.cwd())])
        running = self.processes.pop(name)
        self.start(name)
        self.processes[f"{name}-ahead"] = self.processes.pop(name)
        self.processes[name] = running
        self.environment = before


def _shop(mariadb: MariaDb) -> dict[str, str]:
    """A database that CRM sync reads."""
    import MySQLdb

    url = mariadb.create("shop")
    socket = url.partition("unix_socket=")[2]
    connection = MySQLdb.connect(unix_socket=socket, user="root", database="shop")
    connection.cursor().execute(
        "CREATE TABLE customer (id INT PRIMARY KEY, name VARCHAR(20), "
        "changed_at TIMESTAMP(6) NOT NULL, KEY (changed_at, id))"
    )
    connection.close()
    return {"source": url, "socket": socket}


def of(rows: list[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Alerts by kind; `platform.backlog:sms` is of `platform.backlog`."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["kind"].partition(":")[0], []).append(row)
    return found


@contextmanager
def _syslog(path: Path) -> Iterator[None]:
    """A daemon that takes what is sent to this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))

        def take() -> None:
            while listener.recv(65536) != b"end":
                pass

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"end", str(path))
        thread.join(60)
