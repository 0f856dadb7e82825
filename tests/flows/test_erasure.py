"""One person's data is erased while programs work with it, and once more after a restore.

Two people come in through the public entrances of all four flows. Some of it is delivered, some
fails, some is archived, some still waits. Then all that is stored is read: dumps of both databases,
both Redis, the logs and STATE_DIR.
"""

import asyncio
import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from bench.harness import migrated
from bench.harness.mariadb import MariaDb
from tests.cluster import DAEMONS, WEB, Console, times_of_notify
from tests.flows import dumps
from tests.flows.sms_cluster import SmsCluster
from tests.program_host import run_program
from tests.support.http_sinks import Sink
from tests.support.person_world import ANN, BOB, FIELDS, Someone

SMS = ("sender-a", "receiver", "forwarder", "pump")
PROGRAMS = (WEB, *DAEMONS, "run_archiver", "run_bulk", "run_feed_dispatcher", "run_sync_poller",
            "run_sync_handler")  # fmt: skip
MAX_MO = 60  # characters; a longer text has several parts
SET_UP = """
import json
from crmsync.models import Crm, LandingPage, Policy, Source
from gateway.models import SmsAccount, SmsGateway
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, EventType, Receive
biz = Biz.objects.create(name="shop")
ways = ("good", "/good", [1] * 9), ("bad", "/bad", []), ("later", "/bad", [3600])
for name, path, schedule in ways:
    EventType.objects.create(name=f"order.{{name}}", personal_fields={fields!r})
    row = Receive.objects.create(name=name, url={sink!r} + path)
    BizReceive.objects.create(biz=biz, receive=row, event_types=[f"order.{{name}}"],
                              schedule=schedule, attempts_limit=None if schedule else 1)
SmsGateway.objects.create(name="city", host="127.0.0.1", port={port}, login_name="sp",
    login_password="secret", smg_login_name="city", smg_login_password="secret", corp_id="99999")
SmsAccount.objects.create(biz=biz, name="m", sp_number="10655", corp_id="99999", is_default=True)
LandingPage.objects.create(biz=biz, appkey="spring", title="Spring", form_fields=[
    {{"name": name, "required": False, "label": ""}} for name in ("name", "phone", "email")])
crm = Crm.objects.create(name="customers", adapter="sql", settings={{"table": "customer",
    "key_column": "code", "version_column": "revision"}}, credentials={{"url": {crm!r}}})
Policy.objects.create(source=Source.hive(), crm=crm, interval_seconds=1,
                      mapping="name = name\\nphone = phone\\nemail = extra.email or null")
scopes = ["events:write", "sms:write", "sms:read", "feed:write", "feed:read", "leads:write"]
print(json.dumps([keys.create(biz, "test", scopes)[1],
                  keys.create(None, "officer", ["manage:person-data", "manage:jobs"])[1]]))
"""
AT_REST = """
import json
from crmsync.models import Record
from gateway.models import SgipMo, SgipMt
from notify.feed.models import EventQueue
from notify.models import BizMsg, ColdBizMsg, ReceiveMsg
print(json.dumps([
    SgipMt.objects.count(), SgipMo.objects.count(),
    Record.objects.filter(state=Record.State.CONFIRMED).count(),
    EventQueue.objects.exclude(status=1).count(),
    ColdBizMsg.objects.filter(event_type__in=["order.good", "sms.report", "sms.mo"]).count(),
    ReceiveMsg.objects.filter(status=4).count(), ReceiveMsg.objects.filter(status=0).count(),
    BizMsg.objects.filter(state=0).count()]))
"""
COUNTS = """
import json
from django.db.models import Sum
from msgplatform.models import MinuteCounter
rows = MinuteCounter.objects.values_list("flow", "name").annotate(Sum("value"))
print(json.dumps({f"{flow} {name}": int(value) for flow, name, value in rows}))
"""
ERASURE = """
import json
from msgplatform.company.person_data.models import Erasure
print(json.dumps(Erasure.objects.values("state", "passes", "open", "erased").get()))
"""
ERASURES = """
import json
from msgplatform.company.person_data.models import Erasure
print(json.dumps(list(Erasure.objects.values_list("state", flat=True))))
"""
MIGRATE_COLD = """
from django.core.management import call_command
call_command("migrate", database="cold", verbosity=0)
"""


async def answer(sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A consumer that repeats what it got; /bad refuses it."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.lower().split(b"\r\n") if b"content-length" in line
    )
    body = await reader.readexactly(length)
    status = b"422 No" if b"/bad" in head.split(b"\r\n")[0] else b"200 OK"
    said = b"I got " + body
    writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(said)) + said)
    await writer.drain()
    writer.close()


