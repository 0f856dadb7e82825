"""One transfer: a libcurl handle that serves one job after another, and its callbacks."""

import math
import os
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pycurl

from msgplatform.core.http.addresses import (
    AddressGuard,
    bracketed,
    canonical,
    is_inside,
    own_reason,
)
from msgplatform.core.http.destinations import Destination
from msgplatform.core.http.jobs import Job, Proxy
from msgplatform.core.http.messages import Response, printable
from msgplatform.core.http.response import are_whole, start_of_final

_HEADER_CAP = 8192  # bytes of headers that are kept
_HEADER_FLOOD = 300 * 1024  # bytes of headers at which libcurl gives up (as at 5,000 lines)
_READ_FACTOR = 4  # this many times body_cap is read before a transfer is cut
_CONNECT_SHARE_SECONDS = 3.0  # for connecting to one of several addresses
_LARGE_BODY = 65536  # bytes of a body that an idle handle may still hold

_NO_ANSWER = "The server gave no final answer."

_CLIENT_CERTIFICATE = (
    "The server asks for a client certificate, which the platform does not have: let it accept "
    "requests without one, and check their signatures instead."
)
_HANDSHAKE_REFUSED = (
    "The server refused the TLS handshake: there is no common version or cipher, or it asks for a "
    "client certificate, which the platform does not have."
)

# libcurl's result codes (curl/curl.h; part of its ABI) by our classes; other codes are `other`.
_CONNECT_FAILED, _TIMED_OUT, _PROXY_FAILED, _HEADERS_TOO_LONG = 7, 28, 97, 100
_ERRORS = {
    5: "dns",  # the proxy's name
    6: "dns",
    _CONNECT_FAILED: "connect",
    _PROXY_FAILED: "connect",  # its handshake: it may not reach the address
    _TIMED_OUT: "timeout",
    18: "reset",  # part of the body
    52: "reset",  # nothing at all
    55: "reset",  # sending
    56: "reset",  # receiving
    _HEADERS_TOO_LONG: "too_large",
    **dict.fromkeys((35, 53, 54, 58, 59, 60, 64, 66, 77, 80, 82, 83, 90, 91, 98), "tls"),
}

# Sentences for codes without a sentence of libcurl.
_SENTENCES = {
    8: "The server's answer is not HTTP.",
    16: "The server's HTTP/2 cannot be understood.",
    27: "This machine had no memory for the exchange.",
    61: "The answer's Transfer-Encoding is not known.",
    _HEADERS_TOO_LONG: "The answer's headers are too long: 300 KiB in 5,000 lines are read.",
}


class Policy(msgspec.Struct, frozen=True):
    """The common parts of an engine's transfers. `opened` is called for each new socket."""

    guard: AddressGuard
    proxy: Proxy | None
    body_cap: int
    opened: Callable[[int], None]


