"""Orders from maker to sender, results from sender to marker; the names of their queues, and turns
between business systems."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Literal, Self, TypeVar

import msgspec

from msgplatform.core.queues import jobs
from msgplatform.core.secrets import encryption

T = TypeVar("T")

MARKER_QUEUE = "notify-marker"
# Results are late at this age: the outcome of a delivery with an expired lease may be among them.
MARKER_LAG_SECONDS = 5.0
# The names that `queue_name()` makes.
QUEUE_PATTERN = r"notify-\d+-\d+"

# Bounds of one order. RQ costs about 1.4 ms a job, so orders are few and large. An order must be
# sent well within its lease, and the unmarked work of a killed sender must be small.
MAX_ITEMS = 500
MAX_BYTES = 1024 * 1024
# Orders of one subscription that a sender has claimed and not sent: one in sending, one behind it.
# A sender may claim more when all messages of these are in flight: so a slow consumer whose
# messages come one by one gets as many requests at once as its limit allows. The maker counts at
# most this number of claimed orders as waiting.
MAX_UNSENT = 2
# Bytes that an item takes beyond its payload: ids, event type, and the body around the payload.
ITEM_BYTES = 192


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message for one subscription. `body` is the JSON text that is sent and signed. `key` is
    the idempotency key of the message ('': none).

    `due` is the time since which the delivery waits for this attempt, in unix seconds of the
    database; 0: not known. `trace` is the message's `traceparent`, '' if it is not traced.
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
    """A batch for one subscription. A message is sent only if the lease outlasts its request."""

    subscription: int
    claim: str
    lease_until: float  # unix seconds
    items: list[Item]
    is_probe: bool = False  # a person asked for a probe: the breaker lets one through at once


# Bytes of an answer that travel through Redis and stay in the log of attempts.
MAX_RESPONSE_HEADERS = 2048
MAX_RESPONSE_BODY = 4096

_DATA = '","data":'  # in a body, before the payload

Outcome = Literal["delivered", "failed", "unsent"]
ENCRYPTED = "encrypted"  # the error if the sender has no key for the payload


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
    at: float = 0.0  # unix seconds when the request was sent; for `unsent`: `Item.due`
    detail: str = ""
    response_headers: str = ""
    response_body: str = ""
    event_type: str = ""  # for counters
    trace: str = ""  # `traceparent` of the attempt, if the message is traced

    def without_answer(self) -> Self:
        """The result without the words of the consumer."""
        return msgspec.structs.replace(self, detail="", response_headers="", response_body="")


def queue_name(biz_id: int, receive_id: int) -> str:
    """The queue of one subscription, named as in the original: notify-<biz id>-<receive id>."""
    return f"notify-{biz_id}-{receive_id}"  # without ":", on which RQ splits names


def are_results_late() -> bool:
    """True if the marker is behind: a delivery with an expired lease may have arrived."""
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
    """The body to send: a text of `body`, with a decrypted payload. Raises Undecryptable."""
    start = text.find(_DATA) + len(_DATA)
    if not text.startswith(encryption.PREFIX, start):  # no JSON text begins so
        return text
    return f"{text[:start]}{encryption.unseal(text[start:-1].encode()).decode()}}}"


def fitting(sizes: Sequence[int], max_items: int, max_bytes: int) -> int:
    """The number of first items that fit one order, by their sizes. The first always fits."""
    total = 0
    for count, size in enumerate(sizes[:max_items]):
        total += size
        if count and total > max_bytes:
            return count
    return min(len(sizes), max_items)


def in_turns(
    items: Iterable[T], system: Callable[[T], int], cost: Callable[[T], int] = lambda _item: 1
) -> list[T]:
    """Sort the items so that at any point of the list each system has had about the same cost. So a
    system with much work does not delay a system with little.

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
