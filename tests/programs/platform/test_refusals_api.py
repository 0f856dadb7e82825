"""Every refusal of the API, as a table: status, kind of problem, and a sentence that helps.

A row says what was sent, what comes back, and words of the sentence that tell what to change.
"""

import json
from typing import Any, NamedTuple

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from rest_framework.settings import api_settings

from msgplatform.doors.api.access import keys, throttling
from msgplatform.doors.api.bodies import MAX_BATCH
from msgplatform.doors.api.intake import MAX_BATCH_BYTES
from msgplatform.models import Biz
from notify.api.views import MAX_MESSAGE_BYTES
from notify.models import BizMsg, IdempotencyKey
from notify.subscriptions import limits
from tests.support.answers import Answer

pytestmark = pytest.mark.django_db(transaction=True)
MESSAGES, BATCH = "/api/v1/messages", "/api/v1/messages/batch"
EVENT = {"event_type": "order.paid", "payload": {"n": 1}}
SCOPES = ["events:write", "events:read"]


class Route(NamedTuple):
    """An operation: the scope that it asks for, and one that does not do."""

    method: str
    path: str
    scope: str
    other: str
    body: Any = None


LIST = Route("GET", MESSAGES, "events:read", "events:write")
ONE = Route("GET", f"{MESSAGES}/1", "events:read", "events:write")
PUBLISH = Route("POST", MESSAGES, "events:write", "events:read", EVENT)
PUBLISH_MANY = Route("POST", BATCH, "events:write", "events:read", {"messages": [EVENT]})
ROUTES = [LIST, ONE, PUBLISH, PUBLISH_MANY]
WITH_BODY = [PUBLISH, PUBLISH_MANY]
ADDRESSES = {
    MESSAGES: {"GET", "POST", "HEAD"},
    BATCH: {"POST"},
    f"{MESSAGES}/1": {"GET", "HEAD"},
}


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


class Caller:
    def __init__(self, name: str, scopes: list[str]) -> None:
        self.biz = Biz.objects.create(name=name)
        self.key, self.plain = keys.create(self.biz, "test", scopes)

    def send(
        self, method: str, path: str, body: Any = None, type: str = "application/json", **more: str
    ) -> Answer:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.plain}", **more}
        # Said once more, because the client leaves it out where there is no body.
        return Client().generic(method, path, raw, type, headers=headers, CONTENT_TYPE=type)


