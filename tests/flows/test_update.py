"""A running platform is updated to the next release, and back; a release that does not work goes
back by itself. Clients publish all the while, and the consumer keeps the books.

Notify alone, so that few programs are replaced; all flows under load: `bench.soak.update`.
"""

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
import requests

from bench.harness import neighbour
from bench.harness.mariadb import MariaDb
from msgplatform import __version__
from msgplatform.core.servers.private_server import free_port
from tests.cluster import ROOT, Console
from tests.support.http_sinks import Sink, answering
from tests.waiting import pause

SECONDS = 300.0
SETUP = """
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
biz = Biz.objects.create(name="shop")
consumer = Receive.objects.create(name="warehouse", url={url!r})
BizReceive.objects.create(biz=biz, receive=consumer, schedule=[1] * 9)
print(keys.create(biz, "test", ["events:write"])[1])
"""
RELEASES = """
import json
from msgplatform.core.daemons import heartbeats
print(json.dumps(heartbeats.roles_by_release(heartbeats.alive())))
"""
COLUMNS = """
from django.db import connection
with connection.cursor() as cursor:
    columns = connection.introspection.get_table_description(cursor, "biz_receive")
print(",".join(column.name for column in columns))
"""
# Of a busy machine; `bench.soak.update` measures. A request without an answer takes as long.
MAX_WAIT_SECONDS = 30.0
PROGRAMS = ["archiver", "bulk", "maker", "marker", "sender", "web"]


class Client(threading.Thread):
    """Publishes with a key until told to stop; a request without an answer comes again."""

    def __init__(self, port: int, token: str) -> None:
        super().__init__(daemon=True)
        self._port, self._token, self._name = port, token, uuid.uuid4().hex
        self.over = threading.Event()
        self.keys: list[str] = []  # accepted
        self.longest = 0.0  # seconds until an event was accepted

    def run(self) -> None:
        number = 0
        while not self.over.wait(0.15):
            number += 1
            begun, key = time.monotonic(), f"{self._name}-{number}"
            while not self._publish(key):
                pause(begun, 0.01)
            self.longest = max(self.longest, time.monotonic() - begun)
            self.keys.append(key)

    def _publish(self, key: str) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=MAX_WAIT_SECONDS)
        body = {"event_type": "order.paid", "payload": {"order": key}, "idempotency_key": key}
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        with (
            suppress(OSError, http.client.HTTPException),
            closing(connection),
        ):
            connection.request("POST", "/api/v1/messages", json.dumps(body), headers)
            return connection.getresponse().status in (200, 202)
        return False