class Platform:
    """The running platform, with the keys of a business system and of the officer for data."""

    def __init__(self, cluster: SmsCluster, server: MariaDb, names: list[str]) -> None:
        self.cluster, self._server, self._names = cluster, server, names
        self.crm = cluster.folder / "customers.db"

    def ask(self, method: str, path: str, body: Any = None, manages: bool = False) -> Any:
        request = urllib.request.Request(
            f"{self.cluster.base_url}/api/v1/{path}",
            json.dumps(body).encode() if body is not None else None,
            method=method,
            headers={"Authorization": f"Bearer {self.keys[manages]}",
                     "Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def set_up(self, sink: Sink) -> None:
        with closing(sqlite3.connect(self.crm)) as connection:
            connection.execute("PRAGMA journal_mode = wal")
            connection.execute(
                "CREATE TABLE customer (code VARCHAR(40) PRIMARY KEY, name TEXT, phone TEXT, "
                "email TEXT, revision BIGINT)"
            )
        self.keys = self.cluster.script(
            SET_UP.format(
                fields=FIELDS, sink=sink.url(""), port=self.cluster.ports["city"],
                crm=f"sqlite:///{self.crm}",
            )
        )  # fmt: skip

    def plant(self, someone: Someone) -> None:
        """What business systems, visitors and handsets hand over."""
        customer = {"name": someone.name, "phone": someone.spellings[2], "email": someone.email,
                    "id": someone.uid}  # fmt: skip
        for event_type in ("order.good", "order.bad", "order.later"):
            body = {"event_type": event_type, "payload": {"order": 7, "customer": customer},
                    "idempotency_key": f"{event_type}-{someone.phone}"}  # fmt: skip
            self.ask("POST", "messages", body)
        text = {"to": [someone.spellings[1]], "text": f"Hello {someone.name}"}
        self.ask("POST", "sms", {**text, "reference": someone.phone})
        self.cluster.deliver("city", f"86{someone.phone}", "10655", f"from {someone.name}")
        lead = {"appkey": "spring", "name": someone.name, "phone": someone.spellings[3],
                "uid": someone.uid, "extra": {"email": someone.email}}  # fmt: skip
        self.ask("POST", "leads", lead)
        follow = {"action": "follow", "uid": f"fan-of-{someone.phone[-3:]}", "other": someone.uid}
        self.ask("POST", "feed/relations", follow)
        post = {"uid": someone.uid, "topic": "vip", "data": f"this is {someone.name}"}
        self.ask("POST", "feed/posts", post)

    def plant_spellings(self, someone: Someone) -> dict[str, int]:
        """The number and the address in each spelling: in a field, in a sentence, in a lead, as a
        recipient, as a user, in a text from a handset. How many of each were accepted."""
        name, own = someone.name, [*someone.numbers, *someone.addresses]
        customers = [{"name": name, "phone": text} for text in own]
        payloads = [{"order": n, "customer": customer} for n, customer in enumerate(customers)]
        sentences = [f"ask {text}, please" for text in (*own, *someone.encoded)]
        notes = [{"note": text, "url": "https://shop.example/?q=1"} for text in sentences]
        events = [{"event_type": "order.good", "payload": payload} for payload in payloads + notes]
        leads = [
            {"appkey": "spring", "name": name, "phone": text, "extra": {"email": address}}
            for text, address in zip(someone.numbers, cycle(someone.addresses), strict=False)
        ]
        texts = [{"to": text, "text": f"Hello {name}"} for text in someone.numbers]
        posts = [{"uid": text, "topic": "vip", "data": f"this is {name}"} for text in own]
        accepted = {
            kind: self.ask_many(path, items)
            for kind, path, items in (
                ("events", "messages", events), ("leads", "leads", leads), ("texts", "sms", texts),
                ("posts", "feed/posts", posts),
            )
        }  # fmt: skip
        mos = [text for text in sentences if len(text) <= MAX_MO]
        for n, text in enumerate(mos):
            self.cluster.deliver("city", f"86137000001{n:02}", "10655", text)
        return {**accepted, "mos": len(mos)}

    def ask_many(self, path: str, items: list[dict[str, Any]]) -> int:
        """How many of them a batch accepts; spellings that are no number there are refused."""
        name = path.rpartition("/")[2]
        answer = self.ask("POST", f"{path}/batch", {name if name != "sms" else "messages": items})
        return sum(verdict["outcome"] == "created" for verdict in answer["results"])

    def held(self) -> dict[str, list[bytes]]:
        """Everything that is stored, by place."""
        cluster = self.cluster
        files = [*cluster.folder.glob("*.log"), *(cluster.folder / "state").rglob("*")]
        # The simulated gateway is not the platform's.
        own = [each for each in files if each.is_file() and each.name != "city.log"]
        return {
            "hot": list(dumps.database(cluster.environment["DATABASE_URL"])),
            "cold": list(dumps.database(cluster.environment["COLD_DATABASE_URL"])),
            "dump": self.dumps(),
            "work redis": list(dumps.redis(cluster.redis)),
            "sms redis": list(dumps.redis(cluster.sms)),
            **{f"file {each.name}": list(content(each)) for each in own},
        }

    def places_of(self, someone: Someone) -> set[str]:
        needles = {each.decode() for each in someone.needles}
        return {place for place, held in self.held().items() if dumps.found(needles, iter(held))}

    def rows(self, someone: Someone) -> set[tuple[str, tuple[bytes, ...]]]:
        """Every row of both databases in which something of this person stands."""
        found = set()
        for name in self._names:
            connection = self._server.connect(name)
            with closing(connection), connection.cursor() as cursor:
                cursor.execute("SHOW TABLES")
                for (table,) in cursor.fetchall():
                    cursor.execute(f"SELECT * FROM {table}")
                    for row in cursor.fetchall():
                        values = tuple(v if isinstance(v, bytes) else str(v).encode() for v in row)
                        if any(needle in v for v in values for needle in someone.needles):
                            found.add((table, tuple(own_part(someone, v) for v in values)))
        return found

    def crm_names(self) -> list[str]:
        with closing(sqlite3.connect(self.crm)) as connection:
            return sorted(row[0] for row in connection.execute("SELECT name FROM customer"))

    # -- backups ---------------------------------------------------------------------------------
    def dumps(self) -> list[bytes]:
        """A logical dump of each database with a line for each row, to be searched."""
        return [
            self._mysql("mariadb-dump", "--single-transaction", "--routines", "--triggers",
                        "--skip-extended-insert", "--databases", name)
            for name in self._names
        ]  # fmt: skip

    def _mysql(self, program: str, *words: str, given: bytes | None = None) -> bytes:
        command = [program, f"--socket={self._server.socket}", "--user=root", *words]
        for _ in range(5):  # a partition was made meanwhile: error 1412
            with contextlib.suppress(subprocess.CalledProcessError):
                return subprocess.run(
                    command, input=given, stdout=subprocess.PIPE, timeout=300, check=True
                ).stdout
        raise AssertionError(f"{program} failed again and again")

    def restore(self, backups: list[bytes]) -> None:
        for name, dump in zip(self._names, backups, strict=True):
            self._server.execute(f"DROP DATABASE `{name}`")
            self._mysql("mariadb", given=dump)
        self.cluster.console.close()
        self.cluster.console = Console(
            self.cluster.environment, self.cluster.folder / "console.log"
        )
        self.cluster.redis.flushdb()
        done = run_program([sys.executable, "manage.py", "sms_recover"], self.cluster.environment)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, *names: str) -> None:
        for name in names:
            self.cluster.start(name)


@pytest.fixture
def platform(mariadb: MariaDb) -> Iterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="mp-ers-"))  # short: a socket's path has only 107 bytes
    names = [folder.name.replace("-", "_") + part for part in ("", "_cold")]
    hot, cold = map(mariadb.create, names)
    cluster = SmsCluster(folder, hot, {"city": []}, PROGRAMS)
    cluster.environment |= {
        "COLD_DATABASE_URL": cold, "NOTIFY_KEEP_DAYS": "0", "NOTIFY_KEEP_FAILED_DAYS": "30",
        "CRM_LEASE_SECONDS": "20", **times_of_notify(20),
    }  # fmt: skip
    with cluster:
        migrated.fill(cold, lambda: cluster.console.run(MIGRATE_COLD), "cold")
        yield Platform(cluster, mariadb, names)
    shutil.rmtree(folder, ignore_errors=True)


