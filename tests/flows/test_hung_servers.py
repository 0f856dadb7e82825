"""Each server that the platform talks to hangs, one after another, while callers ask for what needs
it. Every door that does not need it answers as before; the table of seconds is printed.

The clients of what hangs are more than the web server has threads.
"""

import json
import math
import os
import shutil
import socket
import sqlite3
import tempfile
import threading
import time
import urllib.error
import urllib.request
import xmlrpc.client
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bench import preload
from bench.harness import migrated
from bench.harness.mariadb import MariaDb
from tests.cluster import DAEMONS, MIGRATE, WEB
from tests.flows.sms_cluster import SmsCluster
from tests.servers import DatabaseServer
from tests.support.hanging_servers import hanging
from tests.support.http_sinks import Sink, answering

PROGRAMS = (WEB, *DAEMONS, "run_sync_poller", "run_sync_handler")
CALLERS = 24  # of what hangs; the web server has 16 threads
PAUSE_SECONDS = 0.5  # of a caller after an answer: refusals at once would only measure processors
ROUNDS = 2
# A quiet machine answers within 1 s (HUNG_MAX_SECONDS=1). The machine of tests is busy; without the
# bounds a door waits for 10 to 65 s.
MAX_SECONDS = float(os.environ.get("HUNG_MAX_SECONDS", "15"))
# Of programs: a poller looks each second, and a handler has its own rhythm.
MAX_ARRIVAL_SECONDS = max(MAX_SECONDS, 4.0)
ARRIVAL_SECONDS = 30.0
SET_UP = """
import json
from django.contrib.auth.models import User
from django.test import Client
from crmsync.models import Crm, LandingPage, Policy, Source
from gateway.models import SmsAccount, SmsGateway
from msgplatform.doors.api.access import keys
from msgplatform.company.alerting.models import AlertChannel
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
biz = Biz.objects.create(name="shop")
for name, url in (("well", {sink!r}), ("nameless", "http://a.hung.example/")):
    row = Receive.objects.create(name=name, url=url)
    BizReceive.objects.create(biz=biz, receive=row, event_types=["order." + name])
SmsGateway.objects.create(name="city", host="127.0.0.1", port={hung}, login_name="sp",
    login_password="secret", smg_login_name="city", smg_login_password="secret", corp_id="99999")
SmsAccount.objects.create(biz=biz, name="m", sp_number="10655", corp_id="99999", is_default=True)
LandingPage.objects.create(biz=biz, appkey="spring", title="Spring", form_fields=[
    {{"name": name, "required": False, "label": ""}} for name in ("name", "phone", "email")])
def crm(name, url):
    return Crm.objects.create(name=name, adapter="sql", credentials={{"url": url}}, settings={{
        "table": "customer", "key_column": "code", "version_column": "revision"}})
well, hung = crm("well", {crm!r}), crm("hung", "mysql://root@127.0.0.1:{hung}/crm")
source = Source.objects.create(name="hung", database="mysql://root@127.0.0.1:{hung}/shop",
    table="people", time_column="changed_at", value_columns=["name"])
for origin, target in ((Source.hive(), well), (Source.hive(), hung), (source, well)):
    Policy.objects.create(source=origin, crm=target, interval_seconds=1, mapping="name = name")
AlertChannel.objects.create(name="hung", url="json://127.0.0.1:{hung}/", shown="hung")
scopes = ["events:write", "events:read", "sms:write", "sms:read", "feed:write", "feed:read",
          "leads:write", "leads:read"]
client = Client()
client.force_login(User.objects.create_superuser("ann"))
print(json.dumps([keys.create(biz, "test", scopes)[1],
                  keys.create(None, "ops", ["manage:tests", "manage:systems"])[1],
                  client.cookies["sessionid"].value]))
"""
# Hung server → the doors that need it. The others answer as before.
NEEDS: Mapping[str, set[str]] = {
    "database": {"publish", "batch", "read", "sms", "sms state", "post", "timeline", "lead",
                 "systems", "xml-rpc", "landing page", "login page", "overview", "failures",
                 "metrics", "arrival", "sync"},
    "archive": set(),
    # Without it nobody knows what to do next; what was accepted waits.
    "work redis": {"arrival", "sync"},
    "sms redis": {"sms", "sms state", "xml-rpc"},
    "source": set(), "CRM": set(), "provider": set(), "alert channel": set(),
    "name server": set(),
}  # fmt: skip
# Status of an answer, whatever the door.
GOOD = {200, 201, 202, 302}


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Only the door that was asked is measured."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Platform:
    """The running platform with its doors."""

    _opener = urllib.request.build_opener(NoRedirects)

    def __init__(self, cluster: SmsCluster, sink: Sink, crm: Path, values: list[str]) -> None:
        self.cluster, self._sink, self._crm = cluster, sink, crm
        self.key, self.manager, self.session = values
        self._count = 0
        self.message = ""

    def ask(self, method: str, path: str, body: Any = None, manages: bool = False) -> int:
        """The status."""
        return self.call(method, f"/api/v1/{path}", body, self.manager if manages else self.key)[0]

    def call(self, method: str, path: str, body: Any, key: str) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        if not key:
            headers = {"Cookie": f"sessionid={self.session}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.cluster.base_url + path, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=120) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def xml_rpc(self) -> int:
        """The status, or that of a fault."""
        proxy: Any = xmlrpc.client.ServerProxy(f"{self.cluster.base_url}/rpc/")
        try:
            proxy.sms.send(self.key, "13800000000", "hello")
        except xmlrpc.client.Fault as fault:
            return int(fault.faultCode)
        return 200

    def page(self, path: str) -> int:
        return self.call("GET", path, None, "")[0]

    def doors(self) -> dict[str, Callable[[], int]]:
        event = {"event_type": "order.quiet", "payload": {"order": 7}}
        lead = {"appkey": "spring", "name": "Wang Wei", "phone": "13812345678"}
        text = {"to": "13800000000", "text": "hello"}
        return {
            "healthz": lambda: self.page("/healthz"),
            "publish": lambda: self.ask("POST", "messages", event),
            "batch": lambda: self.ask("POST", "messages/batch", {"messages": [event]}),
            "read": lambda: self.ask("GET", f"messages/{self.message}"),
            "sms": lambda: self.ask("POST", "sms", text),
            "sms state": lambda: self.ask("GET", "sms?limit=1"),
            "post": lambda: self.ask("POST", "feed/posts", {"uid": "ann", "data": "hello"}),
            "timeline": lambda: self.ask("GET", "feed/timelines/ann"),
            "lead": lambda: self.ask("POST", "leads", lead),
            "systems": lambda: self.ask("GET", "systems", manages=True),
            "xml-rpc": self.xml_rpc,
            "landing page": lambda: self.call("GET", "/l/spring", None, "-")[0],
            "login page": lambda: self.call("GET", "/admin/login/", None, "-")[0],
            "overview": lambda: self.page("/console/"),
            "failures": lambda: self.page("/console/failures"),
            "metrics": lambda: self.page("/metrics"),
            "arrival": self.arrival,
            "sync": self.sync,
        }

    def arrival(self) -> int:
        """An event comes to a consumer that is well."""
        self._count += 1
        name = f"order-{self._count}"
        event = {"event_type": "order.well", "payload": {"name": name}}
        status = self.ask("POST", "messages", event)
        self._wait(lambda: any(name.encode() in seen.body for seen in self._sink.requests))
        return status

    def sync(self) -> int:
        """A lead comes to a CRM that is well."""
        self._count += 1
        name = f"lead-{self._count}"
        status = self.ask(
            "POST", "leads", {"appkey": "spring", "name": name, "phone": "13812345678"}
        )
        self._wait(lambda: name in self._customer_names())
        return status

    def _customer_names(self) -> set[str]:
        with closing(sqlite3.connect(self._crm)) as crm:
            return {name for (name,) in crm.execute("SELECT name FROM customer")}

    def _wait(self, is_there: Callable[[], bool]) -> None:
        until = time.monotonic() + ARRIVAL_SECONDS
        while not is_there() and time.monotonic() < until:
            time.sleep(0.05)

    def seconds(self, names: Iterable[str]) -> dict[str, float]:
        """Door → the longest time of ROUNDS answers, infinity with an error among them."""
        doors, longest = self.doors(), dict.fromkeys(names, 0.0)
        for name in list(longest) * ROUNDS:
            begun = time.monotonic()
            is_good = doors[name]() in GOOD
            longest[name] = max(longest[name], time.monotonic() - begun if is_good else math.inf)
        return longest


def late_doors(seconds: Mapping[str, float]) -> dict[str, float]:
    return {
        name: took
        for name, took in seconds.items()
        if took > (MAX_ARRIVAL_SECONDS if name in {"arrival", "sync"} else MAX_SECONDS)
    }


@contextmanager
def asked(ask: Callable[[], object]) -> Iterator[None]:
    """CALLERS that ask for this again and again."""
    over = threading.Event()

    def ask_again() -> None:
        while not over.is_set():
            with suppress(OSError):
                ask()
            over.wait(PAUSE_SECONDS)

    threads = [threading.Thread(target=ask_again, daemon=True) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    time.sleep(1)  # all of them wait
    try:
        yield
    finally:
        over.set()


@pytest.fixture
def hung_port() -> Iterator[int]:
    """Connections are taken, and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def archive() -> Iterator[MariaDb]:
    folder = Path(tempfile.mkdtemp(prefix="mp-hung-"))
    server = DatabaseServer(folder).start()
    yield server
    server.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def platform(mariadb: MariaDb, archive: MariaDb, hung_port: int) -> Iterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="mp-hng-"))
    crm = folder / "customers.db"
    name = folder.name.replace("-", "_")
    cluster = SmsCluster(folder, mariadb.create(name), {}, PROGRAMS)
    cluster.environment |= {
        "COLD_DATABASE_URL": archive.create(f"{name}_cold"), "METRICS_TOKEN": "",
        "OIDC_ISSUER": f"http://127.0.0.1:{hung_port}", "OIDC_CLIENT_ID": "platform",
        "OIDC_CLIENT_SECRET": "a secret", "OIDC_ROLES": "ops=operator",
        "API_RATE_READ": "1000000/min",
        "LD_PRELOAD": str(preload.build("names", folder)),
        "NAMES_ANSWER": str(folder / "names-answer"),
    }  # fmt: skip
    with Sink(answering()) as sink, cluster:
        migrated.fill(
            cluster.environment["COLD_DATABASE_URL"],
            lambda: cluster.console.run(MIGRATE.replace("verbosity", 'database="cold", verbosity')),
            "cold",
        )
        cluster.console.run(
            f"import sqlite3; sqlite3.connect({str(crm)!r}).execute('CREATE TABLE customer "
            "(code VARCHAR(40) PRIMARY KEY, name TEXT, revision BIGINT)')"
        )
        urls = {"sink": sink.url(""), "hung": hung_port, "crm": f"sqlite:///{crm}"}
        values = cluster.script(SET_UP.format(**urls))
        yield Platform(cluster, sink, crm, values)
        (folder / "names-answer").touch()
    shutil.rmtree(folder, ignore_errors=True)


def test_who_needs_no_hung_server_is_not_held_up(
    platform: Platform, mariadb: MariaDb, archive: MariaDb
) -> None:
    _status, body = platform.call(
        "POST", "/api/v1/messages", {"event_type": "order.quiet", "payload": {}}, platform.key
    )
    platform.message = json.loads(body)["id"]
    unknown = str(int(platform.message) - (1 << 40))
    names = list(platform.doors())
    usual = platform.seconds(names)
    if late_doors(usual):
        usual = platform.seconds(names)
    assert math.inf not in usual.values(), usual
    stops: dict[str, Callable[[], Any]] = {
        "database": lambda: hanging(mariadb), "archive": lambda: hanging(archive),
        "work redis": lambda: hanging(platform.cluster.redis_server),
        "sms redis": lambda: hanging(platform.cluster.sms_server),
    }  # fmt: skip
    askers: dict[str, Callable[[], object]] = {
        "database": lambda: platform.page("/readyz"),
        "archive": lambda: platform.ask("GET", f"messages/{unknown}"),
        "work redis": lambda: platform.page("/readyz"),
        "sms redis": lambda: platform.ask(
            "POST", "sms/batch", {"messages": [{"to": "13800000000", "text": "hello"}]}
        ),
        "source": lambda: platform.ask("POST", "crms/hung/tests", manages=True),
        "CRM": lambda: platform.ask("POST", "crms/hung/tests/lead", {}, manages=True),
        "provider": lambda: platform.page("/console/sign-in/company"),
        "alert channel": lambda: platform.ask("POST", "alert-channels/hung/tests", manages=True),
        "name server": lambda: platform.ask(
            "POST", "subscriptions/shop/nameless/tests", {}, manages=True
        ),
    }
    table = {"(none)": usual}
    for server, needed in NEEDS.items():
        # A machine that stands still is late in one of two tries. Doors that a hung server holds up
        # are so in both; in each only the first of them is late, before the callers pause.
        for _ in range(2):
            with ExitStack() as stack:
                if server in stops:
                    stack.enter_context(stops[server]())
                stack.enter_context(asked(askers[server]))
                table[server] = platform.seconds(set(names) - needed)
            if server in stops:
                platform.cluster.wait_until(
                    lambda: platform.page("/readyz") == 200 == platform.xml_rpc(), "its end"
                )
            late = late_doors(table[server])
            if not late or math.inf in late.values():
                break
    print("| hung | " + " | ".join(names) + " |")
    for server, row in table.items():
        cells = [f"{row[name]:.2f}" if name in row else "–" for name in names]
        print(f"| {server} | " + " | ".join(cells) + " |")
    late = {server: late_doors(row) for server, row in table.items() if late_doors(row)}
    assert not late
