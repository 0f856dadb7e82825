"""CloudEvents in and out, judged by the official library."""

import json
from typing import Any

import pytest
from cloudevents.v1.conversion import to_binary, to_structured
from cloudevents.v1.http import CloudEvent, from_http
from django.conf import LazySettings
from django.test import Client
from standardwebhooks import Webhook

from msgplatform.models import Biz
from notify.models import BizMsg, BizReceive, Receive
from notify.sender import trial_send
from notify.subscriptions import limits
from notify.subscriptions.matching import compile_filter
from tests.integration.notify.api_caller import MESSAGES, Caller
from tests.support.answers import Answer
from tests.support.http_sinks import Seen, Sink, answering
from tests.support.notify_rows import subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

ATTRIBUTES = {"id": "7", "source": "/shops/北", "type": "order.paid", "channel": "eu"}
DATA = {"名": "小米 ✓", "amount": "99.00"}
PAYLOAD = '{ "名" : 1.00, "data":",\\"timestamp\\":" }'


@pytest.fixture
def orders() -> Caller:
    return Caller("orders")


def send(caller: Caller, headers: dict[str, str], body: bytes) -> Answer:
    sent = {name: value for name, value in headers.items() if name.lower() != "content-type"}
    content_type = {name.lower(): value for name, value in headers.items()}["content-type"]
    answer: Answer = caller.client.post(
        MESSAGES, body, content_type=content_type,
        headers={"Authorization": f"Bearer {caller.key}", **sent},
    )  # fmt: skip
    return answer


def structured(**changes: Any) -> tuple[dict[str, str], bytes]:
    return to_structured(CloudEvent({**ATTRIBUTES, **changes}, DATA))


def binary(**changes: Any) -> tuple[dict[str, str], bytes]:
    attributes = {**ATTRIBUTES, "datacontenttype": "application/json", **changes}
    return to_binary(CloudEvent(attributes, DATA))


@pytest.mark.parametrize("mode", [structured, binary])
def test_an_event_is_accepted_once(orders: Caller, mode: Any) -> None:
    answer = send(orders, *mode(source="/shops/7"))
    assert answer.status_code == 202, answer.content
    row = BizMsg.objects.get(pk=int(answer.json()["id"]))
    assert (row.event_type, row.channel) == ("order.paid", "eu")
    assert json.loads(bytes(row.payload)) == DATA
    again = send(orders, *mode(source="/shops/7", time="2026-11-20T08:00:00Z"))
    assert (again.status_code, again.json()["id"]) == (200, str(row.pk))
    assert send(orders, *mode(source="/shops/8")).status_code == 202, "ids are those of a source"
    assert send(orders, *mode(id="7#7", source="/s")).status_code == 202
    assert send(orders, *mode(id="7", source="/s#7")).status_code == 202
    assert send(orders, *mode(source="/shops/" + "x" * 300)).status_code == 202


# As specifications, GitHub, Kubernetes and clouds name them.
TYPES = [
    "com.github.pull_request.opened", "com.example/order:paid", "order-paid", "io.k8s.Event:v1",
    "https://example.com/types/order-paid", "google.cloud.storage.object.v1.finalized", "a:b/c-d",
    "Microsoft.Storage/blob-created", "-", "urn:example:order:paid",
]  # fmt: skip


@pytest.mark.parametrize("mode", [structured, binary])
@pytest.mark.parametrize("type", TYPES)
def test_types_of_others(orders: Caller, mode: Any, type: str) -> None:
    answer = send(orders, *mode(type=type))
    assert answer.status_code == 202, answer.content
    assert BizMsg.objects.get().event_type == type
    assert compile_filter([type], []).matches(type, "")
    limits.event_types([type, f"{type[:3]}*"])


@pytest.mark.parametrize("mode", [structured, binary])
def test_a_byte_order_mark_is_no_part_of_an_event(orders: Caller, mode: Any) -> None:
    headers, body = mode()
    answer = send(orders, headers, b"\xef\xbb\xbf" + body)
    assert answer.status_code == 202, answer.content
    row = BizMsg.objects.get(pk=int(answer.json()["id"]))
    assert json.loads(bytes(row.payload)) == DATA
    assert not bytes(row.payload).startswith(b"\xef")


