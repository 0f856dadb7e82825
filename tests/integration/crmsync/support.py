"""Rows and callers that the tests of the hive share."""

import json
from typing import Any

from crmsync import directory
from crmsync.models import LandingPage, Lead
from msgplatform.models import Biz
from tests.support.answers import Answer
from tests.support.api_support import Api

ORIGIN = "https://cars.example"
LEADS = "/api/v1/leads"
WANG = {"name": "王小明", "phone": "138 0000-0000"}


def landing_page(biz: Biz, appkey: str = "ad-1", **fields: Any) -> LandingPage:
    fields = {"title": "Test drive · 试驾", "allowed_origins": [ORIGIN], **fields}
    page = LandingPage.objects.create(biz=biz, appkey=appkey, **fields)
    directory.origins.refresh(at_once=True)
    return page


def form_fields(*lines: str) -> list[dict[str, Any]]:
    """`name *` or `budget: Your budget`, as the console takes them."""
    found = []
    for line in lines:
        name, _, label = line.partition(": ")
        required = name.endswith("*")
        found.append({"name": name.rstrip(" *"), "required": required, "label": label})
    return found


class Caller:
    """Somebody who sends JSON to the API: with a key, or from a page with an origin."""

    def __init__(self, api: Api, key: str | None = None, **headers: str) -> None:
        self.api, self.key, self.headers = api, key, headers

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        extra: dict[str, Any] = {**self.headers, **headers}
        if self.key:
            extra["HTTP_AUTHORIZATION"] = f"Bearer {self.key}"
        data = b"" if body is None else json.dumps(body).encode()
        return self.api.client.generic(method, path, data, content_type="application/json", **extra)

    def post(self, body: Any, **headers: str) -> Answer:
        return self.send("POST", LEADS, body, **headers)

    def get(self, path: str = LEADS, **parameters: str) -> Answer:
        return self.api.client.get(path, parameters, HTTP_AUTHORIZATION=f"Bearer {self.key}")


def stored() -> list[Lead]:
    return list(Lead.objects.order_by("id"))
