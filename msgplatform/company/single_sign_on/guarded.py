"""Calls to the provider for `requests`, which django-allauth uses: they go through the platform's
HTTP engine, so that the address guard, the proxy and the trusted certificates of OUTBOUND_* hold,
and end in time."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from typing import Any

import requests
from django.conf import settings
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from msgplatform.core.http import engine as http
from msgplatform.core.http.response import readable

# Maximum bytes of an answer: documents and key sets of providers have some tens of kilobytes.
_MAX_BODY = 1024 * 1024
# Maximum requests of the web server that wait for the provider: the other threads are for pages.
_PLACES = 4
_places = threading.BoundedSemaphore(_PLACES)
# Places for sign-outs that the provider reports: no sign-in takes these.
_logout_places = threading.BoundedSemaphore(_PLACES)
# The monotonic time at which the present sign-in's calls must end.
_deadline: ContextVar[float] = ContextVar("sign_in_deadline", default=0.0)
# Headers that the engine sets itself, or ignores.
_NOT_SENT = frozenset({"connection", "content-length", "host", "accept-encoding"})


class Unreachable(requests.ConnectionError):
    """The provider has not answered. `kind` is the engine's class of the error, or `busy`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@contextmanager
def exchange(is_logout: bool = False) -> Iterator[None]:
    """A block with all calls of one sign-in, which together have OIDC_TIMEOUT_SECONDS. Raises
    Unreachable at once if too many wait for the provider already."""
    places = _logout_places if is_logout else _places
    if not places.acquire(blocking=False):
        raise Unreachable("busy", "Too many sign-ins wait for the provider.")
    token = _deadline.set(time.monotonic() + settings.OIDC_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        _deadline.reset(token)
        places.release()


def session() -> requests.Session:
    """A session whose calls use the engine and follow no redirect."""
    client = requests.Session()
    client.trust_env = False
    adapter = _EngineAdapter()
    client.mount("http://", adapter)
    client.mount("https://", adapter)
    return client


class _EngineAdapter(BaseAdapter):
    def send(  # type: ignore[override]  # `requests` passes what the engine has settings for
        self, request: requests.PreparedRequest, **other: Any
    ) -> requests.Response:
        deadline = _deadline.get() or time.monotonic() + settings.OIDC_TIMEOUT_SECONDS
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise Unreachable("timeout", "The provider has taken too long.")
        body = request.body or b""
        request_headers = [
            (name, value if isinstance(value, str) else value.decode("latin-1"))
            for name, value in request.headers.items()
            if name.lower() not in _NOT_SENT
        ]
        call = http.Request(
            request.url or "", body.encode() if isinstance(body, str) else body, request_headers,
            seconds, method=request.method or "GET",
        )  # fmt: skip
        answer = http.exchange(call, grace=1, body_cap=_MAX_BODY)
        if answer is None or answer.error:
            kind, detail = (answer.error, answer.detail) if answer else ("timeout", "No answer.")
            raise Unreachable(kind, detail)
        if 300 <= answer.status < 400:
            raise Unreachable("redirect", f"{request.url} leads elsewhere.")
        lines = answer.headers.decode("latin-1").splitlines()[1:]
        pairs = (line.partition(":") for line in lines if ":" in line)
        response = requests.Response()
        response.status_code = answer.status
        response.url = request.url or ""
        response.request = request
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        # In small letters without blanks, as the library expects: that does not change the type
        # (RFC 9110, 8.3.1).
        headers["content-type"] = headers.get("content-type", "").lower().replace(" ", "")
        response.headers = CaseInsensitiveDict(headers)
        response.raw = BytesIO(readable(answer, _MAX_BODY))
        return response

    def close(self) -> None:
        """Nothing to close: no connection is kept between calls."""