def test_both_modes_are_one_event(orders: Caller) -> None:
    first = send(orders, *structured(source="/shops/7"))
    headers, body = binary(source="/shops/7")
    assert json.loads(body) == DATA
    in_other_mode = send(orders, headers, json.dumps(DATA).encode())
    assert in_other_mode.json()["id"] == first.json()["id"]


def test_quoted_headers_are_one_event_with_unquoted_ones(orders: Caller) -> None:
    headers, body = binary(source="/shops/7")
    first = send(orders, headers, body)
    quoted = {
        name: f'"{value}"' if name.lower().startswith("ce-") else value
        for name, value in headers.items()
    }
    again = send(orders, quoted, body)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


def test_a_key_of_the_request_goes_before(orders: Caller) -> None:
    headers, body = structured()
    assert send(orders, {**headers, "Idempotency-Key": "mine"}, body).status_code == 202
    headers, body = structured(id="8")
    assert send(orders, {**headers, "Idempotency-Key": "mine"}, body).status_code == 200


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"specversion": "0.3"}, 400, "specversion"),
        ({"specversion": None}, 400, "specversion"),
        ({"type": "order paid"}, 400, "event_type"),
        ({"type": None}, 400, "type"),
        ({"id": ""}, 400, "id"),
        ({"source": ""}, 400, "source"),
        ({"data_base64": "AA=="}, 400, "data_base64"),
        ({"channel": "a b"}, 400, "channel"),
        ({"datacontenttype": "text/xml"}, 415, ""),
    ],
)
def test_a_wrong_one_is_refused(
    orders: Caller, change: dict[str, Any], status: int, field: str
) -> None:
    event = {"specversion": "1.0", **ATTRIBUTES, "data": {}, **change}
    event = {name: value for name, value in event.items() if value is not None}
    headers = {"content-type": "application/cloudevents+json; charset=utf-8"}
    answer = send(orders, headers, json.dumps(event).encode())
    assert answer.status_code == status
    if field:
        assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert not BizMsg.objects.exists()


def test_binary_without_attributes_or_with_another_content_is_refused(orders: Caller) -> None:
    headers = {"content-type": "application/json", "ce-specversion": "1.0", "ce-id": "1"}
    answer = send(orders, headers, b"{}")
    assert answer.status_code == 400
    assert "source" in answer.content.decode()
    headers |= {"ce-source": "/s", "ce-type": "a", "content-type": "text/plain"}
    assert send(orders, headers, b"{}").status_code == 415
    headers["content-type"] = "application/json"
    assert send(orders, headers, b"{broken").status_code == 400


def sent_as(body_format: str, settings: LazySettings) -> tuple[Seen, Receive]:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    row = subscription(Biz.objects.create(name="orders"))
    BizReceive.objects.update(format=body_format)
    with Sink(answering()) as sink:
        Receive.objects.update(url=sink.url())
        row = BizReceive.objects.select_related("biz", "receive").get(pk=row.pk)
        outcome = trial_send.send(row, "order.paid", PAYLOAD)
        (seen,) = sink.requests
    assert outcome.sent.encode() == seen.body
    assert f"content-type: {seen.headers['content-type']}" in outcome.sent_headers
    return seen, row.receive


@pytest.mark.parametrize("body_format", ["cloudevents", "cloudevents-binary"])
def test_the_official_library_reads_what_is_delivered(
    settings: LazySettings, body_format: str
) -> None:
    seen, receive = sent_as(body_format, settings)
    event = from_http(seen.headers, seen.body)
    assert event["specversion"] == "1.0"
    assert event["type"] == "order.paid"
    assert event["source"] == "/systems/orders"
    assert event["id"] == seen.headers["webhook-id"]
    assert event["time"].endswith("Z")
    assert event.data == json.loads(PAYLOAD)
    assert PAYLOAD.encode() in seen.body, "byte for byte"
    signed = {name: seen.headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature")}
    Webhook(receive.secret).verify(
        seen.body.decode(), {f"webhook-{name}": value for name, value in signed.items()}
    )


def test_attributes_cannot_be_set_as_headers(admin_client: Client) -> None:
    form = {"name": "one", "url": "http://127.0.0.1/", "headers": '{"CE-Id": "1"}'}
    answer = admin_client.post("/admin/notify/receive/add/", form)
    assert "cannot be set as a header" in answer.content.decode()
