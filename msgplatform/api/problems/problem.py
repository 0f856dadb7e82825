"""A problem, one answer as RFC 9457 has it, and exceptions of our own that become one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec
from django.http import HttpResponse
from rest_framework import exceptions as drf

from msgplatform.api.problems.kinds import Kind

CONTENT_TYPE = "application/problem+json"
# Long enough for a restart of a server, short enough that callers do not give up.
RETRY_AFTER_SECONDS = 5


@dataclass(frozen=True)
class Problem:
    """One answer: its kind and details; `more` has members beyond those of RFC 9457."""

    kind: Kind
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def response(self) -> HttpResponse:
        """Already encoded, so that no renderer of the view can fail on it."""
        body = {
            "type": self.kind.uri,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            **self.more,
        }
        return HttpResponse(
            msgspec.json.encode(body),
            status=self.kind.status,
            content_type=CONTENT_TYPE,
            headers=dict(self.headers),
        )


class BodyTooLarge(drf.APIException):
    """The body is longer than the view takes."""

    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"Send at most {max_bytes} bytes in one request.")
        self.max_bytes = max_bytes


class MissingScope(drf.PermissionDenied):
    """The API key is valid, but lacks the scope that the view needs."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"Use an API key with the scope {scope}.")
        self.scope = scope
