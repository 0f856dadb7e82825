"""Notify over HTTP: what is accepted, refused, repeated, and who may see it."""

import pytest
from django.test import Client

from notify.intake import intake
from notify.models import BizMsg
from tests.integration.notify.api_caller import BATCH, MESSAGES, Caller
from tests.support.notify_rows import subscription

pytestmark = pytest.mark.django_db(transaction=True)
EVENT = {"event_type": "order.paid", "payload": {"n": 1}}


@pytest.fixture
def orders() -> Caller:
    intake.forget_recipients()  # what another test's system of this id had
    return Caller("orders")


def test_a_message_is_accepted(orders: Caller) -> None:
    answer = orders.post(MESSAGES, EVENT)
    assert answer.status_code == 202
    body = answer.json()
    assert body["outcome"] == "created"
    assert BizMsg.objects.get(pk=int(body["id"])).biz_id == orders.biz.pk


def test_the_answer_says_that_nobody_subscribes(orders: Caller) -> None:
    """Also to a batch; and no longer as soon as somebody does."""
    subscription(orders.biz, "eu", event_types=["order.*"], channels=["eu"])
    assert "recipients" not in orders.post(MESSAGES, {**EVENT, "channel": "eu"}).json()
    keyed = {**EVENT, "channel": "us", "idempotency_key": "k"}
    assert orders.post(MESSAGES, keyed).json()["recipients"] == 0
    assert "recipients" not in orders.post(MESSAGES, keyed).json(), "not looked up for a repeat"
    batch = {"messages": [{**EVENT, "channel": channel} for channel in ("eu", "us")]}
    results = orders.post(BATCH, batch).json()["results"]
    assert [one.get("recipients") for one in results] == [None, 0]
    row = subscription(orders.biz, "us", event_types=["order.*"], channels=["us"])
    assert "recipients" not in orders.post(MESSAGES, {**EVENT, "channel": "us"}).json()
    assert orders.post(MESSAGES, {**EVENT, "event_type": "a"}).json()["recipients"] == 0
    intake.forget_recipients()
    row.status = row.Status.DISCARDED
    row.save()
    assert orders.post(MESSAGES, {**EVENT, "channel": "us"}).json()["recipients"] == 0


def test_the_payload_keeps_its_bytes(orders: Caller) -> None:
    answer = orders.post(MESSAGES, '{"event_type":"a","payload": { "名" : 1.00 } }'.encode())
    message = BizMsg.objects.get(pk=int(answer.json()["id"]))
    assert bytes(message.payload) == '{ "名" : 1.00 }'.encode()


@pytest.mark.parametrize("place", ["body", "header"])
def test_a_repeat_and_a_conflict(orders: Caller, place: str) -> None:
    headers = {"Idempotency-Key": "k"} if place == "header" else {}
    body = {**EVENT, "idempotency_key": "k"} if place == "body" else EVENT
    first = orders.post(MESSAGES, body, **headers)
    again = orders.post(MESSAGES, body, **headers)
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json() == {"id": first.json()["id"], "outcome": "duplicate"}
    other = orders.post(MESSAGES, {**body, "payload": 2}, **headers)
    assert other.status_code == 409
    assert other["content-type"] == "application/problem+json"
    assert other.json()["id"] == first.json()["id"]
    assert f"(message {first.json()['id']})" in other.json()["detail"]


def test_two_different_keys_are_refused(orders: Caller) -> None:
    answer = orders.post(MESSAGES, {**EVENT, "idempotency_key": "a"}, **{"Idempotency-Key": "b"})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"payload": 1}, "event_type"),
        ({"event_type": "a"}, "payload"),
        ({**EVENT, "event_type": 7}, "event_type"),
        ({**EVENT, "event_type": "a b"}, "event_type"),
        ({**EVENT, "channel": "a b"}, "channel"),
        ({**EVENT, "idempotency_key": "名"}, "idempotency_key"),
        ({**EVENT, "unknown": 1}, "unknown"),
    ],
)
def test_a_refusal_names_the_field(orders: Caller, body: dict, field: str) -> None:
    answer = orders.post(MESSAGES, body)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert BizMsg.objects.count() == 0


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"[]", 400), (b"\xff", 400)])
def test_a_broken_body(orders: Caller, body: bytes, status: int) -> None:
    assert orders.post(MESSAGES, body).status_code == status


