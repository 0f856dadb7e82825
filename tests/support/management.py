"""A caller of the management API, and answers held against the OpenAPI document."""

import json
import re
from functools import cache
from typing import Any, NamedTuple

from django.test import Client
from jsonschema import Draft202012Validator

from msgplatform.doors.api.access import keys
from tests.support.answers import Answer
from tests.support.api_document import document

_SCOPE = re.compile(r"Scope: `(manage:[a-z-]+)`")


class Operation(NamedTuple):
    method: str
    path: str  # as the document writes it
    scope: str
    responses: dict[str, Any]


@cache
def operations() -> tuple[Operation, ...]:
    """Those of the management API."""
    return tuple(
        Operation(method.upper(), path, scope[1], operation["responses"])
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
        if (scope := _SCOPE.search(operation.get("description", "")))
    )


class Manager:
    """Has a management key; notes which operations have answered with 2xx, and how."""

    def __init__(self, *scopes: str, name: str = "provisioning") -> None:
        self.key, self.plain = keys.create(None, name, scopes or keys.management_scopes())
        self.done: set[tuple[str, str]] = set()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        key: str = "",
        idempotency_key: str = "",
        if_match: str | None = None,
        if_none_match: str = "",
    ) -> Answer:
        """`path` below /api/v1/; `body` is made JSON, unless it is bytes. The answer is compared
        with the document."""
        raw = body if isinstance(body, bytes) else "" if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {key or self.plain}"}
        if idempotency_key:
            headers["Idempotency-Key"] = idempotency_key
        if if_match is not None:
            headers["If-Match"] = if_match
        if if_none_match:
            headers["If-None-Match"] = if_none_match
        answer: Answer = Client().generic(
            method, f"/api/v1/{path}", raw, "application/json", headers=headers
        )
        if getattr(answer, "streaming", False):
            content = json.loads(b"".join(answer.streaming_content))  # type: ignore[attr-defined]
            answer.json = lambda: content  # type: ignore[method-assign]
        self._compare(method, f"/api/v1/{path.partition('?')[0]}", answer)
        return answer

    def _compare(self, method: str, path: str, answer: Answer) -> None:
        operation = _operation(method, path)
        if operation is None:
            return
        assert str(answer.status_code) in operation.responses
        if answer.status_code < 300:
            self.done.add((method, operation.path))
            for validator in _validators(method, operation.path, str(answer.status_code)):
                validator.validate(answer.json())


def _operation(method: str, path: str) -> Operation | None:
    for operation, pattern in _patterns():
        if method == operation.method and pattern.fullmatch(path):
            return operation
    return None


@cache
def _patterns() -> tuple[tuple[Operation, re.Pattern[str]], ...]:
    return tuple(
        (each, re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(each.path))))
        for each in operations()
    )


@cache
def _validators(method: str, path: str, status: str) -> tuple[Draft202012Validator, ...]:
    """Of each media type in which the operation answers with this status."""
    response = document()["paths"][path][method.lower()]["responses"][status]
    return tuple(
        Draft202012Validator({**content["schema"], "components": document()["components"]})
        for content in response.get("content", {}).values()
    )
