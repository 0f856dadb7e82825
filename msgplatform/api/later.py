"""Responses that are known only after the view has returned, so that no thread waits for them.

A server that can send them later (`web_worker.py`) says so in the environment of the request;
with every other server, and in Django's test client, a view waits as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections
from django.http import HttpRequest, HttpResponse
from rest_framework.request import Request

from msgplatform.api import error_pages, problems
from msgplatform.api.access.key_cache import used_keys
from msgplatform.core import logging

log = logging.get(__name__)

# Set by the server in the environment of a request.
ANSWERS_LATER = "msgplatform.answers_later"

Send = Callable[[HttpResponse], None]


def possible(request: Request) -> bool:
    """Whether the server of this request can send the response later."""
    return ANSWERS_LATER in request._request.META


def has_connection() -> bool:
    """Whether this thread has an open database connection."""
    return any(each.connection is not None for each in connections.all(initialized_only=True))


class Later(HttpResponse):
    """Stands for the response while middleware and DRF add their headers.

    `settle` (what became of it, in any thread) and `deliver` (how to send it) are called once
    each, in any order; the second of them sends. `finish` makes the response of the result.
    """

    def __init__(self, request: HttpRequest, finish: Callable[[Any], HttpResponse]) -> None:
        super().__init__()
        self._request, self._finish = request, finish
        self._result: Any = None
        self._error: Exception | None = None
        self._send: Send | None = None
        self._first = [True]  # list.pop is atomic, so only one of two threads is the second

    def settle(self, result: Any, error: Exception | None = None) -> None:
        """The result, or the error that the view would have raised."""
        self._result, self._error = result, error
        self._meet()

    def deliver(self, send: Send) -> None:
        """`send` is called with the final response: now, or when it is known."""
        self._send = send
        self._meet()

    def close(self) -> None:
        """Without the signal when there is nothing that it would be for."""
        if has_connection() or used_keys:
            super().close()
            return
        self._request.close()
        self.closed = True

    def _meet(self) -> None:
        try:
            self._first.pop()
        except IndexError:
            pass
        else:
            return
        if self._send is not None:
            self._send(self._final())

    def _final(self) -> HttpResponse:
        try:
            if self._error is not None:
                raise self._error
            return self._finish(self._result)
        except Exception as error:  # noqa: BLE001 - as Django does around a view
            return problems.handle(error, {}) or error_pages.server_error(self._request)
