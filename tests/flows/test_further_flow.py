"""A flow in a folder of its own (`tests/letters`) is seen everywhere when FLOWS names it."""

import http.cookiejar
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from msgplatform.core.servers.private_server import free_port
from tests.waiting import pause

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 900
SET_UP = """
from django.contrib.auth import get_user_model
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
get_user_model().objects.create_superuser("chief", password="of the post")
print(keys.create(Biz.objects.create(name="writers"), "k", ["letters:read", "letters:write"])[1])
"""


def until(condition: Callable[[], object]) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + SECONDS
        pause(begun, 0.05)


class Post:
    """The platform with one flow more, started as a person starts it."""

    def __init__(self, folder: Path, flows: str) -> None:
        foreign = {"DATABASE_URL", "REDIS_URL", "SMS_REDIS_URL"}
        kept = {name: value for name, value in os.environ.items() if name not in foreign}
        self.port, self._log = free_port(), folder / "up.log"
        self.environment = {
            **kept,
            "STATE_DIR": str(folder),
            "PUBLIC_URL": self.url(""),
            "SMS_RECEIVER_PORT": str(free_port()),
            "FLOWS": flows,
        }
        jar = http.cookiejar.CookieJar()
        self.browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip

    def start(self) -> None:
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--port", str(self.port)],
                cwd=ROOT, env=self.environment, stdout=log, stderr=log,
            )  # fmt: skip
        until(self.is_ready)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        try:
            return bool(self.read("/readyz"))
        except (urllib.error.URLError, OSError):
            return False

    def read(self, path: str, **form: str) -> str:
        data = urllib.parse.urlencode(form).encode() if form else None
        with self.browser.open(self.url(path), data, timeout=60) as answer:
            return str(answer.read().decode())

    def submit(self, path: str, **form: str) -> str:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', self.read(path))
        assert token
        return self.read(path, csrfmiddlewaretoken=token[1], **form)

    def call(self, key: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self.url("/api/v1/letters"),
            json.dumps(body).encode() if body else None,
            {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(SECONDS)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="mp-post-"))  # short: a socket's path is bounded
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_console_up_doctor_metrics_search_bulk_and_urls_know_it(folder: Path) -> None:
    post = Post(folder, "crmsync,tests.letters")
    post.start()
    try:
        key = post.manage("shell", "-v", "0", "-c", SET_UP).stdout.strip()
        post.submit("/admin/login/", next="/console/", username="chief", password="of the post")
        sent = post.call(key, {"text": "Dear reader"})
        # `up` runs its daemon, which delivers, and a Redis of its own, which a doctor finds.
        until(lambda: post.call(key)["results"] == [{**sent, "delivered": True}])
        found = post.manage("doctor").stdout
        for line in ("LETTERS_REDIS_URL: Redis", "run_postman is running", "a stamp is 80 fen"):
            assert f"ok    {line}" in found, found
        assert "msgplatform_letters_delivered 1.0" in post.read("/metrics")

        overview = post.read("/console/")
        assert "Letters" in overview
        assert "stylus_note" in overview  # the side bar's symbol for its model
        assert "Dear reader" in post.read("/admin/letters/letter/")
        assert "letters-express" in post.read("/django-rq/")
        assert "letters-7" not in post.read("/django-rq/")
        assert "/api/v1/letters" in post.read("/api/schema/")
        assert "Dear reader" in post.read("/console/search?q=Dear+reader")
        assert "Dear reader" in post.read("/console/search/letters?text=Dear")
        page = post.read(f"/console/letters/{sent['id']}")
        assert "Posted" in page

        job = {"action": "return", "text": "Dear", "rate": ""}
        counted = post.submit("/console/bulk/letters", **job, count="1")
        previewed = re.search(r'name="previewed" value="([^"]+)"', counted)
        assert previewed
        post.submit("/console/bulk/letters", **job, previewed=previewed[1], start="1")
        until(lambda: post.call(key)["results"] == [])
    finally:
        post.stop()


def test_the_demo_accounts_for_it_alone(folder: Path) -> None:
    """Without any other flow: the platform needs none of them."""
    post = Post(folder, "tests.letters")
    # A port of its own: another demo that starts at the same moment may choose the same.
    done = post.manage("demo", "--exit", "--json", "--port", str(post.port))
    assert done.returncode == 0, done.stderr
    account = {"accepted": 20, "delivered": 20, "lost": 0, "at_least": 20}
    assert json.loads(done.stdout) == {"ok": True, "flows": {"letters": account}, "errors": []}


def test_a_flow_that_is_not_there_is_named(folder: Path) -> None:
    done = Post(folder, "notify,tests.telegrams").manage("check")
    assert done.returncode == 1
    assert "FLOWS names what is not installed: tests.telegrams" in done.stderr