@pytest.fixture(autouse=True)
def fresh(work_redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.forget()
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    for key in work_redis.scan_iter("throttle:*"):
        work_redis.delete(key)


@pytest.fixture
def orders() -> Caller:
    return Caller("orders", SCOPES)


def refused(answer: Answer, status: int, kind: str, *words: str) -> dict[str, Any]:
    """A whole problem document whose sentence has these words; nothing was stored."""
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert (problem["type"], problem["status"]) == (f"/problems/{kind}", status)
    assert problem["title"]
    assert Client().get(problem["type"]).status_code == 200, "the kind has its page"
    for word in words:
        assert word in problem["detail"], problem["detail"]
    return problem


def nothing_stored() -> None:
    assert not BizMsg.objects.exists()
    assert not IdempotencyKey.objects.exists()


def test_the_table_has_every_route() -> None:
    """A route that is added to this flow belongs into this table."""
    found = {f"/{path}" for path in _paths(get_resolver().url_patterns) if "messages" in path}
    mine = {path.replace("/1", "/<id:pk>") for path in ADDRESSES}
    assert {path for path in found if path.startswith("/api/")} == mine


def _paths(patterns: list[Any], before: str = "") -> list[str]:
    found: list[str] = []
    for each in patterns:
        path = before + str(each.pattern)
        if isinstance(each, URLResolver):
            found += _paths(each.url_patterns, path)
        elif isinstance(each, URLPattern):
            found.append(path)
    return found


# -- who calls -----------------------------------------------------------------------------------
WRONG_KEYS = {
    "none": None,
    "empty": "",
    "no scheme": "mp_abcdefghijkl_" + "x" * 43,
    "another scheme": "Basic bXA6eA==",
    "no key": "Bearer",
    "not a key": "Bearer hello",
    "unknown": "Bearer mp_abcdefghijkl_" + "x" * 43,
    "too long": "Bearer mp_abcdefghijkl_" + "x" * 44,
}


@pytest.mark.parametrize("route", ROUTES, ids=named)
@pytest.mark.parametrize("header", WRONG_KEYS.values(), ids=WRONG_KEYS)
def test_without_a_good_key(route: Route, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    body = json.dumps(route.body)
    answer = Client().generic(route.method, route.path, body, "application/json", headers=headers)
    refused(answer, 401, "unauthenticated", "Authorization: Bearer mp_")
    assert answer["WWW-Authenticate"] == 'Bearer realm="msgplatform"'
    nothing_stored()


@pytest.mark.parametrize("route", ROUTES, ids=named)
@pytest.mark.parametrize("why", ["revoked", "expired", "disabled", "altered"])
def test_a_key_that_was_good(orders: Caller, route: Route, why: str) -> None:
    if why == "revoked":
        keys.revoke(orders.key)
    elif why == "expired":
        orders.key.expires_at = timezone.now()
        orders.key.save()
    elif why == "disabled":
        Biz.objects.update(enabled=False)
    else:
        orders.plain = orders.plain[:-1] + ("a" if orders.plain[-1] != "a" else "b")
    refused(orders.send(*route[:2], route.body), 401, "unauthenticated", "valid API key")
    nothing_stored()


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_a_key_without_the_scope(route: Route) -> None:
    answer = Caller("orders", [route.other]).send(*route[:2], route.body)
    problem = refused(answer, 403, "missing-scope", route.scope)
    assert problem["required_scope"] == route.scope
    assert f'scope="{route.scope}"' in answer["WWW-Authenticate"]
    nothing_stored()


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_too_many_requests(orders: Caller, route: Route, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"read": "1/min", "write": "1/min", "failed": "60/min"}
    monkeypatch.setattr(api_settings, "DEFAULT_THROTTLE_RATES", rates)
    assert orders.send(*route[:2], route.body).status_code in {200, 202, 404}
    answer = orders.send(*route[:2], route.body)
    refused(answer, 429, "throttled", "Repeat after")
    assert 1 <= int(answer["Retry-After"]) <= 60


# -- where to ------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_another_method(orders: Caller, path: str, method: str) -> None:
    if method in ADDRESSES[path]:
        return
    answer = orders.send(method, path, EVENT)
    refused(answer, 405, "method-not-allowed", "Use ", *(ADDRESSES[path] - {"HEAD"}))
    assert "OPTIONS" not in answer.json()["detail"]
    nothing_stored()


@pytest.mark.parametrize(
    "path", ["/api/v1/message", "/api/v1/messages/", "/api/v2/messages", "/api/v1/messages/1/x"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_address(orders: Caller, path: str, method: str) -> None:
    refused(orders.send(method, path, EVENT), 404, "not-found", path, "/api/docs/")


@pytest.mark.parametrize("id", ["0", "1", "9" * 18, str(2**63 - 1)])
def test_an_id_that_nothing_has(orders: Caller, id: str) -> None:
    refused(orders.send("GET", f"{MESSAGES}/{id}"), 404, "not-found", "Nothing has")


@pytest.mark.parametrize("id", ["abc", "-1", "1.5", "1e3", str(2**63), "9" * 40, "%00"])
def test_what_cannot_be_an_id(orders: Caller, id: str) -> None:
    refused(orders.send("GET", f"{MESSAGES}/{id}"), 404, "not-found")


def test_the_id_of_another_system(orders: Caller) -> None:
    """Word for word what an id that nobody has is answered with."""
    message = orders.send("POST", MESSAGES, EVENT).json()["id"]
    stock = Caller("stock", SCOPES)
    foreign = refused(stock.send("GET", f"{MESSAGES}/{message}"), 404, "not-found")
    assert foreign == refused(stock.send("GET", f"{MESSAGES}/1"), 404, "not-found")
    assert stock.send("GET", MESSAGES).json()["results"] == []


def test_the_cursor_of_another_system_shows_nothing_of_it(orders: Caller) -> None:
    orders.send("POST", BATCH, {"messages": [EVENT] * 3})
    following = orders.send("GET", f"{MESSAGES}?limit=1").json()["next"]
    assert Caller("stock", SCOPES).send("GET", following).json()["results"] == []


@pytest.mark.parametrize("limit", ["0", "-1", "201", "ten", "1.5", "9" * 30, "٣", "%00"])
def test_a_wrong_page_size(orders: Caller, limit: str) -> None:
    answer = orders.send("GET", f"{MESSAGES}?limit={limit}")
    problem = refused(answer, 400, "invalid-input", "limit", "from 1 to 200")
    assert [e["field"] for e in problem["errors"]] == ["limit"]


@pytest.mark.parametrize("cursor", ["x", "a.b", "W2ZhbHNlLFsxXV0=.forged", "%00", "x" * 5000])
def test_a_wrong_cursor(orders: Caller, cursor: str) -> None:
    answer = orders.send("GET", f"{MESSAGES}?cursor={cursor}")
    problem = refused(answer, 400, "invalid-input", "cursor", "Use the cursor of `next`")
    assert [e["field"] for e in problem["errors"]] == ["cursor"]


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_another_representation(orders: Caller, route: Route) -> None:
    answer = orders.send(*route[:2], route.body, Accept="text/html")
    refused(answer, 406, "not-acceptable")
    nothing_stored()


# -- bodies --------------------------------------------------------------------------------------
TYPES = ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx",
         "multipart/form-data; boundary=x"]  # fmt: skip


@pytest.mark.parametrize("route", WITH_BODY, ids=named)
@pytest.mark.parametrize("type", TYPES)
def test_a_body_of_another_type(orders: Caller, route: Route, type: str) -> None:
    answer = orders.send(*route[:2], route.body, type)
    refused(answer, 415, "unsupported-media-type", "Send Content-Type: application/json")
    nothing_stored()


@pytest.mark.parametrize("route", WITH_BODY, ids=named)
@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip"])
def test_a_compressed_body(orders: Caller, route: Route, encoding: str) -> None:
    answer = orders.send(*route[:2], route.body, **{"Content-Encoding": encoding})
    refused(answer, 415, "unsupported-media-type", f"Content-Encoding {encoding} is not read")
    nothing_stored()


@pytest.mark.parametrize(
    ("route", "most"), [(PUBLISH, MAX_MESSAGE_BYTES), (PUBLISH_MANY, MAX_BATCH_BYTES)],
    ids=lambda value: named(value) if isinstance(value, Route) else "",
)  # fmt: skip
def test_a_body_that_is_too_large(orders: Caller, route: Route, most: int) -> None:
    body = json.dumps(route.body).encode()
    assert orders.send(*route[:2], body.ljust(most)).status_code in {200, 202}, "the largest"
    BizMsg.objects.all().delete()
    answer = orders.send(*route[:2], body.ljust(most + 1))
    problem = refused(answer, 413, "body-too-large", f"at most {most} bytes")
    assert problem["max_bytes"] == most
    nothing_stored()


NOT_JSON: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "The body is empty: send a JSON value"),
    "blank": (b"  ", "truncated"),
    "open": (b"{", "truncated"),
    "a word": (b"hello", "at line 1, column 1"),
    "single quotes": (b"{'event_type': 1}", "at line 1, column 2"),
    "second line": (b"{\n,}", "at line 2, column 1"),
    "not UTF-8": (b'{"event_type": "\xff"}', "not UTF-8 at byte 16"),
}


@pytest.mark.parametrize("route", WITH_BODY, ids=named)
@pytest.mark.parametrize(("body", "words"), NOT_JSON.values(), ids=NOT_JSON)
def test_a_body_that_is_not_json(orders: Caller, route: Route, body: bytes, words: str) -> None:
    refused(orders.send(*route[:2], body), 400, "malformed-body", words)
    nothing_stored()


@pytest.mark.parametrize("route", WITH_BODY, ids=named)
def test_two_values_in_one_body(orders: Caller, route: Route) -> None:
    body = json.dumps(route.body).encode() + b" {}"
    refused(orders.send(*route[:2], body), 400, "malformed-body", "trailing characters")
    nothing_stored()


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_a_payload_that_is_nested_too_deeply(orders: Caller, depth: int) -> None:
    body = b'{"event_type":"a","payload":' + b"[" * depth + b"]" * depth + b"}"
    answer = orders.send("POST", MESSAGES, body)
    refused(answer, 400, "malformed-body", "nested too deeply")
    nothing_stored()


# -- fields --------------------------------------------------------------------------------------
_LONG = "x" * (limits.MAX_PAYLOAD_BYTES + 1)
# name → (field, changes to a good event (None: left out), words of the sentence)
WRONG_FIELDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no event_type": ("event_type", {"event_type": None}, "required"),
    "event_type empty": ("event_type", {"event_type": ""}, "such as order.paid"),
    "event_type with a space": ("event_type", {"event_type": "a b"}, "letters, digits and _"),
    "event_type with two dots": ("event_type", {"event_type": "a..b"}, "joined by dots"),
    "event_type ends in a dot": ("event_type", {"event_type": "a."}, "joined by dots"),
    "event_type of two lines": ("event_type", {"event_type": "a\n"}, "letters, digits and _"),
    "event_type in Chinese": ("event_type", {"event_type": "订单"}, "letters, digits and _"),
    "event_type too long": ("event_type", {"event_type": "x" * 129}, "at most 128"),
    "event_type a number": ("event_type", {"event_type": 7}, "Expected str"),
    "no payload": ("payload", {"payload": None}, "required"),
    "payload too long": ("payload", {"payload": _LONG}, "not be longer than"),
    "channel with a space": ("channel", {"channel": "a b"}, "at most 64 letters"),
    "channel too long": ("channel", {"channel": "x" * 65}, "at most 64"),
    "channel a list": ("channel", {"channel": ["eu"]}, "Expected str"),
    "idempotency_key empty": ("idempotency_key", {"idempotency_key": ""}, "1 to 128 visible"),
    "idempotency_key with a space": ("idempotency_key", {"idempotency_key": "a b"}, "spaces"),
    "idempotency_key in Chinese": ("idempotency_key", {"idempotency_key": "名"}, "ASCII"),
    "idempotency_key too long": ("idempotency_key", {"idempotency_key": "x" * 129}, "1 to 128"),
    "idempotency_key a number": ("idempotency_key", {"idempotency_key": 7}, "Expected str"),
    "an unknown field": ("colour", {"colour": "red"}, "no such field"),
    "a field in another case": ("Payload", {"Payload": 1}, "no such field"),
}


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    event = {**EVENT, **changes}
    return {name: value for name, value in event.items() if value is not None}


