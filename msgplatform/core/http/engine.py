"""The outbound HTTP engine: many transfers at once over libcurl, in the thread that calls poll().

    submit ─▶ queue (FIFO, when the window is full) ─▶ name ─▶ transfer ─▶ poll() returns Response

- The deadline runs from submit() and covers everything. A caller that submits at most `free`
  requests at a time loses no time in the queue.
- Redirects are not followed and contents not decoded; cookies, netrc and the environment's proxies
  are not used. HTTP/1.1 only, http and https only, certificates are verified.
- The body is kept up to `body_cap` bytes. Up to four times as many bytes are read, so that a long
  answer does not always cost a connection; then the transfer is cut, with the error `too_large`.
- The address guard judges the URL's address, or all addresses of its name, and again the address of
  each socket that is opened. The vetted address is pinned by CONNECT_TO: unlike RESOLVE it has no
  effect on other transfers, and a kept-alive connection serves only transfers pinned to its own
  address.
- If a kept-alive connection turns out to be dead before a byte came back, libcurl opens another and
  sends the request again: this engine delivers at least once.
- With a proxy, sockets go to the proxy's addresses only. The guard judges the target as far as
  it can be resolved here; the proxy resolves it again by itself (except `socks5`, which gets the
  vetted address).
"""

import math
import time
from contextlib import closing
from typing import Any

import pycurl
from django.conf import settings

from msgplatform.core import outbound
from msgplatform.core.http.addresses import AddressGuard
from msgplatform.core.http.admission import Admission
from msgplatform.core.http.environment import allow_sockets, system_ca_file
from msgplatform.core.http.jobs import Job, Proxy
from msgplatform.core.http.messages import Outline, Request, Response, outline
from msgplatform.core.http.readiness import Readiness
from msgplatform.core.http.resolver import TTL_SECONDS, Lookup, Resolver, system_lookup
from msgplatform.core.http.transfer import Policy, Transfer

# The number of idle handles (about a megabyte) from which handles of other destinations are reused.
_SPARE = 256


class IdleTransfers:
    """Idle handles by destination, because a handle keeps most options of its destination."""

    def __init__(self) -> None:
        self._by_url: dict[str, list[Transfer]] = {}  # no list is empty
        self._count = 0

    def take(self, url: str) -> Transfer | None:
        """The last handle used for `url`, else a handle of another destination, or None."""
        transfers = self._by_url.get(url)
        if transfers is None:
            if self._count < _SPARE:
                return None
            url = next(iter(self._by_url))
            transfers = self._by_url[url]
        transfer = transfers.pop()
        if not transfers:
            del self._by_url[url]
        self._count -= 1
        return transfer

    def put(self, transfer: Transfer) -> None:
        self._count += 1
        url = transfer.job.destination.url
        del transfer.job  # and with it a body, which may be large
        if transfers := self._by_url.get(url):
            transfers.append(transfer)
        else:
            self._by_url[url] = [transfer]

    def clear(self) -> list[Transfer]:
        """Remove and return all, for the caller to close."""
        transfers = [transfer for handles in self._by_url.values() for transfer in handles]
        self._by_url.clear()
        self._count = 0
        return transfers


__all__ = [
    "AddressGuard", "Engine", "Outline", "Request", "Response", "engine_from_settings",
    "exchange", "outline",
]  # fmt: skip


