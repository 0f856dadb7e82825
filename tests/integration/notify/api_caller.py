"""A business system that calls the API of Notify."""

import json
from typing import Any

from django.test import Client

from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from tests.support.answers import Answer

MESSAGES, BATCH = "/api/v1/messages", "/api/v1/messages/batch"


class Caller:
    """A business system with a key."""

    def __init__(self, name: str, *scopes: str) -> None:
        self.biz = Biz.objects.create(name=name)
        self.key = keys.create(self.biz, "test", scopes or ["events:write", "events:read"])[1]
        self.client = Client()

    def _headers(self, more: dict[str, str]) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}", **more}

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(
            path, raw, content_type="application/json", headers=self._headers(headers)
        )

    def get(self, path: str) -> Answer:
        return self.client.get(path, headers=self._headers({}))
