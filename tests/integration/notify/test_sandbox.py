"""A sandbox: deliveries go over HTTP to the platform's own web server, which keeps them."""

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import time_machine
from django.conf import LazySettings
from django.test import Client

from msgplatform.core import sandbox as core
from msgplatform.core.data import sql
from msgplatform.core.http.engine import engine_from_settings, outline
from msgplatform.doors.api.access import keys
from msgplatform.models import AuditLog, Biz
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss
from notify import sandbox_receiver
from notify.models import BizReceive, Receive, ReceiveMsg
from notify.monitor import conditions, subjects
from notify.subscriptions import sandbox, signing
from tests.support.api_server import Server
from tests.support.http_sinks import Sink, answering
from tests.support.management import Manager
from tests.support.notify_rows import publish, signed_headers, subscription
from tests.support.notify_turns import run_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
PATH = "subscriptions/shop/sandbox-shop/sandbox"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Server]:
    """The platform's own addresses, and no other host than the one of SANDBOX_URL."""
    server = Server(
        tmp_path_factory.mktemp("granian") / "log",
        environment={
            "DJANGO_SETTINGS_MODULE": "msgplatform.settings", "ALLOWED_HOSTS": "platform.example",
            "PUBLIC_URL": "https://platform.example", "SANDBOX_URL": "http://127.0.0.1",
        },
    )  # fmt: skip
    yield server
    server.stop()


@pytest.fixture
def row(server: Server, settings: LazySettings) -> BizReceive:
    """A sandbox's subscription; nothing private is open to consumers."""
    settings.SANDBOX_URL = f"http://127.0.0.1:{server.port}"
    settings.OUTBOUND_ALLOW = []
    keys.forget()
    Receive.objects.create(name="sandbox-shop", url=sandbox.URL)
    return subscription(
        Biz.objects.create(name="shop"), "sandbox-shop", schedule=[0, 0, 0], timeout=50
    )


def is_ended() -> bool:
    return (
        ReceiveMsg.objects.exists()
        and not ReceiveMsg.objects.exclude(
            status__in=(ReceiveMsg.Status.DELIVERED, ReceiveMsg.Status.EXHAUSTED)
        ).exists()
    )


def test_a_delivery_fails_as_it_is_told_to_and_arrives(row: BizReceive) -> None:
    """The first request is refused, the second accepted; the sandbox has kept both."""
    Receive.objects.update(headers={"X-Api-Key": "hush"})
    manager = Manager("manage:sandbox")
    body = {"status": 500, "count": 1, "retry_after": 0}
    assert manager.send("PUT", PATH, body).json()["count"] == 1
    (message,) = publish(row.biz, payload=b'{"order":7}')
    run_until(is_ended)
    assert ReceiveMsg.objects.get().status == ReceiveMsg.Status.DELIVERED
    answer = manager.send("GET", PATH).json()
    assert answer["behaviour"]["until"] is None
    second, first = answer["calls"]
    assert [(each["status"], each["number"]) for each in (first, second)] == [(500, 1), (200, 2)]
    assert second["message_id"] == str(message)
    assert (second["verified"], second["signature"]) == (True, "current")
    assert second["event_type"] == "order.paid"
    assert json.loads(second["body"])["data"] == {"order": 7}
    assert second["headers"]["X-Api-Key"] == "•••"
    assert "Webhook-Signature" in second["headers"]
    assert manager.send("GET", f"{PATH}?message=1").json()["calls"] == []
    assert manager.send("DELETE", PATH).status_code == 204
    assert manager.send("GET", PATH).json()["calls"] == []
    assert AuditLog.objects.get(action="sandbox_emptied").target == f"{row} #{row.pk}"


def test_a_binary_cloud_event_after_a_delay(row: BizReceive, server: Server) -> None:
    """The web server answers others while a sandbox lets its sender wait."""
    BizReceive.objects.update(format="cloudevents-binary", timeout=1, attempts_limit=5)
    row.refresh_from_db()
    Manager("manage:sandbox").send("PUT", PATH, {"delay": 30, "count": 1})
    publish(row.biz)
    run_until(is_ended)
    # On a slow machine the time of further requests may be over, too; one of all had to wait.
    last, *others = sandbox_receiver.arrivals(row.pk)
    assert others
    assert sorted(each.call.delay for each in (last, *others)) == [*[0] * len(others), 30]
    assert (last.number, last.is_verified) == (1 + len(others), True)
    assert sandbox_receiver.event_type(last.call) == "order.paid"
    assert last.call.body == '{"n":1}'
    assert server.request("GET", "/healthz")[0] == 200


