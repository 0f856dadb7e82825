"""What the tests of the API share. A test file takes the fixture with

api = pytest.fixture(api_support.api)
"""

import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from msgplatform.core import flows
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.health import Health, Status
from msgplatform.core.flows.messages import MessageStore
from msgplatform.core.flows.metric import Metric
from msgplatform.doors.api.access import key_cache, keys, throttling
from msgplatform.models import ApiKey, Biz
from tests.support.answers import Answer

URLCONF = "tests.support.api_views"
READ, WRITE = "things:read", "things:write"
_numbers = itertools.count(1)


_WAITING = Metric("things_waiting", "Things that wait", ("kind",))
# A flow that only declares scopes.
THINGS = Flow(
    name="things",
    title="Things",
    permission="msgplatform.view_biz",
    scopes={READ: "Read things.", WRITE: "Write things."},
    messages=MessageStore(
        fields={},
        sources=lambda values: [],
        readings=lambda query, personal: [],
        page=lambda id, after="": None,
    ),
    health=Health(
        read_status=lambda: Status(backlog=0, oldest_seconds=None),
        metrics=lambda: [_WAITING.of(7.0, kind="big")],
        declared_metrics=(_WAITING,),
    ),
)


class Api:
    """Makes keys and requests. A key is sent when given; responses are never raised exceptions."""

    def __init__(self) -> None:
        self.client = Client(raise_request_exception=False)

    def biz(self, **fields: Any) -> Biz:
        return Biz.objects.create(name=f"biz-{next(_numbers)}", **fields)

    def key(
        self, *allowed: str, biz: Biz | None = None, expires_at: datetime | None = None
    ) -> tuple[ApiKey, str]:
        return keys.create(biz or self.biz(), "tests", allowed or (READ, WRITE), expires_at)

    def get(self, path: str, key: str | None = None, **extra: Any) -> Answer:
        return self.client.get(path, **_authorized(key), **extra)

    def post(self, path: str, body: bytes = b"{}", key: str | None = None, **extra: Any) -> Answer:
        extra["CONTENT_TYPE"] = extra.pop("content_type", "application/json")
        return self.client.generic("POST", path, body, **_authorized(key), **extra)


def _authorized(key: str | None) -> dict[str, Any]:
    return {} if key is None else {"HTTP_AUTHORIZATION": f"Bearer {key}"}


def api(
    monkeypatch: pytest.MonkeyPatch, settings: Any, work_redis: object, db: None
) -> Iterator[Api]:
    """The API with the addresses of api_views and the scopes of THINGS."""
    settings.ROOT_URLCONF = URLCONF
    registered = {flow.name: flow for flow in flows.all()}
    monkeypatch.setattr(flows, "_registry", {**registered, "things": THINGS})
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()
    # Those of tests that ended no request after it: the next request would write them.
    key_cache.used_keys.clear()
    yield Api()
    keys.forget()


def problem(response: Answer, status: int, slug: str) -> dict[str, Any]:
    """Assert that this is a whole problem document of the given kind, and return it."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["type"], body["status"]) == (f"/problems/{slug}", status)
    assert body["title"]
    assert body["detail"]
    return body