@pytest.mark.parametrize(("field", "changes", "words"), WRONG_FIELDS.values(), ids=WRONG_FIELDS)
def test_a_wrong_field(orders: Caller, field: str, changes: dict[str, Any], words: str) -> None:
    answer = orders.send("POST", MESSAGES, changed(changes))
    problem = refused(answer, 400, "invalid-input", field, words)
    assert [error["field"] for error in problem["errors"]] == [field]
    nothing_stored()


@pytest.mark.parametrize(("field", "changes", "words"), WRONG_FIELDS.values(), ids=WRONG_FIELDS)
def test_a_wrong_field_in_a_batch(
    orders: Caller, field: str, changes: dict[str, Any], words: str
) -> None:
    """It is refused alone, in the same words; its neighbours are taken."""
    answer = orders.send("POST", BATCH, {"messages": [EVENT, changed(changes), EVENT]})
    assert answer.status_code == 200
    before, wrong, after = answer.json()["results"]
    assert (before["outcome"], after["outcome"]) == ("created", "created")
    assert (wrong["outcome"], wrong["code"], wrong["field"]) == ("rejected", "invalid", field)
    assert words in wrong["detail"]
    assert BizMsg.objects.count() == 2


def test_null_is_no_value(orders: Caller) -> None:
    """For a field that is needed; one that is not may be null (`test_api_null`)."""
    answer = orders.send("POST", MESSAGES, {**EVENT, "event_type": None})
    problem = refused(answer, 400, "invalid-input", "Expected str")
    assert problem["errors"][0]["field"] == "event_type"