def post(server: Server, path: str, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("POST", path, body, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_address_says_nothing_to_others_and_judges_signatures(
    row: BizReceive, server: Server
) -> None:
    key = signing.decode_secret(row.receive.secret)
    path = sandbox.address(row.pk, key)[0].partition(str(server.port))[2]
    assert post(server, path[:-1] + "x", b"{}", {}) == 404
    assert post(server, path.replace(f"/{row.pk}/", "/999999/"), b"{}", {}) == 404
    assert post(server, path, b"x" * (300 * 1024), {}) == 413
    now = int(time.time())
    right = signed_headers([key], "1", now)
    old = signed_headers([key], "1", now - 4000)
    for headers in (right, old, {**right, "webhook-id": "2"}, {}):
        assert post(server, path, b"{}", headers) == 200
    verdicts = [each.call.signature for each in reversed(sandbox_receiver.arrivals(row.pk))]
    assert verdicts == ["current", "stale", "wrong", "unsigned"]
    Receive.objects.update(url="https://elsewhere.example/")
    assert post(server, path, b"{}", right) == 404


def test_nothing_but_the_sandbox_passes_the_guard(
    row: BizReceive, server: Server, settings: LazySettings
) -> None:
    """Neither a consumer that names the same address or a name for it, nor a metadata address; and
    no proxy is asked."""
    own = sandbox.address(row.pk, signing.decode_secret(row.receive.secret))[0]
    cases = [
        (own, "", "address_forbidden"),
        (f"http://127.0.0.1:{server.port}/console/", "", "address_forbidden"),
        (f"http://localhost:{server.port}/", "127.0.0.1", "address_forbidden"),
        (f"http://localhost:{server.port}/", "", "address_forbidden"),
        ("http://169.254.169.254/", "169.254.169.254", "address_forbidden"),
        ("http://10.0.0.1/", "127.0.0.1", "address_forbidden"),
        (own, "127.0.0.1", ""),
        (own.replace("127.0.0.1", "localhost"), "localhost", ""),
    ]
    settings.SANDBOX_URL = f"http://localhost:{server.port}"
    for is_set, host in ((False, ""), (True, "localhost")):
        settings.SANDBOX_URL_SET = is_set
        assert sandbox.address(row.pk, b"key")[1] == host
    with Sink(answering()) as proxy:
        for options in ({}, {"proxy": proxy.url("")}):
            engine = engine_from_settings(window=1, **options)
            for url, own_host, error in cases:
                engine.submit(outline(url, (), 60, own_host=own_host).request(b"{}", (), url))
                responses: list[Any] = []
                while not responses:
                    responses = engine.poll(1.0)
                assert (responses[0].error, bool(responses[0].status)) == (error, not error), url
            engine.close()
        assert proxy.connections == 0


def test_a_failing_sandbox_makes_no_alert(row: BizReceive) -> None:
    BizReceive.objects.update(failing_since="2026-01-01T00:00:00Z", failures=100)
    other = subscription(row.biz, "till", failing_since="2026-01-01T00:00:00Z", failures=100)
    assert [each.key for each in conditions.conditions()] == [f"{conditions.FAILING}:{other.pk}"]
    for pk in (row.pk, other.pk):
        failure_store.add("notify", [Loss(pk, "HTTP 500", 1, "no room")], sql.now())
    assert {one.subject: one.is_quiet for one in subjects.failures()} == {
        row.pk: True, other.pk: False,
    }  # fmt: skip


def test_what_is_wrong_is_said(row: BizReceive, settings: LazySettings) -> None:
    manager = Manager("manage:sandbox")
    for body, field in (
        ({"status": 100}, "status"), ({"delay": 61}, "delay"), ({"minutes": 0}, "minutes"),
        ({"count": 0}, "count"), ({"retry_after": -1}, "retry_after"),
    ):  # fmt: skip
        answer = manager.send("PUT", PATH, body)
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["field"] == field
    subscription(row.biz, "till")
    answer = manager.send("GET", PATH.replace("sandbox-shop", "till"))
    assert (answer.status_code, sandbox.URL in answer.json()["detail"]) == (409, True)
    settings.SANDBOX = False
    assert "SANDBOX" in manager.send("GET", PATH).json()["detail"]
    consumer = Manager("manage:consumers").send("PUT", "consumers/new", {"url": sandbox.URL})
    assert (consumer.status_code, "SANDBOX" in consumer.content.decode()) == (400, True)


def test_what_is_kept_is_bounded(row: BizReceive, work_redis: Any) -> None:
    store = sandbox_receiver.store(row.pk)
    for number in range(core.MAX_CALLS + 5):
        store.keep(sandbox_receiver.Call(str(number), {}, "", 0, sandbox_receiver.CURRENT, 200))
    store.behave(core.Behaviour("500", count=2), 5)
    kept = sandbox_receiver.arrivals(row.pk)
    assert (len(kept), kept[0].call.message_id) == (core.MAX_CALLS, str(core.MAX_CALLS + 4))
    names = work_redis.keys("sandbox:*")
    assert len(names) == 3
    assert all(0 < work_redis.ttl(name) <= core.KEEP_SECONDS for name in names)
    (name,) = work_redis.keys("sandbox:*:calls")
    with time_machine.travel(time.time() + core.KEEP_SECONDS + 1):
        store.keep(kept[0].call)
    assert work_redis.llen(name) == 1, "those of an hour ago are gone"
    answers = [store.take_behaviour().answer for _ in range(3)]
    assert answers == ["500", "500", ""]


def test_its_address_is_for_programs_only(row: BizReceive, client: Client) -> None:
    assert client.get(f"/sandbox/notify/{row.pk}/x").status_code == 405


def test_no_wrong_token_tells_which_sandboxes_there_are(row: BizReceive, client: Client) -> None:
    for number in (row.pk, row.pk + 1):
        for token in ("x", "%C3%A9", "%F0%9F%98%80"):
            answer = client.post(f"/sandbox/notify/{number}/{token}")
            assert answer.status_code == 404, (number, token)
