"""Values that JSON and the calendar allow and a database or a library does not: they are refused,
and so is what is of another type than the document says."""

from typing import Any

import pytest
from django.test import Client

from msgplatform.core import flows
from msgplatform.core.json.values import MAX_STORED_DEPTH
from msgplatform.doors.api.access import keys, throttling
from msgplatform.jobs.models import BulkJob
from msgplatform.models import ApiKey, AuditLog, Biz
from notify.intake import catalogue
from notify.models import BizReceive, EventType
from tests.support.api_support import problem
from tests.support.management import Manager
from tests.support.notify_rows import subscription
from tests.support.sms_rows import Caller

pytestmark = pytest.mark.django_db(transaction=True)

HUGE = 10**400
FIRST_DAY, LAST_DAY = "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"
URL = "https://warehouse.example/"


@pytest.fixture(autouse=True)
def fresh(work_redis: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()
    catalogue.current.cache_clear()
    yield
    keys.forget()
    catalogue.current.cache_clear()


@pytest.fixture
def manager() -> Manager:
    subscription(Biz.objects.create(name="orders"), "warehouse")
    return Manager()


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


REQUEUE = {"flow": "notify", "action": "resend", "filter": {"biz": "orders"}}
KEY = {"scopes": ["events:write"]}
OTHER_TYPES: list[tuple[str, str, dict[str, Any], str]] = [
    ("PUT", "systems/orders", {"title": 5}, "title"),
    ("PUT", "systems/orders", {"enabled": "off"}, "enabled"),
    ("PUT", "systems/orders", {"enabled": 0}, "enabled"),
    ("PUT", "consumers/warehouse", {"url": URL, "headers": {"X-Key": 5}}, "headers.X-Key"),
    ("PUT", "consumers/warehouse", {"url": URL, "networks": [10]}, "networks[0]"),
    ("PUT", "subscriptions/orders/warehouse", {"in_flight_limit": "5"}, "in_flight_limit"),
    ("PUT", "subscriptions/orders/warehouse", {"in_flight_limit": True}, "in_flight_limit"),
    ("PUT", "subscriptions/orders/warehouse", {"own_process": "yes"}, "own_process"),
    ("PUT", "subscriptions/orders/warehouse", {"rate_limit": "5"}, "rate_limit"),
    ("PUT", "subscriptions/orders/warehouse", {"rate_limit": HUGE}, "rate_limit"),
    ("PUT", "subscriptions/orders/warehouse", {"timeout": HUGE}, "timeout"),
    ("PUT", "subscriptions/orders/warehouse", {"schedule": [HUGE]}, "schedule[0]"),
    ("PUT", "subscriptions/orders/warehouse", {"event_types": [5]}, "event_types[0]"),
    ("PUT", "systems/orders/keys/till", {"scopes": [5]}, "scopes[0]"),
    ("PUT", "systems/orders/keys/till", {**KEY, "expires_at": "2090-01-01T00:00"}, "expires_at"),
    ("PUT", "systems/orders/keys/till", {**KEY, "expires_at": LAST_DAY}, "expires_at"),
    ("PUT", "systems/orders/keys/till", {**KEY, "expires_at": "9999-12-31T23:59Z"}, "expires_at"),
    ("PUT", "systems/orders/keys/%20till", KEY, "name"),
    ("PUT", "event-types/order.paid", {"description": 5}, "description"),
    ("POST", "jobs", {**REQUEUE, "filter": {"biz": 5}}, "filter.biz"),
    ("POST", "jobs", {**REQUEUE, "rate": "5"}, "rate"),
    ("POST", "jobs", {**REQUEUE, "preview": "true"}, "preview"),
    ("POST", "jobs", {**REQUEUE, "filter": {"biz": "orders", "since": FIRST_DAY}}, "since"),
    ("POST", "jobs", {**REQUEUE, "filter": {"biz": "orders", "until": LAST_DAY}}, "until"),
]


@pytest.mark.parametrize(("method", "path", "body", "field"), OTHER_TYPES)
def test_it_is_refused(
    manager: Manager, method: str, path: str, body: dict[str, Any], field: str
) -> None:
    answer = manager.send(method, path, body)
    assert [e["field"] for e in problem(answer, 400, "invalid-input")["errors"]] == [field]
    assert not BulkJob.objects.exists()
    assert not ApiKey.objects.filter(biz__name="orders").exists()
    assert not AuditLog.objects.exists()


def test_whole_numbers_may_be_written_with_a_fraction(manager: Manager) -> None:
    """As JSON Schema has it."""
    body = {"in_flight_limit": 5.0, "rate_limit": 7}
    assert manager.send("PUT", "subscriptions/orders/warehouse", body).status_code == 200
    row = BizReceive.objects.get()
    assert (row.in_flight_limit, row.rate_limit) == (5, 7)


@pytest.mark.parametrize("method", ["QUERY", "KNOWN", "TRACE"])
@pytest.mark.parametrize("path", ["leads", "messages", "sms", "feed/posts"])
def test_a_method_that_a_view_does_not_have(path: str, method: str) -> None:
    """Also when something else in it is called so."""
    key = Caller("shop", *keys.scopes()).key
    answer = Client().generic(method, f"/api/v1/{path}", headers={"Authorization": f"Bearer {key}"})
    problem(answer, 405, "method-not-allowed")
    assert "GET, POST" in answer["Allow"]


def test_an_unknown_parameter_is_a_documented_error(manager: Manager) -> None:
    """The manager looks the status up in the document."""
    for path in ("systems/orders", "consumers/warehouse", "subscriptions/orders/warehouse"):
        problem(manager.send("GET", f"{path}?verbose=1"), 400, "invalid-input")


@pytest.mark.parametrize("name", ["example", "schema"])
def test_what_is_nested_as_deeply_as_can_be_stored(manager: Manager, name: str) -> None:
    def body(levels: int) -> dict[str, Any]:
        return {name: nested(levels) if name == "example" else {"const": nested(levels - 1)}}

    for path in ("event-types/order.paid", "systems/orders/event-types/order.paid"):
        assert manager.send("PUT", path, body(MAX_STORED_DEPTH)).status_code == 201
        # The audit log has the value before and after.
        changed = {**body(MAX_STORED_DEPTH), "description": "Paid."}
        assert manager.send("PUT", path, changed).status_code == 200
        answer = manager.send("PUT", path, body(MAX_STORED_DEPTH + 1))
        assert [e["field"] for e in problem(answer, 400, "invalid-input")["errors"]] == [name]
        assert manager.send("DELETE", path).status_code == 204
    assert not EventType.objects.exists()


@pytest.mark.parametrize("levels", [100, 400, 900, 950, 990, 5000])
def test_what_is_nested_too_deeply(manager: Manager, levels: int) -> None:
    """Whichever library would be the first that cannot walk through it."""
    raw = b'{"example": ' + b"[" * levels + b"]" * levels + b"}"
    assert manager.send("PUT", "event-types/order.paid", raw).status_code == 400
    assert not EventType.objects.exists()


@pytest.mark.parametrize("given", [FIRST_DAY, LAST_DAY, "2026-11-20T08:00:00", "2026-11-20"])
@pytest.mark.parametrize(
    ("path", "name"),
    [("leads", "since"), ("leads/changes", "since"), ("messages", "since"), ("sms", "until")],
)
def test_times_need_a_zone_and_a_place_in_the_calendar(path: str, name: str, given: str) -> None:
    caller = Caller("shop", *keys.scopes())
    answer = caller.get(f"/api/v1/{path}", **{name: given})
    (error,) = problem(answer, 400, "invalid-input")["errors"]
    assert error["field"] == name


@pytest.mark.parametrize("given", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
@pytest.mark.parametrize(
    "path", ["leads?since", "leads/changes?since", "messages?since", "sms?until"]
)
def test_the_ends_of_the_calendar(path: str, given: str) -> None:
    caller = Caller("shop", *keys.scopes())
    answer = caller.get(f"/api/v1/{path}={given}")
    assert (answer.status_code, answer.json()["results"]) == (200, [])


ODD_TEXTS = [
    "\x00", "/", "a/b", "%", "💥", ",", "-1", "9" * 19, "9223372036854775807", "9" * 4000,
    "0001-01-01", "9999-12-31T23:59:59", FIRST_DAY, LAST_DAY,
]  # fmt: skip
FILTERS = [
    (flow.name, action, name)
    for flow in flows.all()
    for action, described in flow.actions.items()
    for name in described.fields
]


@pytest.mark.parametrize(("flow", "action", "name"), FILTERS)
def test_any_text_in_a_filter(
    manager: Manager, sms_redis: object, flow: str, action: str, name: str
) -> None:
    for text in ODD_TEXTS:
        filter = {"biz": "orders", "subscription": "orders/warehouse", name: text}
        usual = flows.get(flow).actions[action].fields
        asked = {each: value for each, value in filter.items() if each in usual}
        body = {"flow": flow, "action": action, "filter": asked, "preview": True}
        assert manager.send("POST", "jobs", body).status_code in {200, 400}, text