@pytest.mark.parametrize(("depth", "status"), [(100, 202), (101, 400), (900, 400), (9000, 400)])
def test_how_deeply_a_payload_may_be_nested(orders: Caller, depth: int, status: int) -> None:
    payload = b"[" * depth + b"]" * depth
    answer = orders.post(MESSAGES, b'{"event_type":"a","payload":' + payload + b"}")
    assert answer.status_code == status
    flat = {"event_type": "a", "payload": [[]] * 200}
    assert orders.post(MESSAGES, flat).status_code == 202


def test_a_large_body_is_refused(orders: Caller) -> None:
    body = {**EVENT, "payload": "x" * 300_000}
    assert orders.post(MESSAGES, body).status_code == 413


def test_a_batch_has_a_verdict_for_each(orders: Caller) -> None:
    orders.post(MESSAGES, {**EVENT, "idempotency_key": "old"})
    answer = orders.post(
        BATCH,
        {
            "messages": [
                EVENT,
                {**EVENT, "event_type": "a b"},
                {"event_type": "a"},
                {**EVENT, "idempotency_key": "old"},
                {**EVENT, "idempotency_key": "old", "payload": 2},
                7,
                {**EVENT, "idempotency_key": "new"},
            ]
        },
    )
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [r["outcome"] for r in results] == [
        "created", "rejected", "rejected", "duplicate", "rejected", "rejected", "created",
    ]  # fmt: skip
    assert [r.get("code") for r in results] == [
        None, "invalid", "invalid", None, "conflict", "invalid", None,
    ]  # fmt: skip
    assert [r.get("field") for r in results[1:3]] == ["event_type", "payload"]
    assert all(isinstance(r["id"], str) for r in results if "id" in r)
    assert BizMsg.objects.count() == 3


def test_one_key_for_a_whole_batch_is_refused(orders: Caller) -> None:
    answer = orders.post(BATCH, {"messages": [EVENT]}, **{"Idempotency-Key": "k"})
    assert answer.status_code == 400
    assert "each its own" in answer.json()["errors"][0]["message"]
    assert BizMsg.objects.count() == 0


@pytest.mark.parametrize("count", [0, 1001])
def test_a_batch_has_bounds(orders: Caller, count: int) -> None:
    assert orders.post(BATCH, {"messages": [EVENT] * count}).status_code == 400


def test_the_largest_batch(orders: Caller) -> None:
    answer = orders.post(BATCH, {"messages": [EVENT] * 1000})
    assert len({r["id"] for r in answer.json()["results"]}) == 1000 == BizMsg.objects.count()


def test_a_system_sees_its_own_messages_only(orders: Caller) -> None:
    subscription(orders.biz)
    other = Caller("stock")
    message_id = orders.post(MESSAGES, EVENT).json()["id"]
    mine = orders.get(f"{MESSAGES}/{message_id}")
    assert (mine.status_code, mine.json()["id"]) == (200, message_id)
    assert other.get(f"{MESSAGES}/{message_id}").status_code == 404
    assert other.get(MESSAGES).json()["results"] == []


@pytest.mark.parametrize("id", ["abc", "0", "9" * 19, "9" * 40, "-1", "1.5"])
def test_an_unknown_message(orders: Caller, id: str) -> None:
    answer = orders.get(f"{MESSAGES}/{id}")
    assert answer.status_code == 404
    assert answer["content-type"] == "application/problem+json"


def test_the_list_pages_by_key(orders: Caller) -> None:
    orders.post(BATCH, {"messages": [EVENT] * 5})
    seen: list[str] = []
    path = f"{MESSAGES}?limit=2"
    while path:
        page = orders.get(path).json()
        seen += [message["id"] for message in page["results"]]
        path = page["next"]
    assert seen == sorted(seen, key=int, reverse=True)
    assert len(set(seen)) == 5


@pytest.mark.parametrize(
    ("scope", "method", "path"),
    [("events:read", "post", MESSAGES), ("events:read", "post", BATCH),
     ("events:write", "get", MESSAGES), ("events:write", "get", f"{MESSAGES}/1")],
)  # fmt: skip
def test_a_key_does_only_what_its_scope_says(scope: str, method: str, path: str) -> None:
    caller = Caller("orders", scope)
    answer = caller.get(path) if method == "get" else caller.post(path, EVENT)
    assert answer.status_code == 403
    assert ("events:write" if method == "post" else "events:read") in answer.json()["detail"]


@pytest.mark.parametrize("path", [MESSAGES, BATCH, f"{MESSAGES}/1"])
def test_nobody_without_a_key(path: str) -> None:
    for method in ("get", "post"):
        assert getattr(Client(), method)(path).status_code in (401, 405)