@pytest.mark.parametrize("header", ["a b", "x" * 129, ""])
def test_a_wrong_idempotency_header(orders: Caller, header: str) -> None:
    answer = orders.send("POST", MESSAGES, EVENT, **{"Idempotency-Key": header})
    problem = refused(answer, 400, "invalid-input", "1 to 128 visible ASCII")
    assert problem["errors"][0]["field"] == "idempotency_key"
    nothing_stored()


def test_two_keys_that_differ(orders: Caller) -> None:
    body = {**EVENT, "idempotency_key": "a"}
    answer = orders.send("POST", MESSAGES, body, **{"Idempotency-Key": "b"})
    problem = refused(answer, 400, "invalid-input", "differ; send one of them")
    assert problem["errors"][0]["field"] == "idempotency_key"
    nothing_stored()
    same = orders.send("POST", MESSAGES, body, **{"Idempotency-Key": "a"})
    assert same.status_code == 202


@pytest.mark.parametrize(
    "changes", [{"payload": {"n": 2}}, {"event_type": "order.sent"}, {"channel": "eu"}]
)
@pytest.mark.parametrize("place", ["body", "header"])
def test_a_key_of_another_event(orders: Caller, changes: dict[str, Any], place: str) -> None:
    headers = {"Idempotency-Key": "k"} if place == "header" else {}
    event = {**EVENT, **({"idempotency_key": "k"} if place == "body" else {})}
    assert orders.send("POST", MESSAGES, event, **headers).status_code == 202
    answer = orders.send("POST", MESSAGES, {**event, **changes}, **headers)
    refused(answer, 409, "conflict", "use a new key for a new one")
    assert BizMsg.objects.count() == 1
    again = orders.send(
        "POST", BATCH, {"messages": [{**event, **changes, "idempotency_key": "k"}]}
    ).json()["results"]
    assert [(r["outcome"], r["code"], r["field"]) for r in again] == [
        ("rejected", "conflict", "idempotency_key")
    ]
    assert "use a new key" in again[0]["detail"]


