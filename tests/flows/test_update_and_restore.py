"""An installation of SMS and Notify gets the other flows; its backup under load is restored for
another user of a server with a binary log. What clients were told yes to, and what consumers and
handsets got, are compared: nothing is missing, and what comes twice can be told by id or key.
"""

import contextlib
import http.client
import json
import shutil
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import standardwebhooks
from django.conf import LazySettings
from redis import Redis

from bench.harness.mariadb import MariaDb
from gateway.lifecycle import keys
from msgplatform.core.secrets import encryption
from msgplatform.core.servers.private_server import RedisServer
from notify.subscriptions import signing
from tests.cluster import WEB, Console, times_of_notify
from tests.flows.sms_cluster import SmsCluster
from tests.program_host import run_program
from tests.redis_client import connect
from tests.servers import DatabaseServer
from tests.support.http_sinks import Seen, Sink, answering

DATABASE = "plat"
NOTIFY, SMS = (WEB, "run_maker", "run_sender", "run_marker"), (
    "sender-a", "receiver", "forwarder", "pump",
)  # fmt: skip
WAITING, PENDING, EXHAUSTED = 20, 10, 5
# Without Feed and CRM sync.
OLD_STATE = """
import django
django.setup()
from datetime import timedelta
from django.core.management import call_command
from django.utils import timezone
from gateway.models import SmsAccount, SmsGateway
from msgplatform.core.data import ids
from msgplatform.models import Biz
from notify.models import BizMsg, BizReceive, Receive, ReceiveMsg
call_command("migrate", verbosity=0, skip_checks=True)
now = timezone.now()
biz = Biz.objects.create(name="shop")
consumer = Receive.objects.create(
    name="warehouse", url={url!r}, secret={secret!r}, headers={{"x-team": "stock"}})
row = BizReceive.objects.create(biz=biz, receive=consumer, schedule=[1, 1, 2, 600])
first = ids.first_id_at(now - timedelta(seconds=60))
for n in range({waiting} + {pending} + {exhausted}):
    pk = first + (n << 15)
    is_split = n >= {waiting}
    BizMsg.objects.create(
        id=pk, biz=biz, event_type="old.event", payload=b"1", state=int(is_split), created_at=now)
    if is_split:
        is_over = n >= {waiting} + {pending}
        ReceiveMsg.objects.create(
            id=pk + 1, msg_id=pk, biz=biz, biz_receive=row, status=4 if is_over else 0,
            send_times=4 if is_over else 1, next_at=now, created_at=now, updated_at=now)
SmsGateway.objects.create(
    name="city", host="127.0.0.1", port={port}, login_name="sp", login_password="secret",
    smg_login_name="city", smg_login_password="secret", corp_id="99999")
SmsAccount.objects.create(
    biz=biz, name="m", sp_number="10655", corp_id="99999", is_default=True)
"""
UPDATED = """
import json
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import ReceiveMsg
scopes = ["events:write", "sms:write", "sms:read"]
print(json.dumps({
    "token": keys.create(Biz.objects.get(), "test", scopes)[1],
    "exhausted": ReceiveMsg.objects.filter(status=4).count()}))
"""
LEFT = """
import json
from gateway.models import SgipMt
from notify.models import BizMsg, IdempotencyKey, ReceiveMsg
print(json.dumps({
    "ids": list(BizMsg.objects.values_list("id", flat=True)),
    "open": ReceiveMsg.objects.filter(status__lt=3).count()
        + BizMsg.objects.filter(state=0).count(),
    "archived": SgipMt.objects.count()}))
"""
ALIVE = """
from msgplatform.core.daemons import heartbeats
print(len(heartbeats.alive()))
"""
LEAD = """
from crmsync.intake.intake import NewLead, add
print(add(NewLead(1, "a", name="Ann")).outcome)
"""