def content(file: Path) -> Iterator[bytes]:
    """Nothing of a file that was replaced since it was listed."""
    with contextlib.suppress(FileNotFoundError):
        yield file.read_bytes()


def own_part(someone: Someone, value: bytes) -> bytes:
    """What a value holds of the person: of a list, as an operation's requests, their elements."""
    with contextlib.suppress(ValueError):
        if value.startswith(b"["):
            elements = [json.dumps(each, ensure_ascii=False) for each in json.loads(value)]
            own = [each for each in elements if any(n.decode() in each for n in someone.needles)]
            return "\n".join(own).encode()
    return value


def identifiers(someone: Someone) -> dict[str, list[str]]:
    return {"phones": [someone.spellings[0]], "emails": [someone.email],
            "users": [f"shop/{someone.uid}"]}  # fmt: skip


def resending(platform: Platform, over: threading.Event) -> None:
    """Somebody sends again whatever failed, all the time."""
    body = {"flow": "notify", "action": "resend", "filter": {"subscription": "shop/bad"}}
    while not over.wait(0.5):
        platform.ask("POST", "jobs", body, manages=True)


def erase(platform: Platform) -> dict[str, Any]:
    """Ann, while failures are sent again; her event that waits for an hour is ended by hand."""
    cluster = platform.cluster
    over = threading.Event()
    resender = threading.Thread(target=resending, args=(platform, over), daemon=True)
    resender.start()
    body = {**identifiers(ANN), "reason": "asked for by mail"}
    key = platform.ask("POST", "person-data/erasures", body, manages=True)["key"]
    shown: dict[str, Any] = {}

    def look() -> dict[str, Any]:
        # Not over the API, which allows a key so many requests a minute.
        shown.update(cluster.script(ERASURE))
        return shown

    cluster.wait_until(lambda: look()["passes"] >= 2, "the first passes")
    assert shown["state"] in ("running", "waiting")
    over.set()
    resender.join(120)
    cluster.wait_until(
        lambda: look()["open"] == {"notify.messages": 1}, "all but the event that waits"
    )
    platform.ask("POST", f"person-data/erasures/{key}/end", manages=True)
    cluster.wait_until(lambda: look()["state"] == "done", "the erasure")
    return shown


