"""Orders from maker to sender, results from sender to marker; the names of their queues, and turns
between business systems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Literal, TypeVar

import msgspec

from msgplatform.core.queues import jobs
from msgplatform.core.secrets import encryption

T = TypeVar("T")

MARKER_QUEUE = "notify-marker"
# With results this old waiting, what becomes of a delivery that was sent may be in there.
MARKER_LAG_SECONDS = 5.0
# The names that `queue_name()` makes.
QUEUE_PATTERN = r"notify-\d+-\d+"

# Bounds of one order: RQ costs about 1.4 ms a job, so orders are few and large; but small enough to
# be sent well within a lease, and to keep the unmarked work of a killed sender small.
MAX_ITEMS = 500
MAX_BYTES = 1024 * 1024
# Orders of one subscription in a sender's hand: one that is being sent, one ready behind it. When
# all of their messages are in flight there may be more: a consumer that takes its time for each
# answer, whose messages come one by one, gets as many requests at once as its limit allows. Of
# those that are claimed the maker counts no more than these as waiting.
MAX_UNSENT = 2
# Bytes that an item takes beyond its payload: ids, event type, and the body around the payload.
ITEM_BYTES = 192


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message for one subscriber. `body` is the JSON text that is sent and signed, `key` the
    idempotency key with which the message was handed over ('': none).

    `due` is since when it waits for this attempt, unix seconds of the database; 0: not known.
    `trace` is the `traceparent` of the message, '' if it is not traced.
    """

    id: int
    msg_id: int
    attempt: int
    body: str
    event_type: str = ""
    key: str = ""
    due: float = 0.0
    trace: str = ""


class Order(msgspec.Struct, frozen=True):
    """A batch for one subscription. Nothing of it is sent unless the lease outlasts the send."""

    subscription: int
    claim: str
    lease_until: float  # unix seconds
    items: list[Item]
    is_probe: bool = False  # asked for by a person: the breaker lets it through before its time


# Bytes of an answer that travel through Redis and stay in the log of attempts.
MAX_RESPONSE_HEADERS = 2048
MAX_RESPONSE_BODY = 4096

_DATA = '","data":'  # in a body, before the payload

Outcome = Literal["delivered", "failed", "unsent"]
ENCRYPTED = "encrypted"  # the error of a delivery whose payload no key of its sender decrypts


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of one item. `unsent` gives the row back without counting an attempt."""

    id: int
    subscription: int
    claim: str
    attempt: int
    outcome: Outcome
    http_status: int = 0
    error: str = ""
    seconds: float = 0.0
    retry_after: float = 0.0
    at: float = 0.0  # unix seconds at which the request was sent; of an unsent one `Item.due`
    detail: str = ""
    response_headers: str = ""
    response_body: str = ""
    event_type: str = ""  # of the message, for its counters
    trace: str = ""  # `traceparent` of the attempt, if the message is traced


def queue_name(biz_id: int, receive_id: int) -> str:
    """The queue of one subscription, named as in the original: notify-<biz id>-<receive id>."""
    return f"notify-{biz_id}-{receive_id}"  # without ":", on which RQ splits names


def are_results_late() -> bool:
    """True if the marker is behind: a delivery that nobody works on may have arrived."""
    return jobs.oldest_seconds(MARKER_QUEUE) >= MARKER_LAG_SECONDS


def system_of(queue: str) -> int:
    """The business system whose subscription has this queue."""
    return int(queue.split("-")[1])


def body(event_type: str, timestamp: str, payload: bytes) -> str:
    """The Standard Webhooks body around the payload's exact bytes. A sealed payload stays sealed,
    also in Redis, until the body is sent (`open_body`)."""
    head = f'{{"type":"{event_type}","timestamp":"{timestamp}{_DATA}'
    return head + payload.decode("utf-8") + "}"


def open_body(text: str) -> str:
    """The body that is sent: that of `body`, with its payload in clear. Raises Undecryptable."""
    start = text.find(_DATA) + len(_DATA)
    if not text.startswith(encryption.PREFIX, start):  # as no JSON text begins
        return text
    return f"{text[:start]}{encryption.unseal(text[start:-1].encode()).decode()}}}"


def fitting(sizes: Sequence[int], max_items: int, max_bytes: int) -> int:
    """The number of first items, by their sizes, that make one order; one always fits."""
    total = 0
    for count, size in enumerate(sizes[:max_items]):
        total += size
        if count and total > max_bytes:
            return count
    return min(len(sizes), max_items)


def in_turns(
    items: Iterable[T], system: Callable[[T], int], cost: Callable[[T], int] = lambda _item: 1
) -> list[T]:
    """The items so that each system has had about the same cost at any point of the list: a system
    with much work does not delay another's little.

    Items of one system keep their order, and the system of the first item comes first.
    """
    costs: dict[int, int] = defaultdict(int)
    with_rank: list[tuple[int, T]] = []
    for item in items:
        owner = system(item)
        with_rank.append((costs[owner], item))
        costs[owner] += max(1, cost(item))
    with_rank.sort(key=itemgetter(0))  # stable
    return [item for _rank, item in with_rank]