class Transfer:
    """`curl` is a pycurl.Curl with the engine's options set.

    Only options that differ from the handle's last transfer are set: in steady use only body and
    headers.
    """

    def __init__(self, curl: Any, policy: Policy) -> None:
        self.curl, self._policy = curl, policy
        self.job: Job
        self._headers: list[bytes] = []  # a line each
        self._body: bytes | bytearray = b""
        self._read = 0
        # Error class and sentence, if the engine ended the transfer.
        self._fault: tuple[str, str] | None = None
        self._destination: Destination | None = None
        self._pin, self._port = "", 0
        self._method, self._has_body, self._sends = "", False, False
        self._is_fresh = self._is_direct = False
        self._limit = self._share = 0  # milliseconds
        curl.setopt(pycurl.WRITEFUNCTION, self._on_body)
        # list.append, so that no Python code runs for a line; libcurl limits all lines together.
        curl.setopt(pycurl.HEADERFUNCTION, self._headers.append)
        curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        curl.setopt(pycurl.SOCKOPTFUNCTION, self._on_opened)

    def begin(self, job: Job, now: float) -> None:
        """Prepare the handle for the job's current address."""
        curl, request, destination = self.curl, job.request, job.destination
        self.job = job
        if self._headers:  # of the attempt with an earlier address
            self._forget()
        body = request.body
        if request.method != self._method or bool(body) is not self._has_body:
            self._set_method(request.method, bool(body))
        if self._sends:
            curl.setopt(pycurl.POSTFIELDS, body)
        curl.setopt(pycurl.HTTPHEADER, job.lines)
        if request.once is not self._is_fresh:
            self._is_fresh = request.once
            curl.setopt(pycurl.FRESH_CONNECT, request.once)
        if destination is not self._destination:
            self._destination = destination
            curl.setopt(pycurl.URL, destination.url)
        self._set_route(job)
        self._set_deadline(job, now)

    def may_try_next(self, code: int, now: float) -> bool:
        """True if there was no connection, and another address and time are left."""
        job = self.job
        # A proxy is connected itself, and a kept-alive connection may have had the request before.
        proof = pycurl.REQUEST_SIZE if job.peers else pycurl.CONNECT_TIME
        return (
            code in (_CONNECT_FAILED, _TIMED_OUT, _PROXY_FAILED)
            and self._fault is None
            and job.attempt + 1 < len(job.addresses)
            and now < job.deadline
            and not self.curl.getinfo(proof)
        )

    def response(self, code: int, message: str, now: float) -> Response:
        """The response, once libcurl has finished the job with `code`."""
        curl, job = self.curl, self.job
        status = curl.getinfo(pycurl.RESPONSE_CODE)
        error = detail = ""
        if code or self._fault:
            error, detail = self._verdict(code, message)
        if status and not are_whole(self._headers):  # a status line is no answer yet
            status = 0
            if not error:
                error, detail = "reset", "The connection was closed before the headers ended."
        if error == "connect" or status < 200:
            status = 0
            error = error or "other"
        if len(job.request.body) > _LARGE_BODY:
            curl.setopt(pycurl.POSTFIELDS, b"")
        if error or not job.addresses or job.peers:
            address = curl.getinfo(pycurl.PRIMARY_IP)
        else:  # the address of the socket, since the peer answered
            address = job.addresses[job.attempt]
        # Headers before the final answer's are of a 1xx, or of a proxy's answer to CONNECT.
        lines = self._headers[start_of_final(self._headers) :] if status else ()
        headers = b"".join(lines)[:_HEADER_CAP]
        response = Response(
            job.request,
            status,
            headers,
            bytes(self._body) if self._body else b"",
            now - job.submitted,
            error,
            printable(detail or _NO_ANSWER) if error else "",
            address,
        )
        self._forget()
        return response

    def _forget(self) -> None:
        self._headers.clear()
        self._body = b""
        self._read = 0
        self._fault = None

    def _verdict(self, code: int, message: str) -> tuple[str, str]:
        """Error class and detail of a failed transfer."""
        if self._fault:
            return self._fault
        if not code:
            return "", ""
        if sum(map(len, self._headers)) > _HEADER_FLOOD:
            return "too_large", message or _SENTENCES[_HEADERS_TOO_LONG]
        if "alert certificate required" in message:  # of TLS 1.3, after the handshake
            return "tls", _CLIENT_CERTIFICATE
        if "alert handshake failure" in message:  # of TLS 1.2, which does not say why
            return "tls", _HANDSHAKE_REFUSED
        if self.curl.getinfo(pycurl.HTTP_CONNECTCODE) >= 300:
            return "connect", message  # the proxy answered, the target did not
        sentence = _SENTENCES.get(code, f"The exchange failed (error {code} of libcurl).")
        return _ERRORS.get(code, "other"), message or sentence

    def _set_route(self, job: Job) -> None:
        """Pin the address to connect to, and choose between the proxy and the direct way."""
        if job.addresses:
            pin, port = job.addresses[job.attempt], job.destination.port
            if pin != self._pin or port != self._port:
                self._pin, self._port = pin, port
                self.curl.setopt(pycurl.CONNECT_TO, [f"::{bracketed(pin)}:{port}"])
        elif self._pin:  # left from a job of the platform itself
            self._pin, self._port = "", 0
            self.curl.unsetopt(pycurl.CONNECT_TO)
        if job.is_own is not self._is_direct:
            self._is_direct = job.is_own
            self.curl.setopt(pycurl.NOPROXY, "*" if job.is_own else "")
        proxy = self._policy.proxy
        if job.peers and proxy and not proxy.address:
            # libcurl resolves only the name of a proxy, and only to these addresses.
            peers = ",".join(map(bracketed, job.peers))
            self.curl.setopt(pycurl.RESOLVE, [f"{proxy.host}:{proxy.port}:{peers}"])

    def _set_method(self, method: str, has_body: bool) -> None:
        sends = method != "HEAD" and (has_body or method in ("POST", "PUT", "PATCH"))
        self._method, self._has_body, self._sends = method, has_body, sends
        curl = self.curl
        curl.setopt(pycurl.HTTPGET, 1)  # undoes POST and NOBODY
        curl.unsetopt(pycurl.CUSTOMREQUEST)
        if method == "HEAD":
            curl.setopt(pycurl.NOBODY, 1)
            return
        if sends:
            curl.setopt(pycurl.POST, 1)
        if method != ("POST" if sends else "GET"):
            curl.setopt(pycurl.CUSTOMREQUEST, method)

    def _set_deadline(self, job: Job, now: float) -> None:
        """The time for the whole transfer, and for connecting to one of several addresses."""
        remaining = job.deadline - now
        limit = _milliseconds(remaining)
        if limit != self._limit:
            self._limit = limit
            self.curl.setopt(pycurl.TIMEOUT_MS, limit)
        share = 0  # no limit but the deadline (and libcurl's own five minutes)
        if (addresses := len(job.addresses) - job.attempt) > 1:
            share = _milliseconds(min(remaining / addresses, _CONNECT_SHARE_SECONDS))
        if share != self._share:
            self._share = share
            self.curl.setopt(pycurl.CONNECTTIMEOUT_MS, share)

    def _open_socket(self, _purpose: int, peer: Any) -> Any:
        """Check the address to which libcurl is about to connect, whatever it made of the URL."""
        address, job = str(canonical(peer.addr[0])), self.job
        has_proxy = self._policy.proxy is not None and not job.is_own
        networks = job.request.networks
        judge = own_reason if job.is_own else self._policy.guard.reason
        if address not in (
            job.peers if has_proxy else job.addresses[job.attempt : job.attempt + 1]
        ):
            self._fault = ("address_forbidden", f"{address} is not the address that was vetted.")
        elif not has_proxy and (reason := judge(address)):
            self._fault = ("address_forbidden", reason)
        elif not has_proxy and networks and not is_inside(address, networks):
            self._fault = ("address_forbidden", f"{address} is not in an allowed network.")
        if self._fault:
            return pycurl.SOCKET_BAD
        try:
            return socket.socket(peer.family, peer.socktype, peer.protocol)
        except OSError as error:
            self._fault = ("other", f"No socket could be opened here: {error.strerror}.")
            return pycurl.SOCKET_BAD

    def _on_opened(self, fd: int, _purpose: int) -> int:
        os.set_inheritable(fd, False)  # pycurl works on a duplicate that lost the flag
        self._policy.opened(fd)
        return int(pycurl.SOCKOPT_OK)

    def _on_body(self, data: bytes) -> int:
        length, cap = len(data), self._policy.body_cap
        self._read += length
        if not self._body:
            self._body = data[:cap]  # usually the whole body
        elif (capacity := cap - len(self._body)) > 0:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data[:capacity]
        if self._read > cap * _READ_FACTOR:
            self._fault = ("too_large", f"The body is longer than {cap * _READ_FACTOR} bytes.")
            return -1
        return length


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000) if seconds > 0.001 else 1  # 0 would mean no limit