class Engine:
    """A sliding window of transfers over any number of destinations.

    `window` is how many requests may hold a slot, `max_connections` how many sockets may be open,
    idle ones included (by default twice the window, and never less than the window). `ca_file`
    replaces the system's trusted certificates. `lookup` resolves a name to addresses in a thread,
    and its answer is fresh for `dns_ttl` seconds. One thread calls all methods except `wake()`.
    """

    def __init__(
        self,
        guard: AddressGuard,
        *,
        window: int = 256,
        max_connections: int = 0,
        body_cap: int = 16384,
        proxy: str = "",
        user_agent: str = "msgplatform",
        ca_file: str = "",
        lookup: Lookup = system_lookup,
        dns_ttl: float = TTL_SECONDS,
    ) -> None:
        self.window = window
        self._readiness = Readiness()
        route = Proxy.parse(proxy) if proxy else None
        self._names = Resolver(guard, self._readiness.wake, lookup, dns_ttl)
        self._admission = Admission(guard, window, route, self._names)
        self._policy = Policy(guard, route, body_cap, self._readiness.opened)
        self._options = _options(proxy, user_agent, ca_file or system_ca_file())
        self._running: dict[Any, Transfer] = {}
        self._idle = IdleTransfers()
        self._active = 0  # transfers that libcurl counts as running
        self._woken = self._closed = False
        sockets = allow_sockets(max(max_connections or 2 * window, window))
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, sockets)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, sockets)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._readiness.on_interest)

    @property
    def in_flight(self) -> int:
        """The number of requests with a slot: in name resolution or transfer."""
        return self._admission.in_flight

    @property
    def free(self) -> int:
        """The number of requests that can be submitted now without queueing."""
        return self.window - self._admission.in_flight

    def submit(self, request: Request) -> None:
        """Send a request. Never blocks; a bad request gets an error response, not an exception.
        While OUTBOUND is off no request is sent and no name is looked up."""
        if outbound.is_off():
            refusal = Response(request, 0, b"", b"", 0.0, "other", outbound.OFF, "")
            self._admission.refused.append(refusal)
            return
        self._admission.submit(request)

    def poll(self, timeout: float) -> list[Response]:
        """Drive the transfers until some are finished, for at most `timeout` seconds."""
        admission = self._admission
        responses: list[Response] = []
        now = time.monotonic()
        end = now + timeout
        while True:
            self._start_ready()
            # Do not wait for sockets if there is something to return already.
            has_responses = admission.refused or self._woken or self._active < len(self._running)
            until = now if has_responses else min(end, admission.next_deadline())
            milliseconds = self._multi.timeout()  # when libcurl wants to be called; -1: never
            due = now + milliseconds / 1000 if milliseconds >= 0 else math.inf
            for fd, ready_for in self._readiness.wait(min(due, until) - now):
                self._active = self._multi.socket_action(fd, ready_for)[1]
            if due < math.inf and due <= time.monotonic():
                self._run_due()
            now = time.monotonic()
            self._harvest(now, responses)
            admission.settle(now)
            if admission.refused:
                responses += admission.refused
                admission.refused.clear()
            if responses or self._woken or now >= end:
                self._woken = False
                # Use free slots now, not at the caller's next poll.
                self._start_ready()
                return responses

    def wake(self) -> None:
        """Make the current or the next poll() return early. Any thread may call this."""
        self._woken = True
        self._readiness.wake()

    def close(self) -> None:
        """Cut open transfers, which get no response."""
        if self._closed:
            return
        self._closed = True
        self._names.close()
        # libcurl requires that handles leave the multi before it is closed.
        for curl in self._running:
            self._multi.remove_handle(curl)
        self._multi.close()
        for transfer in (*self._running.values(), *self._idle.clear()):
            transfer.curl.close()
        self._running.clear()
        self._readiness.close()

    def _start_ready(self) -> None:
        ready = self._admission.take_ready()
        if not ready:
            return
        now = time.monotonic()
        for job in ready:
            transfer = self._idle.take(job.destination.url)
            if transfer is None:
                curl = pycurl.Curl()
                for option, value in self._options:
                    curl.setopt(option, value)
                transfer = Transfer(curl, self._policy)
            self._start(transfer, job, now)
        self._run_due()  # sends them

    def _start(self, transfer: Transfer, job: Job, now: float) -> None:
        transfer.begin(job, now)
        self._running[transfer.curl] = transfer
        self._multi.add_handle(transfer.curl)

    def _run_due(self) -> None:
        """Let libcurl do what is due by its own clock: starts, timeouts."""
        self._active = self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)[1]

    def _harvest(self, now: float, responses: list[Response]) -> None:
        """Turn finished transfers into responses, or start them again with their next address."""
        if self._active >= len(self._running):
            return
        _, good_handles, failures = self._multi.info_read(len(self._running))
        remove, pop, keep = self._multi.remove_handle, self._running.pop, self._idle.put
        for curl in good_handles:
            remove(curl)
            transfer = pop(curl)
            if transfer.job.attempt:  # earlier addresses failed: try this one first from now on
                self._admission.prefer(transfer.job)
            responses.append(transfer.response(0, "", now))
            keep(transfer)
        self._admission.release(len(good_handles))
        for curl, code, message in failures:
            remove(curl)
            transfer = pop(curl)
            if transfer.may_try_next(code, now):
                transfer.job.attempt += 1
                self._start(transfer, transfer.job, now)
            else:
                responses.append(transfer.response(code, message, now))
                keep(transfer)
                self._admission.release()


def engine_from_settings(**overrides: Any) -> Engine:
    """An engine configured by the settings OUTBOUND_*; `overrides` are Engine's arguments."""
    guard = overrides.pop("guard", None) or AddressGuard(settings.OUTBOUND_ALLOW)
    arguments = {"proxy": settings.OUTBOUND_PROXY, "ca_file": settings.OUTBOUND_CA_FILE}
    return Engine(guard, **{**arguments, **overrides})


def exchange(request: Request, grace: float, **overrides: Any) -> Response | None:
    """The answer to one request, by an engine of its own with these overrides. None if the engine
    has not ended the request `grace` seconds after the request's timeout."""
    end = time.monotonic() + request.timeout + grace
    with closing(engine_from_settings(window=1, **overrides)) as engine:
        engine.submit(request)
        while time.monotonic() < end:
            if responses := engine.poll(0.5):
                return responses[0]
    return None


def _options(proxy: str, user_agent: str, ca_file: str) -> list[tuple[int, Any]]:
    """The options of every handle. PROXY is set even if empty, or libcurl would take the
    environment's."""
    protocols = pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS
    options: list[tuple[int, Any]] = [
        (pycurl.NOSIGNAL, 1),
        (pycurl.PROXY, proxy),
        (pycurl.NOPROXY, ""),
        (pycurl.PROTOCOLS, protocols),
        (pycurl.FOLLOWLOCATION, 0),
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
        (pycurl.HTTP_CONTENT_DECODING, 0),
        (pycurl.NETRC, pycurl.NETRC_IGNORED),
        (pycurl.PATH_AS_IS, 1),
        (pycurl.SSL_VERIFYPEER, 1),
        (pycurl.SSL_VERIFYHOST, 2),
        (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),
        (pycurl.USERAGENT, user_agent),
    ]
    if ca_file:
        options += [(pycurl.CAINFO, ca_file), (pycurl.PROXY_CAINFO, ca_file)]
    return options
