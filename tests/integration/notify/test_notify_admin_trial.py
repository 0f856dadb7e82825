"""A test send: one real request with a real signature, counted nowhere."""

import gzip
import zlib

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import Permission, User
from django.test import Client
from standardwebhooks import Webhook

from msgplatform.core.rates.breaker import State
from msgplatform.models import AuditLog, Biz, MinuteCounter
from notify import presence
from notify.models import Attempt, BizMsg, BizReceive, Receive, ReceiveMsg
from tests.support.http_sinks import Sink, answering, huge, refusing_port, silent
from tests.support.notify_rows import subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

ANSWER = b"HTTP/1.1 202 Fine\r\nX-Node: n<7>\r\nContent-Length: 14\r\n\r\n<b>thanks\x00</b>"


@pytest.fixture
def row(settings: LazySettings) -> BizReceive:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    return subscription(Biz.objects.create(name="shop"), "till")


def at(row: BizReceive, url: str, **fields: object) -> None:
    Receive.objects.filter(pk=row.receive_id).update(url=url, **fields)


def try_it(client: Client, row: BizReceive) -> str:
    answer = client.post(f"/admin/notify/bizreceive/{row.pk}/test/")
    assert answer.status_code == 200
    return str(answer.content.decode())


@pytest.mark.parametrize("status", list(BizReceive.Status))
def test_the_consumer_gets_one_signed_request_whatever_the_state(
    admin_client: Client, row: BizReceive, status: int
) -> None:
    BizReceive.objects.update(status=status)
    with Sink(answering(ANSWER)) as sink:
        at(row, sink.url(), headers={"X-Api-Key": "k"}, header_prefix="acme")
        text = try_it(admin_client, row)
    (seen,) = sink.requests
    assert seen.headers["x-api-key"] == "k"
    signed = {f"webhook-{part}": seen.headers[f"acme-{part}"] for part in
              ("id", "timestamp", "signature")}  # fmt: skip
    body = Webhook(row.receive.secret).verify(seen.body.decode(), signed)
    assert body["type"] == "webhook.test"
    assert body["data"] == {"test": True, "subscription": str(row.pk)}
    assert signed["webhook-id"].isdigit()
    assert "HTTP 202" in text
    assert "X-Node: n&lt;7&gt;" in text
    assert "&lt;b&gt;thanks" in text
    for model in (BizMsg, ReceiveMsg, Attempt, MinuteCounter):
        assert not model.objects.exists()
    assert AuditLog.objects.get().action == "subscription_tested"


