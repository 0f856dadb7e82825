"""The state of a request in the HTTP engine until its transfer ends; no HTTP library here."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from msgplatform.core.http.addresses import canonical
from msgplatform.core.http.destinations import Destination
from msgplatform.core.http.messages import Request

MAX_SECONDS = 86400.0  # the longest timeout of a request


class Job(msgspec.Struct, eq=False, gc=False):  # gc=False: its fields never refer to the job
    """A request in flight. `is_waiting` until a transfer takes it; `is_admitted` once it has a
    slot.

        queued ── a slot is free ──▶ admitted ── its addresses are known ──▶ transfer ──▶ Response
        queued or admitted ── refused by the guard, or late ──▶ Response with an error
        transfer ── no connection, another address left ──▶ transfer, `attempt` + 1

    `addresses` are the permitted addresses (none if a proxy resolves the name), `attempt` the index
    of the present one. `peers` are the proxy's own addresses. `is_own`: the request goes to the
    platform itself, without a proxy. Times are monotonic seconds.
    """

    request: Request
    destination: Destination
    lines: list[str | bytes]
    submitted: float
    deadline: float
    addresses: Sequence[str] = ()
    peers: Sequence[str] = ()
    attempt: int = 0
    is_admitted: bool = False
    is_waiting: bool = True
    is_own: bool = False


class Deadlines:
    """The deadlines of waiting jobs; a running transfer has its own clock in libcurl."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Job]] = []
        self._count = 0  # breaks ties: jobs have no order

    def watch(self, job: Job) -> None:
        self._count += 1
        heapq.heappush(self._heap, (job.deadline, self._count, job))

    def next(self) -> float:
        """The earliest deadline of a waiting job; infinity when none waits."""
        while self._heap and not self._heap[0][2].is_waiting:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def expired(self, now: float) -> list[Job]:
        """Late jobs that wait for a transfer; each is reported once."""
        late = []
        while self.next() <= now:
            job = heapq.heappop(self._heap)[2]
            job.is_waiting = False
            late.append(job)
        return late


class Proxy(msgspec.Struct, frozen=True):
    """The operator's proxy. `address` is set when its host is an IP address."""

    url: str
    host: str
    port: int
    address: str
    resolves: bool  # True if the proxy takes names; socks5 takes addresses

    @classmethod
    def parse(cls, url: str) -> Proxy:
        """Raises ValueError for a URL without host; the port is libcurl's default if not given."""
        parts = urlsplit(url)
        if not parts.hostname:
            raise ValueError("The proxy's URL has no host.")
        try:
            address = str(canonical(parts.hostname))
        except ValueError:
            address = ""
        port = parts.port or (443 if parts.scheme == "https" else 1080)
        return cls(url, parts.hostname, port, address, resolves=parts.scheme != "socks5")
