"""A business system that sends short messages at a steady rate, its endpoint, the gateway's log,
and the account of all of them."""

import contextlib
import itertools
import json
import os
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

from demo.sms.traffic import Listener
from tests.flows.sms_business import CORP, ROWS
from tests.scale.books import RATE, Books, longest_gap
from tests.scale.redis_platform import SMG, RedisPlatform

_systems = itertools.count(1)
_APART = 1_000_000  # messages of one system: the numbers of the next one begin there
_SETTLE_SECONDS = 300.0
ARCHIVED = """
import json
from gateway.models import SgipMt
rows = SgipMt.objects.filter(final="delivered")
print(json.dumps([str(pk) for pk in rows.values_list("pk", flat=True)]))
"""
COUNT = """
from gateway.models import SgipMt
print(SgipMt.objects.count())
"""
_BATCH, _CONNECTIONS = 100, 8
_REPEAT_SECONDS = 0.1


@dataclass
class SmsBooks(Books):
    """The own book of a business system, which sends half as many messages as that of Notify."""

    rate: float = RATE / 2
    first: int = 0  # the number of the first recipient
    path: ClassVar[str] = "/api/v1/sms"

    def recipient(self, key: str) -> str:
        return f"138{self.first + int(key.rpartition('-')[2]):08d}"

    def message(self, key: str) -> dict[str, Any]:
        number = self.recipient(key)
        return {"to": number, "text": f"code {number}"}

    def id_of(self, answer: Any) -> str:
        return str(answer["ids"][0])


@dataclass(frozen=True)
class SmsAccount:
    """What all books say. Gaps are in seconds."""

    accepted: int
    lost: int  # acknowledged, and not in the archive as delivered
    unsent: int  # of them: the gateway never saw them
    twice: int  # messages under two sequences at the gateway
    doubled_keys: int
    unheard: int  # the system's endpoint did not hear of their end
    rate: float
    gap_of_intake: float
    trouble: Mapping[str, int]

    def __str__(self) -> str:
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        return (
            f"SMS: {self.accepted} acknowledged ({self.rate:.0f}/s), {self.lost} lost "
            f"({self.unsent} never at the gateway), {self.twice} twice at the gateway, gap of "
            f"intake {self.gap_of_intake:.1f} s; {dict(self.trouble)}; load {load}"
        )


@contextlib.contextmanager
def system(platform: RedisPlatform) -> Iterator[tuple[str, int, str, Listener]]:
    """A business system: its name, where its numbers begin, its API key, and its endpoint."""
    place = next(_systems)
    name = f"clinic-{place}"
    gateways = {} if platform.has_gateway else {SMG: platform.gateway_row()}
    platform.has_gateway = True
    with Listener(platform.folder / f"{name}.heard") as ear:
        systems = {name: (f"1065500{place}", ear.url)}
        code = ROWS.format(gateways=gateways, systems=systems, corp=CORP)
        yield name, place * _APART, platform.script(code)[name], ear


@contextlib.contextmanager
def sms_books(platform: RedisPlatform) -> Iterator[tuple[SmsBooks, Listener]]:
    """A business system that sends from now on, and its endpoint."""
    with system(platform) as (name, first, token, ear):
        book = SmsBooks(platform.base_url, name, token, first=first)
        book.start()
        try:
            yield book, ear
        finally:
            book.abandon()


def seconds_of(platform: RedisPlatform, count: int) -> float:
    """Seconds of so many messages, sent as fast as they are accepted, until all are archived."""
    with system(platform) as (_name, first, token, _ear), ThreadPoolExecutor(_CONNECTIONS) as pool:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

        def send(start: int) -> None:
            numbers = [f"138{first + start + n:08d}" for n in range(_BATCH)]
            texts = [{"to": one, "text": f"code {one}", "idempotency_key": one} for one in numbers]
            body = json.dumps({"messages": texts}).encode()
            address = f"{platform.base_url}/api/v1/sms/batch"
            with urllib.request.urlopen(
                urllib.request.Request(address, body, headers), timeout=60
            ) as answer:
                results = json.load(answer)["results"]
            # The web server's directory does not know a new account for a moment.
            if any(result["outcome"] == "rejected" for result in results):
                time.sleep(_REPEAT_SECONDS)
                send(start)

        def send_all(starts: range) -> None:
            before = platform.script(COUNT)
            list(pool.map(send, starts))
            expected = before + len(starts) * _BATCH
            platform.wait_until(lambda: platform.script(COUNT) >= expected, "the archive")

        send_all(range(0, _BATCH, _BATCH))
        began = time.monotonic()
        send_all(range(_BATCH, count + _BATCH, _BATCH))
        return time.monotonic() - began


def close(platform: RedisPlatform, book: SmsBooks, ear: Listener) -> SmsAccount:
    """Wait for what is under way, then compare the books; `book` has stopped."""
    ids = {id: key for key, some in book.ids.items() for id in some}

    def unheard() -> set[str]:
        ear.listen()
        return {id for id in ids if "delivered" not in ear.reports.get(id, ())}

    def archived() -> set[str]:
        return set(platform.script(ARCHIVED))

    with contextlib.suppress(AssertionError):
        platform.wait_until(lambda: not unheard(), "every ending", _SETTLE_SECONDS)
        platform.wait_until(lambda: not ids.keys() - archived(), "the archive", _SETTLE_SECONDS)
    lost = ids.keys() - archived()
    at_gateway: dict[str, set[str]] = {}
    for (user, _part), sequences in platform.books[SMG].accepted().items():
        at_gateway.setdefault(user.removeprefix("86"), set()).update(sequences)
    numbers = {id: book.recipient(key) for id, key in ids.items()}
    until = book.ended_at
    facts: dict[str, Any] = {
        "accepted": len(book.times),
        "lost": len(lost),
        "unsent": sum(numbers[id] not in at_gateway for id in lost),
        "twice": sum(len(at_gateway.get(number, ())) > 1 for number in numbers.values()),
        "doubled_keys": sum(len(some) > 1 for some in book.ids.values()),
        "unheard": len(unheard()),
        "rate": len(book.times) / (until - book.started_at),
        "gap_of_intake": longest_gap(book.times, book.started_at, until),
        "trouble": book.trouble,
    }
    return SmsAccount(**facts)
