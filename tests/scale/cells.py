"""Two whole platforms as cells behind the shipped nginx, and clients with books."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from bench.harness import migrated
from bench.harness.mariadb import MariaDb
from demo.sink_process import SinkProcess
from msgplatform.core.servers.private_server import RedisServer
from tests.cluster import DAEMONS, MIGRATE, WEB, Cluster
from tests.redis_client import connect
from tests.support.cells_proxy import HOST, CellsProxy

CELLS = 16
MESSAGES = "/api/v1/messages"
_SET_CELL = """
from django.core.management import call_command
call_command("set_cell")
"""
_NEW_SYSTEM = """
import json
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
biz = Biz.objects.create(name={name!r})
for name, url in {consumers!r}.items():
    receive = Receive.objects.create(name=name, url=url)
    BizReceive.objects.create(biz=biz, receive=receive, schedule=[1, 1, 2, 2, 5, 600])
print(json.dumps(keys.create(biz, "test", ["events:write", "events:read"])[1]))
"""
_RETRY_SECONDS = 0.1
_PATIENCE_SECONDS = 300.0


class CellCluster(Cluster):
    """Cell `number`: a platform with its own MariaDB and its own Redis servers."""

    def __init__(self, folder: Path, number: int) -> None:
        folder.mkdir()
        self.database = MariaDb(folder / "db", {"innodb_flush_log_at_trx_commit": 2})
        self.database.start()
        super().__init__(folder, self.database.create("platform"))
        self.number = number
        self.sms_server = RedisServer(folder / "sms", folder / "sms.sock", appendonly=True)
        self.environment |= {
            "CELL": f"{number}/{CELLS}",
            "SMS_REDIS_URL": self.sms_server.url,
            "ALLOWED_HOSTS": f"{HOST},127.0.0.1,localhost",
        }
        self.console._environment = self.environment

    def __enter__(self) -> CellCluster:
        (self.folder / "state").mkdir()
        self.redis_server.start()
        self.sms_server.start()
        self.redis = connect(self.redis_server.url)
        self.console.start()
        url = self.environment["DATABASE_URL"]
        migrated.fill(url, lambda: self.console.run(MIGRATE), "a cell")
        self.console.run(_SET_CELL)
        for name in (WEB, *DAEMONS):
            self.start(name)
        self.wait_until(self._ready, "the web server to be ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.sms_server.kill()
        self.database.kill()

    def new_system(self, name: str, consumers: Mapping[str, str]) -> str:
        """The API key of a new system with these consumers."""
        return str(self.script(_NEW_SYSTEM.format(name=name, consumers=dict(consumers))))

    def waits(self) -> int:
        """Deliveries and messages that have not ended."""
        return int(self.script(
            "from notify.models import BizMsg, ReceiveMsg\n"
            "s = ReceiveMsg.Status\n"
            "print(ReceiveMsg.objects.exclude(status__in=[s.DELIVERED, s.HELD]).count()"
            " + BizMsg.objects.filter(state=0).count())"
        ))  # fmt: skip

    def message_ids(self) -> set[str]:
        """Every message that its database has."""
        code = "from notify.models import BizMsg\nimport json\nprint(json.dumps([str(i) for i in"
        return set(self.script(f"{code} BizMsg.objects.values_list('id', flat=True)]))"))


@dataclass
class Book:
    """What the clients of one system saw; times are seconds since the load began."""

    ids_by_key: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    waits: list[tuple[float, float]] = field(default_factory=list)  # when due, until accepted
    statuses: Counter[int] = field(default_factory=Counter)  # 0: no answer

    @property
    def ids(self) -> set[str]:
        return {id for ids in self.ids_by_key.values() for id in ids}

    def waits_between(self, begin: float, end: float) -> list[float]:
        """Ascending."""
        return sorted(wait for due, wait in self.waits if begin <= due < end)


class Load:
    """Publishes at a fixed rate through the proxy, each message until it is accepted: an open loop.

    Every `repeat_every`-th message is sent again with its key `repeat_after` seconds later. A
    connection that fails goes to `port`, which may change.
    """

    def __init__(self, port: int, keys: Mapping[str, str], rate: float, clients: int = 8) -> None:
        self.port, self._keys, self._rate = port, dict(keys), rate
        self.books = {system: Book() for system in keys}
        self.repeat_every, self.repeat_after = 5, 6.0
        self._stopping, self._begin = threading.Event(), time.monotonic()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._publish, args=(system, place, clients))
            for system in keys
            for place in range(clients)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def now(self) -> float:
        return time.monotonic() - self._begin

    def _publish(self, system: str, place: int, clients: int) -> None:
        """The messages `place`, `place + clients` and so on of a system, each when it is due."""
        book, number = self.books[system], place
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        repeats: list[tuple[float, str]] = []
        while not self._stopping.is_set() or repeats:
            if repeats and (self._stopping.is_set() or repeats[0][0] <= self.now()):
                self._send(connection, system, book, repeats.pop(0)[1])
                continue
            due = number / self._rate
            if (pause := due - self.now()) > 0:
                self._stopping.wait(min(pause, 0.05))
                continue
            key = f"{system}-{number}"
            self._send(connection, system, book, key)
            with self._lock:
                book.waits.append((due, self.now() - due))
            if number // clients % self.repeat_every == 0:
                repeats.append((self.now() + self.repeat_after, key))
            number += clients
        connection.close()

    def _send(
        self, connection: http.client.HTTPConnection, system: str, book: Book, key: str
    ) -> None:
        body = json.dumps({"event_type": "a.b", "payload": {"k": key}, "idempotency_key": key})
        headers = {
            "Authorization": f"Bearer {self._keys[system]}",
            "Content-Type": "application/json",
            "Host": HOST,
        }
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            status, text = 0, b""
            if connection.sock and select.select([connection.sock], [], [], 0)[0]:
                connection.close()  # as libcurl does: the proxy has closed it while it was idle
            try:
                connection.request("POST", MESSAGES, body.encode(), headers)
                response = connection.getresponse()
                status, text = response.status, response.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                connection.port = self.port
            with self._lock:
                book.statuses[status] += 1
                if status in (200, 202):
                    book.ids_by_key[key].add(str(json.loads(text)["id"]))
                    return
            assert time.monotonic() < deadline, f"{key} was never accepted: {status} {text[:300]!r}"
            time.sleep(_RETRY_SECONDS)


@contextlib.contextmanager
def two_cells(folder: Path) -> Iterator[tuple[dict[int, CellCluster], CellsProxy]]:
    """Cells 0 and 1 of 16, and the proxy in front of them."""
    with contextlib.ExitStack() as stack:
        cells = {n: stack.enter_context(CellCluster(folder / f"c{n}", n)) for n in (0, 1)}
        (folder / "nginx").mkdir()
        proxy = CellsProxy(folder / "nginx", {n: cell.port for n, cell in cells.items()})
        proxy.start()
        stack.callback(proxy.stop)
        yield cells, proxy


@contextlib.contextmanager
def sinks(folder: Path, *names: str) -> Iterator[dict[str, SinkProcess]]:
    """Consumers as processes, by name."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(SinkProcess(folder / f"{name}.seen")) for name in names}
