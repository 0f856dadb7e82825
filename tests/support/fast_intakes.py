"""The same requests through the fast intake and through Django."""

import asyncio
import json
import re
from typing import Any, NamedTuple

from django.core.handlers.wsgi import WSGIHandler

from gateway.intake import accept
from msgplatform.doors.api.access import keys
from msgplatform.doors.web.application import Application, intakes
from msgplatform.doors.web.bodies import Answer
from msgplatform.doors.web.django_app import DjangoApp
from msgplatform.doors.web.fast_intake import FastIntake
from msgplatform.models import Biz
from tests.support import sms_rows

SCOPES = ["events:write", "feed:write", "sms:write"]


Pair = tuple[bytes, bytes]


class CountingIntake(FastIntake):
    """Knows how many requests it answered itself."""

    served = 0

    async def answer(
        self, scope: dict[str, Any], named: dict[bytes, bytes], body: bytes, request_id: str
    ) -> Answer | None:
        answer = await super().answer(scope, named, body, request_id)
        self.served += answer is not None
        return answer

    def health(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> Answer | None:
        answer = super().health(scope, headers)
        self.served += answer is not None
        return answer


class Said(NamedTuple):
    status: int
    headers: list[Pair]
    body: bytes

    def comparable(self) -> tuple[int, dict[bytes, bytes], Any]:
        """Without what differs from request to request: the request's id, the error's, the item's
        (and with them the length)."""
        body: Any = self.body
        if self.body[:1] == b"{":
            body = json.loads(self.body)
            for name in ("id", "error_id", "ids"):
                if name in body:
                    body[name] = True
            if "detail" in body:
                body["detail"] = re.sub(r"\(message \d+\)", "", body["detail"])
        headers = dict(self.headers)
        assert len(headers) == len(self.headers)
        assert headers.pop(b"x-request-id")
        assert int(headers.pop(b"content-length", b"0")) == len(self.body)
        return self.status, headers, body


async def ask(
    application: Application, method: str, target: str, headers: list[Pair], body: bytes
) -> Said:
    path, _, query = target.partition("?")
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "headers": headers,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    start, *bodies = sent
    return Said(start["status"], start["headers"], b"".join(each["body"] for each in bodies))


class Both:
    """The application with its fast intake and without; a business system with keys for each."""

    def __init__(self) -> None:
        keys.forget()
        accept.intake.cache_clear()
        sms_rows.gateway()
        self.loop = asyncio.new_event_loop()
        self.fast_intake = CountingIntake(intakes())
        # Its middleware reads settings once.
        django = DjangoApp(WSGIHandler(), threads=2)
        self.applications = [Application(one, django) for one in (self.fast_intake, FastIntake([]))]
        self.keys = [self._keys(f"system {n}") for n in range(2)]

    def _keys(self, name: str) -> dict[str, str]:
        biz = Biz.objects.create(name=name)
        sms_rows.account(biz, name)
        made = {
            "good": keys.create(biz, "good", SCOPES)[1],
            "without scope": keys.create(biz, "other", ["feed:read"])[1],
        }
        revoked, plain = keys.create(biz, "revoked", SCOPES)
        keys.revoke(revoked)
        return {**made, "revoked": plain, "unknown": "mp_" + "a" * 12 + "_" + "b" * 43}

    def ask(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[Said, Said]:
        """Values may say `{good}` for a key."""
        said = []
        for application, known in zip(self.applications, self.keys, strict=True):
            pairs = [(n.encode(), _filled(v, known).encode("latin-1")) for n, v in headers]
            said.append(self.loop.run_until_complete(ask(application, method, target, pairs, body)))
        return said[0], said[1]


def _filled(value: str, known: dict[str, str]) -> str:
    for name, plain in known.items():
        value = value.replace(f"{{{name}}}", plain)
    return value


def plain(body: bytes, **changed: str | None) -> list[tuple[str, str]]:
    """The headers of a usual publish; None leaves one out."""
    usual: dict[str, str | None] = {
        "host": "testserver",
        "authorization": "Bearer {good}",
        "content-type": "application/json",
        "content-length": str(len(body)),
    }
    wanted = {**usual, **{name.replace("_", "-"): value for name, value in changed.items()}}
    return [(name, value) for name, value in wanted.items() if value is not None]