class Client(threading.Thread):
    """Hands over events and texts with keys, and writes down what was answered."""

    def __init__(self, cluster: SmsCluster, token: str) -> None:
        super().__init__(daemon=True)
        self._port, self._token = cluster.port, token
        self.over = threading.Event()
        self.events: dict[str, str] = {}  # key → id
        self.texts: dict[str, str] = {}

    def run(self) -> None:
        number = 0
        while not self.over.wait(0.1):
            number += 1
            # The platform is busy, or has been killed: what got no answer is not in the account.
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.events[f"e{number}"] = self.event(f"e{number}")[1]
                if number % 3 == 0:
                    self.texts[f"t{number}"] = self.text(f"t{number}")[1]

    def event(self, key: str) -> tuple[int, str]:
        body = {"event_type": "order.paid", "payload": {"order": key}, "idempotency_key": key}
        status, answer = self.ask("POST", "/api/v1/messages", body)
        return status, str(answer["id"])

    def text(self, key: str) -> tuple[int, str]:
        to = f"138{int(key[1:]):08d}"
        body = {"to": [to], "text": "hello", "idempotency_key": key}
        status, answer = self.ask("POST", "/api/v1/sms", body)
        return status, str(answer["ids"][0])

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.status == 429 or response.status >= 500:
            raise OSError(content)
        return response.status, json.loads(content)


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mp-up-"))  # short: a socket's path has only 107 bytes
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server(folder: Path) -> Iterator[MariaDb]:
    options: dict[str, str | int] = {
        "log_bin": str(folder / "binlog"), "innodb_flush_log_at_trx_commit": 2,
    }  # fmt: skip
    server = DatabaseServer(folder / "db", options).start()
    server.execute(f"CREATE DATABASE {DATABASE}")
    for user in ("plat", "app2"):
        server.execute(f"CREATE USER {user}@localhost")
        server.execute(f"GRANT ALL ON {DATABASE}.* TO {user}@localhost")
    yield server
    server.kill()


def url(server: MariaDb, user: str) -> str:
    return f"mysql://{user}@localhost/{DATABASE}?unix_socket={quote(str(server.socket))}"


def run(cluster: SmsCluster, *words: str, **variables: str) -> tuple[int, str]:
    done = run_program([sys.executable, *words], {**cluster.environment, **variables})
    return done.returncode, done.stdout + done.stderr


def update(cluster: SmsCluster, server: MariaDb, sink: Sink, secret: str) -> None:
    """The old state, and that `migrate` says beforehand what the server needs."""
    code = OLD_STATE.format(
        url=sink.url(), secret=secret, port=cluster.ports["city"], waiting=WAITING,
        pending=PENDING, exhausted=EXHAUSTED,
    )  # fmt: skip
    state = {"STATE_DIR": str(cluster.folder / "old")}
    done, said = run(cluster, "-c", code, FLOWS="notify,gateway", **state)
    assert done == 0, said
    done, said = run(cluster, "manage.py", "migrate", **state)
    assert (done, "log_bin_trust_function_creators" in said) == (1, True)
    server.execute("SET GLOBAL log_bin_trust_function_creators = 1")


def back_up(cluster: SmsCluster) -> Path:
    """A backup while everything runs; the copy of the SMS Redis starts, and is of that time."""
    folder = cluster.folder / "copy"
    counts = [accepted_texts(cluster.sms)]
    code, said = run(
        cluster, "manage.py", "backup", str(folder), "--keys", str(cluster.folder / "keys")
    )
    assert (code, "The backup is whole" in said) == (0, True), said
    assert (
        cluster.environment["ENCRYPTION_KEY"]
        in (cluster.folder / "keys" / "encryption_key").read_text()
    )
    shutil.copytree(folder / "redis-sms", cluster.folder / "copied-sms")
    with RedisServer(
        cluster.folder / "copied-sms", cluster.folder / "copy.sock", appendonly=True
    ) as copied:
        counts.append(accepted_texts(connect(copied.url)))
    counts.append(accepted_texts(cluster.sms))
    assert 0 < counts[0] <= counts[1] <= counts[2], counts
    return folder


def accepted_texts(sms: Redis) -> int:
    return int(sms.get(keys.MT_COUNT) or 0)


def restore(cluster: SmsCluster, server: MariaDb, backup: Path) -> None:
    """As docs/backup.md has it, for another user."""
    command = ("manage.py", "restore", str(backup))
    server.execute(f"DROP DATABASE {DATABASE}")
    server.execute(f"CREATE DATABASE {DATABASE}")
    server.execute("DROP USER plat@localhost")
    cluster.environment["DATABASE_URL"] = url(server, "app2")
    cluster.console.close()
    cluster.console = Console(cluster.environment, cluster.folder / "console.log")
    cluster.wait_until(lambda: cluster.script(ALIVE) == 0, "heartbeats of killed programs to end")
    code, said = run(cluster, *command, ENCRYPTION_KEY=encryption.new_key())
    assert (code, "ENCRYPTION_KEY is not the one" in said) == (1, True), said
    code, said = run(cluster, *command)
    assert code == 0, said


