"""What the tests of the Agent share: a business system's database, and an intake that obeys."""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sqlparse
from django.db import connections

from bench.harness.mariadb import MariaDb
from msgplatform.core.rates.backoff import Backoff
from notify.agent.client import IntakeClient
from notify.agent.relay import Relay
from notify.agent.schema import ddl
from notify.agent.store import Store, add_database

KINDS = ["sqlite", "mariadb"]
KEY = "mp_a_key"
TIMEOUT_SECONDS = 60.0  # of a request: nothing but a safety net
INSERT = "INSERT INTO outbox (event_type, payload) VALUES ('order.paid', '{\"n\": %d}')"


class Shop:
    """A business system's database, spoken to in plain SQL by the driver, as any language would."""

    def __init__(self, kind: str, folder: Path, mariadb: MariaDb) -> None:
        self.kind = kind
        self.alias = f"outbox_{kind}"
        if kind == "mariadb":
            self._name = folder.name.replace("-", "_")
            self.url = mariadb.create(self._name)
            self._server = mariadb
        else:
            self._path = folder / "shop.db"
            self.url = f"sqlite:///{self._path}"

    def load_ddl(self) -> None:
        vendor = "mysql" if self.kind == "mariadb" else "sqlite"
        for statement in sqlparse.split(ddl(vendor)):
            self.execute(statement)

    def connect(self) -> Any:
        """A connection that opens a transaction with its first statement, as PEP 249 has it."""
        if self.kind == "mariadb":
            connection = self._server.connect(self._name)
            connection.autocommit(False)
            return connection
        return sqlite3.connect(self._path, timeout=120)

    def execute(self, statement: str) -> Sequence[Any]:
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            rows: Sequence[Any] = cursor.fetchall()
            connection.commit()
            return rows

    def insert(self, count: int, start: int = 0) -> None:
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            for n in range(start, start + count):
                cursor.execute(INSERT % n)
            connection.commit()

    def column(self, what: str, table: str = "outbox") -> list[Any]:
        return [row[0] for row in self.execute(f"SELECT {what} FROM {table} ORDER BY id")]

    def expire(self, condition: str = "1 = 1") -> None:
        """Rows are due now: whatever lease or pause they had is over."""
        self.execute(f"UPDATE outbox SET next_at = '2020-01-01 00:00:00' WHERE {condition}")


Answer = tuple[int, dict[str, str], bytes]
Script = Callable[[list[dict[str, Any]]], Answer]


def accept(messages: list[dict[str, Any]]) -> Answer:
    return verdicts([{"outcome": "created", "id": "1"} for _ in messages])


def verdicts(results: list[dict[str, str]]) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps({"results": results}).encode()


def problem(status: int, slug: str, **headers: str) -> Answer:
    body = {"type": f"/problems/{slug}", "title": "A title", "detail": f"because of {slug}"}
    return (
        status,
        {"Content-Type": "application/problem+json", **headers},
        json.dumps(body).encode(),
    )


@dataclass
class Intake:
    """An HTTP server in the intake's place; `script` says what it answers."""

    script: Script = accept
    requests: list[list[dict[str, Any]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    url: str = ""

    def seen(self) -> list[Any]:
        """The numbers in the payloads of everything that was sent, in order."""
        return [message["payload"]["n"] for request in self.requests for message in request]


@contextmanager
def intake() -> Iterator[Intake]:
    serving = Intake()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            messages = json.loads(body)["messages"]
            serving.bodies.append(body)
            serving.requests.append(messages)
            serving.headers.append({"path": self.path, **dict(self.headers.items())})
            status, headers, answer = serving.script(messages)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # until shutdown is seen
    thread.start()
    serving.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield serving
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def relays(
    shop: Shop, url: str, timeout: float = TIMEOUT_SECONDS, key: str = KEY
) -> Iterator[Callable[..., Relay]]:
    """Make Agents in this process, with pauses that a test can wait for, and long leases."""
    # An alias means one kind of database for the whole process.
    alias = add_database(shop.url, shop.alias)
    made: list[Relay] = []

    def make(**options: Any) -> Relay:
        options = {
            "idle": Backoff(0.001, 1, 0.001), "trouble": Backoff(0.001, 1, 0.001),
            "lease": 10 * TIMEOUT_SECONDS, **options,
        }  # fmt: skip
        client = IntakeClient(options.pop("url", url), lambda: key, timeout)
        made.append(Relay(Store(alias), client, **options))
        return made[-1]

    yield make
    for relay in made:
        relay.stop()
    del connections[alias]
    del connections.settings[alias]


Make = Callable[..., Relay]


# -- fixtures: `shop = pytest.fixture(params=KINDS)(agent_support.shop)`, and so on ----------------
def shop(request: pytest.FixtureRequest, tmp_path: Path, mariadb: MariaDb) -> Shop:
    """A business system's database of each kind, with the tables."""
    made = Shop(request.param, tmp_path, mariadb)
    made.load_ddl()
    return made


def an_intake() -> Iterator[Intake]:
    with intake() as serving:
        yield serving


def agents(shop: Shop, intake: Intake) -> Iterator[Make]:
    """Makes Agents between the two."""
    with relays(shop, intake.url) as make:
        yield make


def foreign_databases_only(django_db_blocker: Any) -> Iterator[None]:
    """Nothing here has the platform's own database: an Agent has none."""
    with django_db_blocker.unblock():
        yield


def until_empty(relay: Relay, shop: Shop, turns: int = 50) -> None:
    """Turn until the outbox is empty; rows that were pushed away are due again at once."""
    for _ in range(turns):
        relay.turn()
        if not shop.column("id"):
            return
        shop.expire()
    raise AssertionError(f"{len(shop.column('id'))} rows are left after {turns} turns")
