"""Every list of every flow: which parameters it takes, and that it takes no others."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import get_resolver
from rest_framework.generics import ListAPIView

from msgplatform.doors.api.access import keys, throttling
from msgplatform.doors.api.query import ListView
from tests.support.api_document import api_views, document
from tests.support.api_support import Api, problem
from tests.support.management import Manager

pytestmark = pytest.mark.django_db(transaction=True)
SCOPES = ("events:read", "sms:read", "leads:read", "sync:run", "feed:read")
# Each with what it needs.
LISTS = {
    "/api/v1/messages": {},
    "/api/v1/sms": {},
    "/api/v1/sms/incoming": {},
    "/api/v1/leads": {},
    "/api/v1/leads/changes": {"since": "2026-01-01T00:00:00Z"},
    "/api/v1/sync/policies": {},
    "/api/v1/sync/runs": {},
    "/api/v1/feed/posts": {},
    "/api/v1/feed/relations": {"uid": "1001", "relation": "friend"},
    "/api/v1/feed/timelines/1001": {},
}


@pytest.fixture
def api(work_redis: object, sms_redis: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()
    yield Api()
    keys.forget()


@pytest.fixture
def key(api: Api) -> str:
    return api.key(*SCOPES)[1]


def get(api: Api, key: str, path: str, /, **asked: Any) -> Any:
    return api.client.get(path, asked, HTTP_AUTHORIZATION=f"Bearer {key}")


def test_all_lists_are_here() -> None:
    views = dict(api_views(get_resolver("msgplatform.urls")))
    lists = {path for path, view in views.items() if issubclass(view, ListAPIView)}
    # Lists of what is managed have a key of their own, and a test (`test_management_api.py`).
    managed = {path for path in lists if "manage:" in str(views[path].required_scope)}
    assert len(managed) == 20
    assert lists - managed == set(LISTS) - {"/api/v1/feed/timelines/1001"}
    assert all(issubclass(views[path], ListView) for path in lists)


@pytest.mark.parametrize("path", LISTS)
def test_an_unknown_parameter_is_refused(api: Api, key: str, path: str) -> None:
    assert get(api, key, path, **LISTS[path]).status_code == 200
    for name in ("evnt_type", "format", "offset"):
        body = problem(get(api, key, path, **LISTS[path], **{name: "1"}), 400, "invalid-input")
        assert body["errors"][0]["field"] == name
        documented = document()["paths"][path.replace("1001", "{uid}")]["get"]
        known = {p["name"] for p in documented["parameters"] if p["in"] == "query"}
        assert "limit" in known
        assert ("since_id" if path.endswith("incoming") else "cursor") in known
        assert all(each in body["detail"] for each in known)


@pytest.mark.parametrize("path", LISTS)
def test_an_empty_parameter_is_as_good_as_none(api: Api, key: str, path: str) -> None:
    operation = document()["paths"][path.replace("1001", "{uid}")]["get"]
    empty = {p["name"]: "" for p in operation["parameters"] if p["in"] == "query"}
    answer = get(api, key, path, **{**empty, **LISTS[path]})
    assert answer.status_code == 200, answer.content


@pytest.mark.parametrize("path", LISTS)
def test_a_parameter_of_blanks_is_refused(api: Api, key: str, path: str) -> None:
    """A file's line end, for example: a list of everything would be taken for the answer."""
    operation = document()["paths"][path.replace("1001", "{uid}")]["get"]
    for name in [p["name"] for p in operation["parameters"] if p["in"] == "query"]:
        body = problem(get(api, key, path, **{**LISTS[path], name: " \n"}), 400, "invalid-input")
        assert body["errors"][0]["field"] == name


def test_no_operation_ignores_a_part_of_a_request(api: Api) -> None:
    """Neither a parameter nor a header that would change what is done, if it were known."""
    system_key, manager = keys.create(api.biz(), "all", keys.scopes())[1], Manager().plain
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            names = {parameter["name"] for parameter in operation.get("parameters", ())}
            # A page may pass on to its leads what its own address had.
            is_lead = (path, method) == ("/api/v1/leads", "post")
            parts = {} if is_lead else {"nonsense": "?nonsense=1"}
            if method != "get":
                headers = {"If-Match", "If-None-Match"}
                headers |= {"Idempotency-Key"} if method == "post" else set()
                parts |= dict.fromkeys(headers - names, "")
            is_managed = "Scope: `manage:" in operation["description"]
            for name, query in parts.items():
                sent = {} if query else {name: "*"}
                answer = api.client.generic(
                    method.upper(), re.sub(r"{\w+}", "7", path) + query, "{}", "application/json",
                    headers={"Authorization": f"Bearer {manager if is_managed else system_key}",
                             **sent},
                )  # fmt: skip
                assert answer.status_code == 400, (method, path, name, answer.content)
                field = answer.json()["errors"][0]["field"]
                assert field.lower().replace("_", "-") == name.lower(), (method, path, name)


def test_a_parameter_is_given_once(api: Api, key: str) -> None:
    body = problem(get(api, key, "/api/v1/messages", limit=["1", "2"]), 400, "invalid-input")
    assert body["errors"][0]["field"] == "limit"


def test_who_asks_comes_first(api: Api) -> None:
    """What a list takes is not told to somebody without a key."""
    problem(api.get("/api/v1/messages?nonsense=1"), 401, "unauthenticated")


@pytest.mark.parametrize("path", ["/api/v1/messages/7", "/api/v1/sms/7", "/api/v1/leads/7",
                                  "/api/v1/feed/posts/7", "/api/v1/sync/runs/7"])  # fmt: skip
def test_what_is_not_there_has_no_name_of_ours(api: Api, key: str, path: str) -> None:
    detail = problem(get(api, key, path), 404, "not-found")["detail"]
    assert not any(name in detail for name in ("BizMsg", "query", "SgipMt", "Lead "))
