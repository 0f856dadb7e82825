"""A Redis that hangs (SIGSTOP): the console, /metrics and `doctor` answer within seconds, say which
server is silent, and are themselves again soon after it goes on."""

import http.client
import json
import os
import re
import sys
import time
import xmlrpc.client
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import PBKDF2PasswordHasher

from crmsync.models import LandingPage
from msgplatform.core import connections
from msgplatform.core.connections import AWAY_SECONDS, RedisError
from msgplatform.core.errors import Temporary
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, Biz
from msgplatform.monitor.watch.watch import _LEASE, Watch
from tests.integration.gateway.sms_messages import archived
from tests.program_host import run_program
from tests.servers import Servers
from tests.support import archive_support, sms_rows
from tests.support.api_server import Server
from tests.support.hanging_servers import hanging
from tests.support.notify_rows import subscription
from tests.waiting import pause

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
# A page has 2 s for its Redis servers; the machine of the tests is busy.
PROMPT = 15.0
PAGES = [
    "/console/",
    "/admin/notify/bizreceive/",
    "/console/search?q=order",
    "/console/failures",
    "/console/statistics",
    "/console/bulk",
    "/admin/gateway/smsgateway/",
    "/admin/gateway/smsaccount/",
    "/admin/crmsync/crm/",
    "/django-rq/",
]
SILENT = "no answer within 0.7 s"


@pytest.fixture(autouse=True)
def _nobody_is_away() -> Iterator[None]:
    """In a later test the clients of this process are usual ones, and ask at once."""
    yield
    connections._client.cache_clear()
    connections._away_until.clear()


