"""Leads from pages hosted elsewhere: the public APPKEY, origins, preflight, limits."""

from collections.abc import Iterator
from typing import Any

import pytest

from crmsync.models import LandingPage
from msgplatform.doors.api.access import keys, throttling
from tests.integration.crmsync.support import (
    LEADS,
    ORIGIN,
    WANG,
    Caller,
    form_fields,
    landing_page,
    stored,
)
from tests.support.answers import Answer
from tests.support.api_support import Api, problem

pytestmark = pytest.mark.django_db(transaction=True)
ALLOW = "Access-Control-Allow-Origin"
BODY = {"appkey": "ad-1", **WANG}


@pytest.fixture
def api(work_redis: object, monkeypatch: pytest.MonkeyPatch, db: None) -> Iterator[Api]:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()
    yield Api()
    keys.forget()


@pytest.fixture
def page(api: Api) -> LandingPage:
    return landing_page(api.biz())


@pytest.fixture
def visitor(api: Api, page: LandingPage) -> Caller:
    return Caller(api, HTTP_ORIGIN=ORIGIN)


def preflight(visitor: Caller, **headers: str) -> Answer:
    asked = {"HTTP_ACCESS_CONTROL_REQUEST_METHOD": "POST", **headers}
    return visitor.send("OPTIONS", LEADS, **asked)


def test_a_page_needs_no_key(visitor: Caller, page: LandingPage) -> None:
    response = visitor.post(BODY)
    assert response.status_code == 202, response.content
    assert response[ALLOW] == ORIGIN
    assert "Origin" in response["Vary"]
    (row,) = stored()
    assert (row.biz, row.phone) == (page.biz, "13800000000")


def test_preflight(visitor: Caller) -> None:
    response = preflight(visitor, HTTP_ACCESS_CONTROL_REQUEST_HEADERS="content-type")
    assert (response.status_code, response.content) == (204, b"")
    assert response[ALLOW] == ORIGIN
    assert response["Access-Control-Allow-Methods"] == "POST"
    assert response["Access-Control-Allow-Headers"] == "Content-Type, Idempotency-Key"
    assert response["Access-Control-Max-Age"] == "600"
    assert "Origin" in response["Vary"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://cars.example", ORIGIN + ":8443", "null"]
)
def test_an_origin_that_is_not_allowed(visitor: Caller, origin: str) -> None:
    answer = preflight(visitor, HTTP_ORIGIN=origin)
    assert not answer.has_header(ALLOW)
    refused = visitor.post(BODY, HTTP_ORIGIN=origin)
    assert f"Origin: {origin} " in problem(refused, 403, "forbidden")["detail"]
    assert not refused.has_header(ALLOW)
    assert not stored()


def test_the_origin_of_another_landing_page(visitor: Caller, api: Api) -> None:
    """Its script may read why it is refused."""
    landing_page(api.biz(), "ad-2", allowed_origins=["https://other.example"])
    refused = visitor.post(BODY, HTTP_ORIGIN="https://other.example")
    problem(refused, 403, "forbidden")
    assert refused[ALLOW] == "https://other.example"
    assert not stored()


def test_errors_can_be_read_by_the_script(visitor: Caller) -> None:
    for body, field in ((WANG, "appkey"), ({**BODY, "appkey": "x"}, "appkey"), (
        {**BODY, "phone": "x"}, "phone")):  # fmt: skip
        response = visitor.post(body)
        assert problem(response, 400, "invalid-input")["errors"][0]["field"] == field
        assert response[ALLOW] == ORIGIN
    assert not stored()


def test_only_storing_is_open(visitor: Caller, page: LandingPage) -> None:
    for method, path in (
        ("GET", LEADS), ("POST", f"{LEADS}/batch"), ("GET", f"{LEADS}/1"), ("PATCH", f"{LEADS}/1"),
        ("DELETE", f"{LEADS}/1"),
    ):  # fmt: skip
        problem(visitor.send(method, path, {}), 401, "unauthenticated")


def test_a_wrong_key_is_not_overlooked(visitor: Caller) -> None:
    refused = visitor.post(BODY, HTTP_AUTHORIZATION="Bearer mp_wrong")
    problem(refused, 401, "unauthenticated")
    assert not stored()


def test_a_key_has_no_use_in_a_page(visitor: Caller, api: Api, page: LandingPage) -> None:
    """A script never gets to read the answer of a request with a key."""
    key = api.key("leads:write", biz=page.biz)[1]
    response = Caller(api, key, HTTP_ORIGIN=ORIGIN).post(BODY)
    assert response.status_code == 202
    assert not response.has_header(ALLOW)


