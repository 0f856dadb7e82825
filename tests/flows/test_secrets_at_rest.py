"""No secret is stored in clear: not in a database, not in Redis, not in a log.

An operator makes them all in the console, while webhooks are signed with them and gateways are
bound to with them; meanwhile everything that is stored is looked through again and again.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from bench.harness import migrated
from bench.harness.mariadb import MariaDb
from demo.notify.traffic import publish_all
from demo.sink_process import SinkProcess
from tests.cluster import DAEMONS, WEB
from tests.flows import dumps
from tests.flows.conftest import KINDS
from tests.flows.sms_cluster import SmsCluster

PASSWORD = "operator-of-the-console"
OURS, THEIRS, LATER = "ours-K3x9Qw7Zp2", "smgs-V8n4Tb6Lm1", "next-H5d2Rf9Gs3"
HEADERS = {"Authorization": "Bearer tok-7f3e9a1c5b8d", "X-Api-Key": "key-4d6b2e8f0a9c"}
NEW_HEADER = "key-changed-5e1f7c3a9b"
MESSAGES = 300
SHOWN = re.compile(r"whsec_[A-Za-z0-9+/]+=*")
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')
SEEN = re.compile(r'name="seen" value="(\w+)"')

PEOPLE = f"""
import json
from django.contrib.auth.models import User
from gateway.models import SmsAccount
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
User.objects.create_superuser("admin", password={PASSWORD!r})
biz = Biz.objects.create(name="clinic")
SmsAccount.objects.create(biz=biz, name="clinic", sp_number="10655001", corp_id="12345")
print(json.dumps(keys.create(biz, "x", ["sms:write", "sms:read", "events:write"])[1]))
"""
SUBSCRIBE = """
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
BizReceive.objects.create(biz=Biz.objects.get(), receive=Receive.objects.get())
print(1)
"""
MIGRATE_COLD = """
from django.core.management import call_command
call_command("migrate", database="cold", verbosity=0)
"""
ARCHIVED = """
import json
from gateway.models import SgipMt
from notify.models import ColdBizMsg
print(json.dumps([SgipMt.objects.count(), ColdBizMsg.objects.count()]))
"""


@pytest.fixture(params=KINDS)
def cluster(request: pytest.FixtureRequest, mariadb: MariaDb) -> Iterator[SmsCluster]:
    """With an archive of its own."""
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-rest-"))
    names = [folder.name.replace("-", "_") + part for part in ("", "_cold")]
    hot, cold = (
        mariadb.create(name) if request.param == "server" else f"sqlite:///{folder / name}.db"
        for name in names
    )
    logins = ["--login-password", OURS, "--smg-login-password", THEIRS]
    running = SmsCluster(folder, hot, {"city": logins}, (WEB, *DAEMONS))
    running.environment |= {"COLD_DATABASE_URL": cold, "NOTIFY_KEEP_DAYS": "0"}
    with running:
        migrated.fill(cold, lambda: running.console.run(MIGRATE_COLD), "cold")
        yield running
    shutil.rmtree(folder, ignore_errors=True)


class Operator:
    """Somebody at the console, with forms over HTTP."""

    def __init__(self, base_url: str) -> None:
        self._url, self._session = f"{base_url}/admin/", requests.Session()
        self.pages: list[str] = []
        self.send("login/", username="admin", password=PASSWORD, next="/admin/")

    def get(self, path: str) -> str:
        answer = self._session.get(self._url + path, timeout=60)
        assert answer.status_code == 200, (path, answer.status_code)
        return answer.text

    def send(self, path: str, **fields: object) -> str:
        """The page that the sent form leads to."""
        page = self.get(path)
        token = TOKEN.search(page)
        assert token, path
        if seen := SEEN.search(page):
            fields["seen"] = seen[1]
        fields["csrfmiddlewaretoken"] = token[1]
        self.pages.append(page)
        answer = self._session.post(
            self._url + path, fields, timeout=60, headers={"Referer": self._url}
        )
        assert answer.status_code == 200, (path, answer.status_code)
        assert answer.history, f"the form was refused: {path}"
        return answer.text


class Look:
    """Looks through everything that is stored, in a thread, until the block ends."""

    def __init__(self, cluster: SmsCluster, secrets: set[str]) -> None:
        self._cluster, self._secrets = cluster, secrets
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.found: set[str] = set()
        self.rounds = 0

    def once(self) -> None:
        environment = self._cluster.environment
        for name in ("DATABASE_URL", "COLD_DATABASE_URL"):
            self.found |= dumps.found(set(self._secrets), dumps.database(environment[name]))
        for client in (self._cluster.redis, self._cluster.sms):
            self.found |= dumps.found(set(self._secrets), dumps.redis(client))
        self.rounds += 1

    def _run(self) -> None:
        while not self._stop.is_set():
            self.once()

    def __enter__(self) -> Look:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_nothing_that_is_stored_holds_a_secret(cluster: SmsCluster, tmp_path: Path) -> None:
    token = cluster.script(PEOPLE)
    operator = Operator(cluster.base_url)
    secrets = {OURS, THEIRS, LATER, NEW_HEADER, *HEADERS.values()}
    secrets |= {value.removeprefix("Bearer ") for value in HEADERS.values()}
    with SinkProcess(tmp_path / "seen", []) as sink, Look(cluster, secrets) as look:
        secrets |= make_secrets(cluster, operator, sink.url)
        for name in ("city", "sender-a", "receiver", "forwarder", "pump", "run_archiver"):
            cluster.start(name)
        cluster.script(SUBSCRIBE)
        publish_all(cluster.base_url, {"clinic": token}, MESSAGES)
        send_messages(cluster, token)
        operator.send("notify/receive/1/rotate/", hours="0")
        rounds = look.rounds
        cluster.wait_until(lambda: len(sink.ids()) >= MESSAGES, "the webhooks")
        cluster.wait_until(lambda: min(cluster.script(ARCHIVED)) >= 40, "rows in both archives")
        cluster.wait_until(lambda: look.rounds > rounds + 1, "two whole looks")
    look.once()
    assert look.found == set()
    shown_before = "".join(operator.pages)
    assert not [secret for secret in secrets if secret in shown_before], "echoed by a form"
    logs = iter([file.read_bytes() for file in cluster.folder.glob("*.log")])
    assert dumps.found(secrets, logs) == set()


def make_secrets(cluster: SmsCluster, operator: Operator, url: str) -> set[str]:
    """A consumer with headers and two signing secrets, a gateway with two passwords; some are
    changed once. The signing secrets, as the operator saw them."""
    consumer = {"name": "till", "url": url, "delivery": "push", "header_prefix": "webhook"}
    lines = "\n".join(f"{name}: {value}" for name, value in HEADERS.items())
    shown = SHOWN.findall(operator.send("notify/receive/add/", **consumer, headers=lines))
    shown += SHOWN.findall(operator.send("notify/receive/1/rotate/", hours="24"))
    assert len(set(shown)) == 2
    masked = f"Authorization: •••\nX-Api-Key: {NEW_HEADER}"
    operator.send("notify/receive/1/change/", **consumer, headers=masked)
    gateway = {
        "name": "city", "enabled": "on", "host": "127.0.0.1", "port": cluster.ports["city"],
        "login_name": "sp", "smg_login_name": "city", "corp_id": "12345", "area_code": "010",
        "connections": 1, "window": 32, "speed_limit": 0, "priority": 0, "ascii_limit": 140,
        "users_per_submit": 84, "response_timeout": 30, "resends": 3, "idle_timeout": 60,
        "report_hours": 72,
    }  # fmt: skip
    operator.send(
        "gateway/smsgateway/add/", **gateway, login_password=LATER, smg_login_password=THEIRS
    )
    operator.send("gateway/smsgateway/1/change/", **gateway, login_password=OURS)
    return set(shown)


def send_messages(cluster: SmsCluster, token: str) -> None:
    numbers = [f"138{n:08d}" for n in range(40)]
    body = json.dumps({"to": numbers, "text": "您的验证码是 1234"}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{cluster.base_url}/api/v1/sms", body, headers)

    def accepted() -> bool:
        """The web process knows a new gateway after two seconds."""
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return bool(json.load(answer)["ids"])
        except OSError:
            return False

    cluster.wait_until(accepted, "the messages to be accepted")