class Browser:
    """Somebody at the console of a real server."""

    def __init__(self, server: Server) -> None:
        self._port, self._cookies = server.port, dict[str, str]()

    def open(self, path: str, form: dict[str, str] | None = None) -> tuple[int, str, float]:
        """Status, page, and seconds."""
        begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items())}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request("POST" if form else "GET", path, urlencode(form or {}), headers)
        answer = connection.getresponse()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                cookie, _, text = value.partition(";")[0].partition("=")
                self._cookies[cookie] = text
        page = answer.read().decode()
        connection.close()
        return answer.status, page, time.monotonic() - begun

    def open_until(self, path: str, *texts: str, without: str = "") -> float:
        """Open a page until it is well and has these texts, and not another one; the seconds of the
        last answer. On a busy machine a server that is well may be late, and is asked again
        later."""
        deadline = time.monotonic() + 60
        while True:
            status, page, seconds = self.open(path)
            is_unwanted = bool(without) and without in page
            if status == 200 and not is_unwanted and all(text in page for text in texts):
                return seconds
            assert time.monotonic() < deadline, (path, status, page[-2000:])
            time.sleep(0.1)

    def log_in(self) -> float:
        """Seconds of the login page and of the login."""
        status, page, first = self.open("/admin/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert (status, bool(token)) == (200, True)
        assert token
        form = {"username": "ann", "password": "correct horse", "csrfmiddlewaretoken": token[1]}
        status, _page, second = self.open("/admin/login/?next=/console/", form)
        assert status == 302
        return max(first, second)


@pytest.fixture
def server(tmp_path: Path, django_db_setup: None) -> Iterator[Server]:
    get_user_model().objects.create(
        username="ann", password=PBKDF2PasswordHasher().encode("correct horse", "salt"),
        is_staff=True, is_superuser=True,
    )  # fmt: skip
    subscription(Biz.objects.create(name="orders"))
    settings = {
        "DJANGO_SETTINGS_MODULE": "msgplatform.settings", "PUBLIC_URL": "http://127.0.0.1"
    }  # fmt: skip
    server = Server(tmp_path / "log", environment=settings)
    yield server
    server.stop()


@pytest.fixture
def browser(server: Server) -> Browser:
    """Logged in, with every page opened once: the first time a template is compiled."""
    browser = Browser(server)
    browser.log_in()
    for path in (*PAGES, "/metrics"):
        browser.open_until(path, without=SILENT)
    return browser


def is_prompt(ask: Callable[[], float], limit: float = PROMPT) -> bool:
    """True if one of two tries takes less: in the other one this machine may have stood still. The
    second try asks the server that hangs, too."""
    if ask() < limit:
        return True
    time.sleep(AWAY_SECONDS)
    return ask() < limit


def page_seconds(browser: Browser, path: str, text: str = "") -> float:
    status, page, seconds = browser.open(path)
    assert (status, text in page) == (200, True), path
    return seconds


def slow_pages(browser: Browser) -> list[str]:
    return [path for path in PAGES if not is_prompt(partial(page_seconds, browser, path))]


def until_all_is_back(browser: Browser) -> None:
    deadline = time.monotonic() + 60
    while any(SILENT in browser.open(path)[1] for path in ("/console/", "/django-rq/")):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def post(server: Server, path: str, body: Any, key: str) -> tuple[int, float]:
    """Status and seconds of a call of the API."""
    begun = time.monotonic()
    raw = json.dumps(body).encode()
    status, _answer = server.request("POST", path, key, raw, {"Content-Type": "application/json"})
    return status, time.monotonic() - begun


def test_work_redis(browser: Browser, server: Server, servers: Servers) -> None:
    scopes = ("sms:write", "events:write", "feed:write", "leads:write")
    clinic = sms_rows.Caller("clinic", *scopes)
    sms_rows.gateway()
    sms_rows.account(clinic.biz)
    LandingPage.objects.create(biz=clinic.biz, appkey="ad-1", title="Test drive")
    lead = {"appkey": "ad-1", "name": "Wang Wei", "phone": "13812345678"}
    usual = Browser(server).log_in()  # a password is hashed for long on a busy machine

    def accept_seconds(path: str, body: Any) -> float:
        status, seconds = post(server, path, body, clinic.key)
        assert status in (200, 201, 202), (path, status)
        return seconds

    with hanging(servers.work):
        for path, body in (
            ("/api/v1/messages", {"event_type": "order.paid", "payload": {}}),
            ("/api/v1/messages/batch", {"messages": [{"event_type": "a.b", "payload": {}}]}),
            ("/api/v1/sms", {"to": "13800000000", "text": "hello"}),
            ("/api/v1/sms/batch", {"messages": [{"to": "13800000000", "text": "hello"}]}),
            ("/api/v1/feed/posts", {"uid": "ann", "data": "hello"}),
            ("/api/v1/leads", lead),
        ):
            assert is_prompt(partial(accept_seconds, path, body)), path
        assert is_prompt(lambda: Browser(server).log_in(), PROMPT + 3 * usual)
        assert not slow_pages(browser)
        time.sleep(AWAY_SECONDS)
        first_page = partial(page_seconds, browser, "/console/", SILENT)
        assert is_prompt(first_page), "the first page that asks again"
        up = ('msgplatform_redis_up{redis="work"} 0.0', 'msgplatform_redis_up{redis="sms"} 1.0')
        assert is_prompt(lambda: browser.open_until("/metrics", *up))
        assert is_prompt(lambda: browser.open_until("/readyz", "no answer in time"))
    until_all_is_back(browser)
    browser.open_until("/readyz")


def test_sms_redis(browser: Browser, server: Server, servers: Servers) -> None:
    clinic = sms_rows.Caller("clinic", "sms:write")
    sms_rows.gateway()
    sms_rows.account(clinic.biz)
    batch = {"messages": [{"to": "13800000000", "text": "hello"}]}

    def send(_number: int) -> tuple[int, float]:
        return post(server, "/api/v1/sms/batch", batch, clinic.key)

    def call(_number: int) -> tuple[int, float]:
        begun = time.monotonic()
        with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{server.port}/rpc/") as proxy:
            try:
                proxy.sms.send(clinic.key, "13800000000", "hello")
            except xmlrpc.client.Fault as fault:
                return fault.faultCode, time.monotonic() - begun
        return 0, time.monotonic() - begun

    assert send(0)[0] == 200
    assert call(0)[0] == 0
    with hanging(servers.sms), ThreadPoolExecutor(40) as callers:
        # More than the server has threads: none of them is held.
        sent = list(callers.map(send, range(80)))
        assert {status for status, _seconds in sent} == {503}
        assert max(seconds for _status, seconds in sent) < 2 * PROMPT
        called = list(callers.map(call, range(80)))
        # Not 504: nothing was stored, so that a repeat needs no key.
        assert {code for code, _seconds in called} == {503}
        assert max(seconds for _code, seconds in called) < 2 * PROMPT
        assert not slow_pages(browser)
        time.sleep(AWAY_SECONDS)
        up = 'msgplatform_redis_up{redis="sms"} 0.0'
        assert is_prompt(lambda: browser.open_until("/metrics", up))
        assert SILENT in browser.open("/console/")[1]
        browser.open_until("/readyz")  # only the SMS Redis is unavailable
    until_all_is_back(browser)
    assert send(0)[0] == 200
    assert call(0)[0] == 0


def test_jobs_of_other_flows_beside_a_hung_sms_redis(servers: Servers) -> None:
    """A page of a job for short messages, and the look for what became of them, wait for it: a job
    of Notify is over meanwhile, and the other one when Redis is back."""
    clinic = sms_rows.Caller("clinic", "sms:write")
    sms_rows.gateway()
    sms_rows.account(clinic.biz)
    archived(clinic, result=5)
    row = subscription(Biz.objects.create(name="bills"))
    archive_support.message(row, archive_support.Status.EXHAUSTED)
    short, event = (
        BulkJob.objects.create(flow=flow, action="resend", filter=filter, created_by="x")
        for flow, filter in (("sms", {"since": "2020-01-01"}), ("notify", {"biz": "bills"}))
    )
    runner = BulkRunner()

    def turn_until(job: BulkJob) -> float:
        begun = time.monotonic()
        while not BulkJob.objects.filter(pk=job.pk, state=BulkJob.State.DONE).exists():
            assert time.monotonic() < begun + 120
            with suppress(RedisError, Temporary):
                runner.turn()
            pause(begun, 0.01)
        return time.monotonic() - begun

    with hanging(servers.sms):
        assert turn_until(event) < PROMPT
        short.refresh_from_db()
        assert (short.state, short.done) == (BulkJob.State.RUNNING, 0)
        assert short.error, "its page says what it waits for"
    BulkJob.objects.update(lease_until=None)
    turn_until(short)


@pytest.mark.parametrize("name", ["work", "sms"])
def test_doctor(servers: Servers, name: str) -> None:
    command = [sys.executable, "manage.py", "doctor"]
    begun = time.monotonic()
    run_program(command, os.environ)
    usual = time.monotonic() - begun
    with hanging(getattr(servers, name)):
        begun = time.monotonic()
        done = run_program(command, os.environ)
        assert time.monotonic() - begun < 2 * usual + 60, "it waits at every question"
    variable = "REDIS_URL" if name == "work" else "SMS_REDIS_URL"
    assert re.search(rf"BAD .*\b{variable}: {SILENT}", done.stdout)


def test_the_watch(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look waits for the hung server and keeps its lease; the second raises the alert."""
    monkeypatch.setattr(connections, "_SOCKET_TIMEOUT", 2.0)
    monkeypatch.setattr(_LEASE, "_seconds", 20.0)
    connections._client.cache_clear()
    first, second = Watch(), Watch()
    with hanging(servers.sms):
        for _ in range(2):
            first.look()
            second.look()
            assert connections.work_redis().get(_LEASE.key) == first._me.encode()
        assert Alert.objects.get().open_key == "platform.redis:sms"


def test_slow_answers_have_two_seconds_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """BLPOP of nothing: each answer takes 0.6 s, and none is too late."""
    monkeypatch.setattr(connections, "BRIEF_SECONDS", 60.0)
    connections._client.cache_clear()
    begun = time.monotonic()

    def wait_again_and_again() -> None:
        for _ in range(10):
            connections.work_redis().blpop(["nothing"], 0.6)  # type: ignore[arg-type]

    with connections.briefly(), pytest.raises(RedisError, match="slow answers"):
        wait_again_and_again()
    assert time.monotonic() - begun < 2 * PROMPT
    with connections.briefly():  # another page
        assert connections.work_redis().ping()