def orders(sink: Sink) -> dict[str, set[str]]:
    """Key → ids under which its event came."""
    found: dict[str, set[str]] = defaultdict(set)
    for seen in list(sink.requests):
        if b'"order.paid"' in seen.body:
            found[seen.headers["webhook-idempotency-key"]].add(seen.headers["webhook-id"])
    return found


def reported(sink: Sink) -> set[str]:
    """Texts of which the business system heard that they were delivered."""
    return {
        str(body["data"]["id"])
        for seen in list(sink.requests)
        if (body := json.loads(seen.body))["type"] == "sms.report"
        and body["data"]["state"] == "delivered"
    }


def old_ones(sink: Sink) -> list[Seen]:
    return [seen for seen in list(sink.requests) if b'"old.event"' in seen.body]


def ids_of(requests: list[Seen]) -> set[str]:
    return {seen.headers["webhook-id"] for seen in requests}


def test_nothing_is_lost(folder: Path, server: MariaDb, settings: LazySettings) -> None:
    secret = signing.new_secret()
    cluster = SmsCluster(folder, url(server, "plat"), {"city": []}, programs=NOTIFY)
    # What was in hand at the dump comes again when its lease is over.
    cluster.environment |= times_of_notify(20)
    with Sink(answering()) as sink:
        update(cluster, server, sink, secret)
        with cluster:
            settings.SMS_REDIS_URL = cluster.sms_server.url
            state = cluster.script(UPDATED)
            assert state["exhausted"] == EXHAUSTED
            for name in ("city", *SMS):
                cluster.start(name)
            cluster.wait_until(
                lambda: len(ids_of(old_ones(sink))) == WAITING + PENDING,
                "what the old release accepted",
            )
            for seen in old_ones(sink):
                standardwebhooks.Webhook(secret).verify(seen.body, seen.headers)
                assert seen.headers["x-team"] == "stock"
            # A dump under load, and then the machine is lost.
            client = Client(cluster, state["token"])
            client.start()
            cluster.wait_until(lambda: len(reported(sink)) > 5, "texts to be delivered")
            backup = back_up(cluster)
            code, said = run(cluster, "manage.py", "restore", str(backup))
            assert (code, "Stop every program first" in said) == (1, True), said
            before = len(reported(sink))
            cluster.wait_until(lambda: len(reported(sink)) > before + 10, "more of them")
            for name in (*NOTIFY, *SMS):
                cluster.kill(name)
            client.over.set()
            client.join(60)
            restore(cluster, server, backup)
            kept = set(map(str, cluster.script(LEFT)["ids"]))
            assert set(client.events.values()) - kept, "some were accepted after the backup"
            for name in (*NOTIFY, *SMS):
                cluster.start(name)
            cluster.wait_until(cluster._ready, "the web server")
            # Business systems hand over again what they have an answer for.
            for key, id in client.events.items():
                assert client.event(key) == (200, id) if id in kept else client.event(key)[0] == 202
            assert [client.text(key) for key in client.texts] == [
                (200, id) for id in client.texts.values()
            ], "nobody gets a text twice"
            compare(cluster, client, sink, kept)


def compare(cluster: SmsCluster, client: Client, sink: Sink, kept: set[str]) -> None:
    cluster.wait_until(
        lambda: (
            client.events.keys() <= orders(sink).keys()
            and set(client.texts.values()) <= reported(sink)
            and cluster.script(LEFT)["open"] == 0
        ),
        "everything to arrive",
    )
    came = orders(sink)
    for key, id in client.events.items():
        if id in kept:
            assert came[key] == {id}
    assert len(ids_of(old_ones(sink))) == WAITING + PENDING
    taken = cluster.books["city"].accepted()
    for key, id in client.texts.items():
        assert len(taken[f"86138{int(key[1:]):08d}", "1/1"]) == 1, "to each handset once"
        cluster.wait_until(
            lambda id=id: client.ask("GET", f"/api/v1/sms/{id}")[1].get("state") == "delivered",
            f"the text {id} to be known",
        )
    assert cluster.console.run(LEAD).split() == ["created"]
