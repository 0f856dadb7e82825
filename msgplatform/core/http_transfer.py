"""One transfer: a libcurl handle, used again and again, and what its callbacks gather.

Only `core.http` imports pycurl; libcurl's constants are attributes of every handle.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgplatform.core.addresses import AddressGuard, canonical
from msgplatform.core.http_jobs import Job, Proxy, bracketed
from msgplatform.core.http_messages import Response, printable

_HEADER_CAP = 8192  # bytes
_READ_FACTOR = 4  # × body_cap is read before a transfer is cut
_CONNECT_SHARE_SECONDS = 3.0  # for an address when there is another one to try
_LARGE_BODY = 65536  # bytes; an idle handle does not hold on to more

# libcurl's result codes (curl/curl.h; part of its ABI) by our classes; the rest is `other`.
_CONNECT_FAILED, _TIMED_OUT = 7, 28
_ERRORS = {
    5: "dns",  # the proxy's name
    6: "dns",
    _CONNECT_FAILED: "connect",
    97: "connect",  # the proxy's handshake
    _TIMED_OUT: "timeout",
    18: "reset",  # part of the body
    52: "reset",  # nothing at all
    55: "reset",  # sending
    56: "reset",  # receiving
    23: "too_large",  # our write callback said no
    100: "too_large",  # headers
    **dict.fromkeys((35, 53, 54, 58, 59, 60, 64, 66, 77, 80, 82, 83, 90, 91, 98), "tls"),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What all transfers of an engine share. `opened` is told of each new socket."""

    guard: AddressGuard
    proxy: Proxy | None
    body_cap: int
    opened: Callable[[int], None]


class Transfer:
    """`curl` is a pycurl.Curl with the engine's options set."""

    def __init__(self, curl: Any, policy: Policy) -> None:
        self.curl, self._policy = curl, policy
        self.job: Job
        self._headers, self._body = bytearray(), bytearray()
        self._read = 0
        self._fault: tuple[str, str] | None = None  # why a socket was not opened
        self._url = self._pin = ""
        self._kind: tuple[str, bool] = ("", False)  # method, whether a body is sent
        curl.setopt(curl.WRITEFUNCTION, self._on_body)
        curl.setopt(curl.HEADERFUNCTION, self._on_header)
        curl.setopt(curl.OPENSOCKETFUNCTION, self._open_socket)
        curl.setopt(curl.SOCKOPTFUNCTION, self._on_opened)

    def begin(self, job: Job, now: float) -> None:
        """Prepare the handle for the job's current address."""
        curl, request = self.curl, job.request
        self.job, self._read, self._fault = job, 0, None
        self._headers.clear()
        self._body.clear()
        self._set_method(request.method, bool(request.body))
        if self._kind[1]:
            curl.setopt(curl.POSTFIELDS, request.body)
        curl.setopt(curl.HTTPHEADER, job.lines)
        if self._url != job.destination.url:
            self._url = job.destination.url
            curl.setopt(curl.URL, self._url)
        self._set_pin(job)
        left = job.deadline - now
        others = len(job.addresses) - job.attempt - 1
        share = min(left / (others + 1), _CONNECT_SHARE_SECONDS) if others > 0 else left
        curl.setopt(curl.TIMEOUT_MS, _milliseconds(left))
        curl.setopt(curl.CONNECTTIMEOUT_MS, _milliseconds(share))

    def may_try_next(self, code: int, now: float) -> bool:
        """Whether no connection came about, and there is another address and time to try it."""
        job = self.job
        return (
            code in (_CONNECT_FAILED, _TIMED_OUT)
            and self._fault is None
            and job.attempt + 1 < len(job.addresses)
            and now < job.deadline
            and not self.curl.getinfo(self.curl.CONNECT_TIME)
        )

    def response(self, code: int, message: str, now: float) -> Response:
        """What became of the job, once libcurl has finished it with `code`."""
        curl, job = self.curl, self.job
        status = curl.getinfo(curl.RESPONSE_CODE)
        error = _ERRORS.get(code, "other") if code else ""
        if self._fault:
            error, message = self._fault
        elif code and curl.getinfo(curl.HTTP_CONNECTCODE) >= 300:
            error, status = "connect", 0  # the proxy's answer is not the target's
        elif not code and status < 200:
            error, message = "other", "The server gave no final answer."
        if status < 200:
            status = 0
            self._headers.clear()
        if len(job.request.body) > _LARGE_BODY:
            curl.setopt(curl.POSTFIELDS, b"")
        return Response(
            job.request,
            status,
            bytes(self._headers),
            bytes(self._body),
            now - job.submitted,
            error,
            printable(message) if error else "",
            curl.getinfo(curl.PRIMARY_IP),
        )

    def _set_method(self, method: str, has_body: bool) -> None:
        sends = method != "HEAD" and (has_body or method in ("POST", "PUT", "PATCH"))
        if (method, sends) == self._kind:
            return
        self._kind, curl = (method, sends), self.curl
        curl.setopt(curl.HTTPGET, 1)  # undoes POST and NOBODY
        curl.unsetopt(curl.CUSTOMREQUEST)
        if method == "HEAD":
            curl.setopt(curl.NOBODY, 1)
            return
        if sends:
            curl.setopt(curl.POST, 1)
        if method != ("POST" if sends else "GET"):
            curl.setopt(curl.CUSTOMREQUEST, method)

    def _set_pin(self, job: Job) -> None:
        curl, proxy = self.curl, self._policy.proxy
        if job.addresses:
            pin = f"::{bracketed(job.addresses[job.attempt])}:{job.destination.port}"
            if pin != self._pin:
                self._pin = pin
                curl.setopt(curl.CONNECT_TO, [pin])
        if proxy and not proxy.address:
            peers = ",".join(map(bracketed, job.peers))
            curl.setopt(curl.RESOLVE, [f"{proxy.host}:{proxy.port}:{peers}"])

    def _open_socket(self, _purpose: int, peer: Any) -> Any:
        """The last look: whatever libcurl made of the URL, this is where it is about to go."""
        address, job = str(canonical(peer.addr[0])), self.job
        proxied = self._policy.proxy is not None
        if address not in (job.peers if proxied else job.addresses[job.attempt : job.attempt + 1]):
            self._fault = ("address_forbidden", f"{address} is not the address that was vetted.")
        elif not proxied and (reason := self._policy.guard.reason(address)):
            self._fault = ("address_forbidden", reason)
        if self._fault:
            return self.curl.SOCKET_BAD
        try:
            return socket.socket(peer.family, peer.socktype, peer.protocol)
        except OSError as error:
            self._fault = ("other", f"No socket could be opened here: {error.strerror}.")
            return self.curl.SOCKET_BAD

    def _on_opened(self, fd: int, _purpose: int) -> int:
        os.set_inheritable(fd, False)  # pycurl works on a duplicate that lost the flag
        self._policy.opened(fd)
        return int(self.curl.SOCKOPT_OK)

    def _on_header(self, line: bytes) -> None:
        if line.startswith(b"HTTP/"):  # a new block: what went before was 1xx, or the proxy's
            self._headers.clear()
        self._headers += line[: max(0, _HEADER_CAP - len(self._headers))]

    def _on_body(self, data: bytes) -> int:
        cap = self._policy.body_cap
        self._read += len(data)
        self._body += data[: max(0, cap - len(self._body))]
        return len(data) if self._read <= cap * _READ_FACTOR else -1


def _milliseconds(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))  # 0 would mean no limit