class Installation:
    """`up` of this release on a database of its own; commands of other releases."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder, self.port = folder, free_port()
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "DATABASE_URL": database_url, "STATE_DIR": str(folder / "state"), "FLOWS": "notify",
            "DJANGO_SETTINGS_MODULE": "msgplatform.settings",
            "OUTBOUND_ALLOW": "127.0.0.0/8", "LOG_LEVEL": "INFO",
        }  # fmt: skip
        command = [sys.executable, "manage.py", "up", "--migrate", "--port", str(self.port)]
        with (folder / "up.log").open("wb") as log:
            self.up = subprocess.Popen(command, cwd=ROOT, env=self.environment, stderr=log)
        self.console = Console(self.environment, folder / "console.log")

    def wait_until_it_runs(self) -> None:
        begun = time.monotonic()
        while not self._is_ready():
            assert self.up.poll() is None, (self.folder / "up.log").read_text()
            assert time.monotonic() < begun + SECONDS
            pause(begun, 0.1)
        self.wait_for_releases({__version__: PROGRAMS})

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with (
            suppress(OSError, http.client.HTTPException),
            closing(connection),
        ):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False

    def style_sheet(self) -> tuple[str, str]:
        """The address that a page of the console names, and what is there."""
        base = f"http://127.0.0.1:{self.port}"
        page = requests.get(f"{base}/admin/login/", timeout=60).text
        (address,) = set(re.findall(r"/static/console/console[.\w]*\.css", page))
        return address, requests.get(f"{base}{address}", timeout=60).text

    def releases(self) -> dict[str, list[str]]:
        answer: dict[str, list[str]] = json.loads(self.console.run(RELEASES))
        return answer

    def wait_for_releases(self, roles: dict[str, list[str]]) -> None:
        """The last heartbeat of a web server may be there for 20 seconds."""
        begun = time.monotonic()
        while (running := self.releases()) != roles:
            assert time.monotonic() < begun + SECONDS, running
            pause(begun, 0.1)

    def manage(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=folder, env=self.environment, text=True,
            capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def kill_a_way_back(self, folder: Path) -> None:
        """Once the file names the old release: before, or while, the web server is replaced."""
        file, begun = self.folder / "state" / "run" / "release.json", time.monotonic()
        command = [sys.executable, "manage.py", "update", "--back"]
        with subprocess.Popen(command, cwd=folder, env=self.environment) as update:
            while json.loads(file.read_bytes())["current"]["name"] != __version__:
                assert update.poll() is None
                pause(begun, 0.01)
            update.kill()

    def release(self, kind: str = "") -> Path:
        folder = self.folder / f"release-{kind}"
        return folder if folder.exists() else neighbour.make(folder, kind)

    def wait_for_up_in(self, folder: Path) -> None:
        """Until `up` is that of the release in this folder: the process stays the same."""
        begun = time.monotonic()
        while Path(psutil.Process(self.up.pid).cwd()) != folder:
            assert self.up.poll() is None, (self.folder / "up.log").read_text()
            assert time.monotonic() < begun + SECONDS
            pause(begun, 0.1)

    def stop(self) -> None:
        self.console.close()
        self.up.terminate()
        assert self.up.wait(SECONDS) == 0


@pytest.fixture(scope="module")
def installation(mariadb: MariaDb) -> Iterator[Installation]:
    folder = Path(tempfile.mkdtemp(prefix="mp-up-"))  # short: a socket's path is bounded
    running = Installation(folder, mariadb.create(folder.name.replace("-", "_")))
    try:
        running.wait_until_it_runs()
        yield running
    finally:
        running.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink(answering()) as running:
        yield running


@pytest.fixture(scope="module")
def token(installation: Installation, sink: Sink) -> str:
    return installation.console.run(SETUP.format(url=sink.url())).strip()


@pytest.fixture
def client(installation: Installation, sink: Sink, token: str) -> Iterator[Client]:
    """Nothing that it was told yes to is missing or twice at the end."""
    sink.requests.clear()
    client = Client(installation.port, token)
    client.start()
    yield client
    client.over.set()
    client.join(SECONDS)
    begun = time.monotonic()
    while len(arrived := _keys(sink)) < len(client.keys):
        assert time.monotonic() < begun + 60, set(client.keys) - arrived.keys()
        pause(begun, 0.1)
    assert arrived == Counter(client.keys)


def _keys(sink: Sink) -> Counter[str]:
    return Counter(json.loads(request.body)["data"]["order"] for request in list(sink.requests))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("migration", "broken on purpose"),
        pytest.param("mute", "web of release 9.9.9 does not answer", marks=pytest.mark.full),
        pytest.param("crash", "ended at its start.*broken on purpose", marks=pytest.mark.full),
    ],
)
def test_a_release_that_does_not_work_goes_back_by_itself(
    installation: Installation, client: Client, kind: str, words: str
) -> None:
    result = installation.manage(installation.release(kind), "update", "--without-backup")
    assert result.returncode == 1
    assert words.partition(".*")[0] in result.stderr, result.stdout + result.stderr
    assert words.rpartition(".*")[2] in result.stderr
    installation.wait_for_releases({__version__: PROGRAMS})
    if kind != "migration":
        result = installation.manage(installation.release(kind), "update", "--back")
        assert result.returncode == 0, result.stderr
        installation.wait_for_releases({__version__: PROGRAMS})
    # MariaDB keeps each change of a table: it was taken back, so that a repaired release can come.
    assert ("shade" in installation.console.run(COLUMNS)) == (kind != "migration")
    assert client.longest < MAX_WAIT_SECONDS


def test_to_the_next_release_and_back(installation: Installation, client: Client) -> None:
    refused = installation.manage(installation.release(), "update")
    assert "There is no backup of the last 24 hours" in refused.stderr
    folder = installation.release()
    with (folder / "msgplatform" / "static" / "console" / "console.css").open("a") as file:
        file.write("/* changed */\n")
    old_sheet = installation.style_sheet()
    result = installation.manage(folder, "update", "--without-backup")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "notify.0005_shade" in result.stdout, "left for the second stage"
    installation.wait_for_releases({neighbour.VERSION: PROGRAMS})
    installation.wait_for_up_in(folder)
    assert installation.style_sheet()[1].endswith("/* changed */\n")
    installation.kill_a_way_back(folder)
    for _ in range(2):  # one finishes it, the other has nothing to do
        result = installation.manage(folder, "update", "--back")
        assert result.returncode == 0, result.stdout + result.stderr
        installation.wait_for_releases({__version__: PROGRAMS})
    installation.wait_for_up_in(ROOT)
    assert installation.style_sheet() == old_sheet
    refused = installation.manage(folder, "migrate", "--after")
    assert f"Programs of release {__version__} run and need" in refused.stderr
    assert client.longest < MAX_WAIT_SECONDS


@pytest.mark.full
def test_no_way_back_after_the_second_stage(installation: Installation, client: Client) -> None:
    folder = installation.release()
    assert installation.manage(folder, "update", "--without-backup").returncode == 0
    installation.wait_for_up_in(folder)
    installation.wait_for_releases({neighbour.VERSION: PROGRAMS})
    result = installation.manage(folder, "migrate", "--after")
    assert result.returncode == 0, result.stderr
    refused = installation.manage(folder, "update", "--back")
    assert "notify.0005_shade has run" in refused.stderr
    refused = installation.manage(ROOT, "update", "--back")
    assert f"is unknown to this release: run the command in {folder}" in refused.stderr
    assert client.longest < MAX_WAIT_SECONDS