def test_a_test_send_that_succeeds_makes_the_probe_due(
    admin_client: Client, row: BizReceive
) -> None:
    presence.report({row.pk: presence.LaneState("s", breaker=State.OPEN, retry_in=200)})
    with Sink(answering(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")) as sink:
        at(row, sink.url())
        try_it(admin_client, row)
    assert presence.requested_probes() == frozenset()
    with Sink(answering(ANSWER)) as sink:
        at(row, sink.url())
        assert "Its breaker was open" in try_it(admin_client, row)
    assert presence.requested_probes() == {row.pk}


def test_a_forbidden_address_is_not_called(
    admin_client: Client, row: BizReceive, settings: LazySettings
) -> None:
    settings.OUTBOUND_ALLOW = []
    with Sink(answering()) as sink:
        at(row, sink.url())
        text = try_it(admin_client, row)
    assert sink.connections == 0
    assert "No answer." in text


def test_the_consumers_own_networks_hold_here_too(admin_client: Client, row: BizReceive) -> None:
    with Sink(answering()) as sink:
        at(row, sink.url(), networks=["127.1.0.0/16"])
        text = try_it(admin_client, row)
    assert sink.connections == 0
    assert "No answer." in text


def test_it_ends_with_the_subscriptions_timeout(admin_client: Client, row: BizReceive) -> None:
    BizReceive.objects.update(timeout=5)
    with Sink(silent) as sink:
        at(row, sink.url())
        text = try_it(admin_client, row)
        assert len(sink.requests) == 1
    assert "No answer." in text


def test_a_long_answer_is_cut(admin_client: Client, row: BizReceive) -> None:
    with Sink(huge) as sink:
        at(row, sink.url())
        text = try_it(admin_client, row)
    assert "only the beginning is shown" in text
    assert text.count("x" * 4096) == 1
    assert "x" * 4097 not in text


WORDS = b"The warehouse is closed."


@pytest.mark.parametrize(
    ("encoding", "body", "shown"),
    [
        ("gzip", gzip.compress(WORDS), WORDS.decode()),
        ("x-gzip", gzip.compress(WORDS)[:-4], WORDS.decode()),  # cut, as a long one is
        ("", gzip.compress(WORDS), WORDS.decode()),  # a server that does not say so
        ("deflate", zlib.compress(WORDS), WORDS.decode()),
        ("DEFLATE", zlib.compress(WORDS, wbits=-15), WORDS.decode()),
        ("identity", WORDS, WORDS.decode()),
        ("br", b"\x8b\x0b\x80rubbish", "(compressed: br)"),
        ("gzip", b"\x00\x01 no gzip", "(compressed: gzip)"),
        ("gzip", WORDS, WORDS.decode()),  # it says so, and does not do it
    ],
    # Not the bodies, in which the time stands: every process must collect the same names.
    ids=["gzip", "cut", "unnamed", "deflate", "raw-deflate", "identity", "br", "no-gzip", "plain"],
)
def test_a_compressed_answer_is_readable(
    admin_client: Client, row: BizReceive, encoding: str, body: bytes, shown: str
) -> None:
    named = f"Content-Encoding: {encoding}\r\n" if encoding else ""
    head = f"HTTP/1.1 503 Busy\r\n{named}Content-Length: {len(body)}\r\n\r\n"
    with Sink(answering(head.encode() + body)) as sink:
        at(row, sink.url())
        text = try_it(admin_client, row)
    assert shown in text
    assert "\ufffd" not in text


def test_a_compressed_answer_does_not_grow_without_bounds(
    admin_client: Client, row: BizReceive
) -> None:
    bomb = gzip.compress(b"x" * 2**20)
    head = f"HTTP/1.1 503 Busy\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n"
    with Sink(answering(head.encode() + bomb)) as sink:
        at(row, sink.url())
        text = try_it(admin_client, row)
    assert "x" * 4096 in text
    assert "x" * 4097 not in text


def test_refused_and_failed_are_said(admin_client: Client, row: BizReceive) -> None:
    at(row, f"http://127.0.0.1:{refusing_port()}/")
    assert "No answer." in try_it(admin_client, row)
    with Sink(answering(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")) as sink:
        at(row, sink.url())
        assert "HTTP 410; a delivery" in try_it(admin_client, row)
    row.refresh_from_db()
    assert row.status == BizReceive.Status.NORMAL


def test_a_row_that_cannot_be_used_says_why(admin_client: Client, row: BizReceive) -> None:
    at(row, "http://127.0.0.1:9/", secret="not a secret")
    assert "cannot be used" in try_it(admin_client, row)


def test_only_by_post_and_only_who_may_change(admin_client: Client, row: BizReceive) -> None:
    with Sink(answering()) as sink:
        at(row, sink.url())
        address = f"/admin/notify/bizreceive/{row.pk}/test/"
        assert admin_client.get(address).status_code == 200, "the form, which sends nothing"
        user = User.objects.create_user("looker", password="x", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename="view_bizreceive"))
        client = Client()
        client.force_login(user)
        assert client.post(address).status_code == 403
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(User.objects.get(username="admin"))
        assert strict.post(address).status_code == 403
        assert admin_client.post(f"/admin/notify/bizreceive/{row.pk + 1}/test/").status_code == 404
        assert sink.connections == 0
    assert not AuditLog.objects.exists()
