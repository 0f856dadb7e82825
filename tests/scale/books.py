"""Business systems that publish at a steady rate and repeat what got no 2xx, the consumers' files,
and the account of both: what was lost, came twice, and the longest time without an answer or a
delivery.
"""

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
from typing import Any, ClassVar
from urllib.parse import urlsplit

from demo.sink_process import SinkProcess
from tests.cluster import Cluster
from tests.flows.traffic import cast
from tests.scale.strikes import IS_SHARE

THREADS = 8 if IS_SHARE else 24  # each of them repeats its request while servers are away
RATE = 20.0 if IS_SHARE else 120.0  # messages a second
_CONSUMERS = 2
# Deliveries of a system that are not marked as delivered.
OPEN = """
from notify.models import ReceiveMsg
rows = ReceiveMsg.objects.filter(biz_receive__biz__name={system!r})
print(rows.exclude(status=ReceiveMsg.Status.DELIVERED).count())
"""
# Deliveries of a system that are marked as delivered: consumer and message.
MARKED = """
import json
from notify.models import ReceiveMsg
rows = ReceiveMsg.objects.filter(
    biz_receive__biz__name={system!r}, status=ReceiveMsg.Status.DELIVERED
)
print(json.dumps([f"{{name}} {{pk}}" for name, pk in
                  rows.values_list("biz_receive__receive__name", "msg_id")]))
"""
# Seconds.
_REPEAT_SECONDS = 0.2 if IS_SHARE else 0.1
_REQUEST_SECONDS = 30.0


@dataclass
class Books:
    """The own book of a business system. Times are unix seconds of this machine."""

    base_url: str
    system: str
    token: str
    rate: float = RATE
    ids: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # by key
    times: list[float] = field(default_factory=list)  # of each 2xx
    trouble: Counter[str] = field(default_factory=Counter)  # other answers, by their problem
    # Deliveries that a consumer had and the database had not marked, at the strikes together.
    in_hand: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _abandoned: threading.Event = field(default_factory=threading.Event)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    path: ClassVar[str] = "/api/v1/messages"

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
            self._over.wait(max(0.0, self.started_at + number / self.rate - time.time()))
            key = f"{self._prefix}-{number}"
            while not self._post(connection, key) and not self._abandoned.is_set():
                time.sleep(_REPEAT_SECONDS)

    def _post(self, connection: http.client.HTTPConnection, key: str) -> bool:
        """True if the message was accepted."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        body = json.dumps(self.message(key) | {"idempotency_key": key})
        try:
            connection.request("POST", self.path, body, headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            self.trouble[type(error).__name__] += 1
            return False
        if 200 <= response.status < 300:
            self.times.append(time.time())
            self.ids[key].add(self.id_of(answer))
            return True
        problem = str(answer.get("type", response.status)).rpartition("/")[2]
        self.trouble[problem.rpartition(":")[2]] += 1
        return False

    def message(self, key: str) -> dict[str, Any]:
        """The body of a request, without its idempotency key."""
        return {"event_type": "demo.happened", "payload": {"key": key}}

    def id_of(self, answer: Any) -> str:
        return str(answer["id"])


@dataclass(frozen=True)
class Account:
    """What both books say. Gaps are in seconds."""

    accepted: int
    lost: int
    doubled_keys: int  # keys with more than one id
    duplicates: int  # deliveries of an id beyond its first
    in_hand: int  # deliveries that were made and not marked at the strikes, each may come again
    foreign: int  # ids that arrived and no business system knows
    rate: float  # acknowledged a second
    gap_of_intake: float
    gap_of_delivery: float
    trouble: Mapping[str, int]  # answers, by their problem

    def __str__(self) -> str:
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        return (
            f"{self.accepted} acknowledged ({self.rate:.0f}/s), {self.lost} lost, "
            f"{self.duplicates} duplicates ({self.in_hand} in hand at the strikes), gap of intake "
            f"{self.gap_of_intake:.1f} s, of delivery {self.gap_of_delivery:.1f} s; "
            f"{dict(self.trouble)}; load {load}"
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


@contextlib.contextmanager
def struck(platform: Cluster, book: Books, sinks: Mapping[str, SinkProcess]) -> Iterator[None]:
    """A strike, with the count of deliveries in hand. The database is asked just before it and the
    consumers just after, since nothing answers for the moment itself."""
    marked = set(platform.script(MARKED.format(system=book.system)))
    yield
    arrived = {f"{name} {pk}" for name, sink in sinks.items() for pk in sink.ids()}
    book.in_hand += len(arrived - marked)


def close(platform: Cluster, book: Books, sinks: Mapping[str, SinkProcess]) -> Account:
    """Wait for what is under way, then compare the books."""
    book.stop()
    ids = {id for ids in book.ids.values() for id in ids}

    def missing() -> int:
        return sum(len(ids - sink.ids()) for sink in sinks.values())

    with contextlib.suppress(AssertionError):
        platform.wait_until(lambda: not missing(), "every delivery")
    lost = missing()
    if not lost:
        open_count = OPEN.format(system=book.system)
        platform.wait_until(lambda: platform.script(open_count) == 0, "every mark")
    until = book.ended_at
    return Account(
        accepted=len(book.times),
        lost=lost,
        doubled_keys=sum(len(ids) > 1 for ids in book.ids.values()),
        duplicates=sum(len(sink.lines()) - len(sink.ids()) for sink in sinks.values()),
        in_hand=book.in_hand,
        foreign=sum(len(sink.ids() - ids) for sink in sinks.values()),
        rate=len(book.times) / (until - book.started_at),
        gap_of_intake=longest_gap(book.times, book.started_at, until),
        gap_of_delivery=max(
            longest_gap(sink.times(), book.started_at, until) for sink in sinks.values()
        ),
        trouble=book.trouble,
    )