def test_nothing_of_the_person_is_left(platform: Platform) -> None:
    cluster = platform.cluster
    with Sink(answer) as sink:
        platform.set_up(sink)
        platform.start("city", *SMS)
        planted = dict.fromkeys(("events", "leads", "texts", "posts", "mos"), 0)
        for someone in (ANN, BOB):
            platform.plant(someone)
            spelled = platform.plant_spellings(someone)
            planted = {kind: count + spelled[kind] for kind, count in planted.items()}
        print("accepted in forty spellings:", planted)
        assert planted["events"] >= 2 * 2 * 40
        texts, mos, leads = (2 + planted[kind] for kind in ("texts", "mos", "leads"))
        # Texts, MOs, leads, feed events; then archived, failed, waiting, unsplit events.
        wanted = [texts, mos, leads, 0, 2 + planted["events"] + texts + mos, 2, 2, 0]
        cluster.wait_until(
            lambda: cluster.script(AT_REST) == wanted and len(platform.crm_names()) == leads,
            "everything to arrive",
        )  # fmt: skip
        of_bob = [name for name in platform.crm_names() if name == BOB.name]
        found = platform.ask("POST", "person-data/find", identifiers(ANN), manages=True)["kinds"]
        names = {each["kind"] for each in found if each["count"]}
        assert names >= {
            "notify.messages", "notify.archive", "sms.sent", "sms.received", "sms.copies",
            "crmsync.leads", "crmsync.operations", "feed.posts", "feed.relations",
        }  # fmt: skip
        exported = platform.ask("POST", "person-data/export", identifiers(ANN), manages=True)
        assert ANN.name in str(exported["data"]["notify.archive"])
        assert BOB.name not in str(exported)
        assert platform.places_of(ANN) >= {"hot", "cold", "dump", "sms redis"}
        backups, before, counts = platform.dumps(), platform.rows(BOB), cluster.script(COUNTS)
        shown = erase(platform)
        assert shown["erased"]["notify.archive"] >= 3
        assert platform.places_of(ANN) == set(), platform.rows(ANN)
        assert platform.crm_names() == of_bob
        # Sent again meanwhile: failures are counted anew, and say what came last.
        changed = {"receive_msg", "attempt", "msgplatform_givenup"}
        missing = {row for row in before - platform.rows(BOB) if row[0] not in changed}
        assert missing == set(), "what belongs to others"
        after = cluster.script(COUNTS)
        assert {name: n for name, n in counts.items() if after.get(name, 0) < n} == {}
        # The machine with the database is lost; the list of erasures is on another one.
        for name in (*PROGRAMS, *SMS):
            cluster.kill(name)
        platform.restore(backups)
        assert platform.places_of(ANN) >= {"hot", "cold"}, "the backup has it again"
        platform.start(*PROGRAMS, *SMS)
        cluster.wait_until(cluster._ready, "the web server")
        cluster.wait_until(
            lambda: cluster.script(ERASURES) == ["done"], "the erasure to be repeated"
        )
        assert platform.places_of(ANN) == set(), platform.rows(ANN)
        assert platform.crm_names() == of_bob
        assert before - platform.rows(BOB) <= {row for row in before if row[0] in changed}
