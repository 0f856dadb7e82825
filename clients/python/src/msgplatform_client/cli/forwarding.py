"""Deliveries to a program on this machine, as a sender of the platform would make them."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import httpx

_MAX_BODY_BYTES = 4096  # of an answer, as the platform keeps it
_MAX_DETAIL = 300
_CONNECT_SECONDS = 5.0


@dataclass
class Answer:
    """What the program has answered; `status` 0 is no answer. `error` says why none came, or not
    all of it."""

    status: int = 0
    seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    error: str = ""
    detail: str = ""

    @property
    def is_refused_connection(self) -> bool:
        """True if nothing was sent, because nobody listens there."""
        return self.error in {"connect", "dns"}

    def result(self) -> dict[str, Any]:
        """The body of the request that tells the platform."""
        return asdict(self)


class Forwarder:
    """Sends requests to one address, one after another."""

    def __init__(self, address: str) -> None:
        self.address = address
        # A proxy of the environment is for the network, not for this machine.
        self._http = httpx.Client(trust_env=False, follow_redirects=False)

    def close(self) -> None:
        self._http.close()

    def send(self, request: Mapping[str, Any], timeout: float) -> Answer:
        """The answer to a delivery's request, whose headers and body stay as they are signed."""
        own = {"user-agent": f"msgp/{version('msgplatform-client')}"}
        limits = httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS))
        message = httpx.Request(
            request["method"], self.address, headers={**own, **request["headers"]},
            content=request["body"].encode(), extensions={"timeout": limits.as_dict()},
        )  # fmt: skip
        began = time.monotonic()
        answer = Answer()
        try:
            response = self._http.send(message, stream=True)
            with closing(response):
                # They count, as with the platform's own senders, when the body breaks off.
                answer.status = response.status_code
                names = ("content-type", "retry-after")
                values = {name: response.headers.get(name) for name in names}
                answer.headers = {name: value for name, value in values.items() if value}
                body = b""
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) >= _MAX_BODY_BYTES or time.monotonic() - began > timeout:
                        break
                answer.body = _text(body[:_MAX_BODY_BYTES], response.encoding or "utf-8")
        except httpx.HTTPError as error:
            answer.error, answer.detail = _kind(error), str(error)[:_MAX_DETAIL]
        answer.seconds = round(time.monotonic() - began, 3)
        return answer


def _text(body: bytes, encoding: str) -> str:
    """The body in the charset that its answer names."""
    try:
        text = body.decode(encoding, "replace")
    except (LookupError, ValueError):  # a codec that is no charset, such as base64
        text = body.decode(errors="replace")
    # UTF-7 may give half of a surrogate pair, which cannot be sent.
    return text.encode(errors="replace").decode()


def _kind(error: httpx.HTTPError) -> str:
    """The platform's word for an error."""
    if isinstance(error, httpx.ConnectTimeout):
        return "connect"
    if isinstance(error, httpx.TimeoutException):
        return "timeout"
    if isinstance(error, httpx.ConnectError):
        causes = list(_causes(error))
        if any(isinstance(each, ssl.SSLError) for each in causes):
            return "tls"
        return "dns" if any(isinstance(each, socket.gaierror) for each in causes) else "connect"
    return "reset" if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError) else "other"


def _causes(error: BaseException) -> list[BaseException]:
    causes, cause = [], error.__cause__ or error.__context__
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return causes