def test_a_switched_off_system(visitor: Caller, page: LandingPage) -> None:
    page.biz.enabled = False
    page.biz.save()
    error = problem(visitor.post(BODY), 400, "invalid-input")["errors"][0]
    assert error["field"] == "appkey"


def test_a_repeat_and_a_key_of_the_system(visitor: Caller, api: Api, page: LandingPage) -> None:
    """A visitor cannot take a key of the business system, nor learn what it stands for."""
    key = api.key("leads:write", biz=page.biz)[1]
    ours = Caller(api, key).post({**BODY, "idempotency_key": "k"}).json()
    first = visitor.post(BODY, HTTP_IDEMPOTENCY_KEY="k")
    second = visitor.post(BODY, HTTP_IDEMPOTENCY_KEY="k")
    assert first.json()["outcome"] == "created"
    assert first.json()["id"] != ours["id"]
    assert second.json() == {"outcome": "duplicate", "id": first.json()["id"]}
    assert len(stored()) == 2


def test_whoever_guesses_a_key_keeps_no_lead_out(visitor: Caller, page: LandingPage) -> None:
    guessed = visitor.post({**BODY, "name": "Nobody"}, HTTP_IDEMPOTENCY_KEY="visit-4711")
    real = visitor.post(BODY, HTTP_IDEMPOTENCY_KEY="visit-4711")
    assert (guessed.status_code, real.status_code) == (202, 202)
    again = visitor.post(BODY, HTTP_IDEMPOTENCY_KEY="visit-4711")
    assert again.json() == {"outcome": "duplicate", "id": real.json()["id"]}
    assert len(stored()) == 2


def test_wrong_leads_count_for_their_address_alone(
    visitor: Caller, page: LandingPage, settings: Any
) -> None:
    settings.CRM_RATE_APPKEY, settings.CRM_RATE_PER_IP = "3/hour", "5/hour"

    def post(address: str, **changes: str) -> int:
        return visitor.post({**BODY, **changes}, REMOTE_ADDR=address).status_code

    wrong = [post(f"192.0.2.{n}", phone="x") for n in range(4) for _ in range(6)]
    assert wrong == [400, 400, 400, 400, 400, 429] * 4
    assert [post("198.51.100.1") for _ in range(5)] == [202, 202, 202, 429, 429]
    assert [post("203.0.113.9") for _ in range(2)] == [202, 429]


@pytest.mark.parametrize("limit", ["CRM_RATE_PER_IP", "CRM_RATE_APPKEY"])
def test_limits(visitor: Caller, api: Api, page: LandingPage, settings: Any, limit: str) -> None:
    setattr(settings, limit, "3/hour")
    landing_page(page.biz, "ad-2")
    for _ in range(3):
        assert visitor.post(BODY).status_code == 202
    refused = visitor.post(BODY)
    problem(refused, 429, "throttled")
    assert 3000 < int(refused["Retry-After"]) <= 3600
    assert refused[ALLOW] == ORIGIN
    # Another address, another landing page, a business system.
    elsewhere = visitor.post(BODY, REMOTE_ADDR="192.0.2.7")
    other_page = visitor.post({**BODY, "appkey": "ad-2"})
    by_address = limit == "CRM_RATE_PER_IP"
    # Above the page's limit an address that has stored nothing lately may store one.
    expected = (202, 429) if by_address else (202, 202)
    assert (elsewhere.status_code, other_page.status_code) == expected
    key = api.key("leads:write", biz=page.biz)[1]
    assert Caller(api, key).post(BODY).status_code == 202


def test_an_ipv6_caller_is_its_network(visitor: Caller, settings: Any) -> None:
    """A line has a /64: an address of it costs nothing."""
    settings.CRM_RATE_PER_IP = "3/hour"

    def post(address: str) -> int:
        return visitor.post(BODY, REMOTE_ADDR=address).status_code

    same = [post(f"2001:db8:0:1:{number:x}::7") for number in range(4)]
    assert same == [202, 202, 202, 429]
    assert post("2001:db8:0:2::7") == 202


def test_a_repeat_after_the_page_has_changed(visitor: Caller, page: LandingPage) -> None:
    first = visitor.post(BODY, HTTP_IDEMPOTENCY_KEY="k")
    LandingPage.objects.update(form_fields=form_fields("name *", "phone *", "email *"))
    second = visitor.post(BODY, HTTP_IDEMPOTENCY_KEY="k")
    assert second.status_code == 200, second.content
    assert second.json() == {"outcome": "duplicate", "id": first.json()["id"]}
    # It goes through the same door as any other.
    problem(
        visitor.post(BODY, HTTP_IDEMPOTENCY_KEY="k", HTTP_ORIGIN="https://evil.example"),
        403,
        "forbidden",
    )
    problem(visitor.post(BODY, HTTP_IDEMPOTENCY_KEY="new"), 400, "invalid-input")