# -- batches -------------------------------------------------------------------------------------
WRONG_BATCHES: dict[str, tuple[Any, str, str]] = {
    "no list": ({}, "messages", "required"),
    "an empty list": ({"messages": []}, "messages", f"1 to {MAX_BATCH} messages"),
    "one too many": ({"messages": [EVENT] * (MAX_BATCH + 1)}, "messages", f"1 to {MAX_BATCH}"),
    "an object": ({"messages": EVENT}, "messages", "Expected array"),
    "null": ({"messages": None}, "messages", "Expected array"),
    "an unknown field": ({"messages": [EVENT], "more": 1}, "more", "no such field"),
    "a bare list": ([EVENT], "", "Expected object"),
    "a bare event": (EVENT, "event_type", "no such field"),
}


@pytest.mark.parametrize(("body", "field", "words"), WRONG_BATCHES.values(), ids=WRONG_BATCHES)
def test_a_wrong_batch(orders: Caller, body: Any, field: str, words: str) -> None:
    problem = refused(orders.send("POST", BATCH, body), 400, "invalid-input", words)
    assert [error["field"] for error in problem["errors"]] == [field]
    nothing_stored()


@pytest.mark.parametrize("item", [7, "a", None, [], [EVENT], {}])
def test_an_item_that_is_no_event(orders: Caller, item: Any) -> None:
    answer = orders.send("POST", BATCH, {"messages": [item, EVENT]})
    rejected, created = answer.json()["results"]
    assert (rejected["outcome"], rejected["code"]) == ("rejected", "invalid")
    assert rejected["detail"]
    assert created["outcome"] == "created"
