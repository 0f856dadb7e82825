"""Business systems that publish at a steady rate and repeat what got no 2xx, the consumers' files,
and what both say: what was lost, came twice, and the longest time without an answer or a delivery.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import urlsplit

from msgplatform.demo.sink_process import SinkProcess
from tests.cluster import Cluster
from tests.flows.traffic import cast

THREADS = 24
RATE = 120.0  # messages a second
_CONSUMERS = 2
# Deliveries of a system that are not marked as delivered.
OPEN = """
from notify.models import ReceiveMsg
rows = ReceiveMsg.objects.filter(biz_receive__biz__name={system!r})
print(rows.exclude(status=ReceiveMsg.Status.DELIVERED).count())
"""
# Seconds.
_REPEAT_SECONDS = 0.1
_REQUEST_SECONDS = 30.0


@dataclass
class Books:
    """The business systems' own book. Times are unix seconds of this machine."""

    base_url: str
    system: str
    token: str
    ids: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # by key
    times: list[float] = field(default_factory=list)  # of each 2xx
    trouble: Counter[str] = field(default_factory=Counter)  # other answers, by their problem
    unknown_at: list[float] = field(default_factory=list)  # answers outcome-unknown
    _over: threading.Event = field(default_factory=threading.Event)
    _abandoned: threading.Event = field(default_factory=threading.Event)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def start(self) -> None:
        self.started_at = time.time()
        self._threads = [threading.Thread(target=self._publish) for _ in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No new message begins; those that have no 2xx yet are repeated until they have one."""
        self._over.set()
        self.ended_at = time.time()
        for thread in self._threads:
            thread.join()

    def abandon(self) -> None:
        """Stop at once, whatever was not accepted."""
        self._abandoned.set()
        self.stop()

    def _publish(self) -> None:
        connection = http.client.HTTPConnection(
            urlsplit(self.base_url).netloc, timeout=_REQUEST_SECONDS
        )
        while not self._over.is_set():
            number = next(self._numbers)
            self._over.wait(max(0.0, self.started_at + number / RATE - time.time()))
            key = f"{self._prefix}-{number}"
            while not self._post(connection, key) and not self._abandoned.is_set():
                time.sleep(_REPEAT_SECONDS)

    def _post(self, connection: http.client.HTTPConnection, key: str) -> bool:
        """True if the message was accepted."""
        body = {"event_type": "demo.happened", "payload": {"key": key}, "idempotency_key": key}
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/api/v1/messages", json.dumps(body), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            self.trouble[type(error).__name__] += 1
            return False
        if 200 <= response.status < 300:
            self.times.append(time.time())
            self.ids[key].add(answer["id"])
            return True
        problem = str(answer.get("type", response.status)).rpartition("/")[2]
        problem = problem.rpartition(":")[2]
        self.trouble[problem] += 1
        if problem == "outcome-unknown":
            self.unknown_at.append(time.time())
        return False


@dataclass(frozen=True)
class Account:
    """What both books say. Gaps are in seconds."""

    accepted: int
    lost: int
    doubled_keys: int  # keys with more than one id
    duplicates: int  # deliveries of an id beyond its first
    foreign: int  # ids that arrived and no business system knows
    rate: float  # acknowledged a second
    gap_of_intake: float
    gap_of_delivery: float
    unknown: int  # answers
    trouble: Mapping[str, int]

    def __str__(self) -> str:
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        return (
            f"{self.accepted} acknowledged ({self.rate:.0f}/s), {self.lost} lost, "
            f"{self.duplicates} duplicates, gap of intake {self.gap_of_intake:.1f} s, of delivery "
            f"{self.gap_of_delivery:.1f} s, {self.unknown} outcome-unknown; {dict(self.trouble)}; "
            f"load {load}"
        )


def longest_gap(times: list[float], since: float, until: float) -> float:
    inside = sorted(at for at in times if since <= at <= until)
    return max(after - before for before, after in pairwise([since, *inside, until]))


@contextlib.contextmanager
def books(platform: Cluster) -> Iterator[tuple[Books, dict[str, SinkProcess]]]:
    """A business system that publishes from now on, and its consumers."""
    system = f"orders-{uuid.uuid4().hex[:8]}"
    names: dict[str, list[str]] = {f"{system}-{number}": [] for number in range(_CONSUMERS)}
    with cast(platform, names, {system: list(names)}) as (tokens, sinks):
        book = Books(platform.base_url, system, tokens[system])
        book.start()
        try:
            yield book, sinks
        finally:
            book.abandon()


def close(platform: Cluster, book: Books, sinks: Mapping[str, SinkProcess]) -> Account:
    """Wait for what is under way, then compare the books."""
    book.stop()
    ids = {id for ids in book.ids.values() for id in ids}

    def missing() -> int:
        return sum(len(ids - sink.ids()) for sink in sinks.values())

    with contextlib.suppress(AssertionError):
        platform.wait_until(lambda: not missing(), "every delivery", 120)
    lost = missing()
    if not lost:
        open_count = OPEN.format(system=book.system)
        platform.wait_until(lambda: platform.script(open_count) == 0, "every mark", 120)
    until = book.ended_at
    return Account(
        accepted=len(book.times),
        lost=lost,
        doubled_keys=sum(len(ids) > 1 for ids in book.ids.values()),
        duplicates=sum(len(sink.lines()) - len(sink.ids()) for sink in sinks.values()),
        foreign=sum(len(sink.ids() - ids) for sink in sinks.values()),
        rate=len(book.times) / (until - book.started_at),
        gap_of_intake=longest_gap(book.times, book.started_at, until),
        gap_of_delivery=max(
            longest_gap(sink.times(), book.started_at, until) for sink in sinks.values()
        ),
        unknown=len(book.unknown_at),
        trouble=book.trouble,
    )
