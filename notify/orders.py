"""What travels through the queues: orders from maker to sender, results from sender to marker; and
the names of these queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

MARKER_QUEUE = "notify-marker"
# What `queue_name()` makes.
QUEUE_PATTERN = r"notify-\d+-\d+"

# Bounds of one order: RQ costs about 1.4 ms a job, so orders are few and large; but small enough to
# be sent well within a lease, and to keep the unmarked work of a killed sender small.
MAX_ITEMS = 500
MAX_BYTES = 1024 * 1024
# Bytes that an item takes beyond its payload: ids, event type, and the body around the payload.
ITEM_BYTES = 192


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message for one subscriber. `body` is the JSON text that is sent and signed, `key` the
    idempotency key with which the message was handed over ('': none).

    `due` is since when it waits for this attempt, unix seconds of the database; 0: nobody knows.
    """

    id: int
    msg_id: int
    attempt: int
    body: str
    event_type: str = ""
    key: str = ""
    due: float = 0.0


class Order(msgspec.Struct, frozen=True):
    """A batch for one subscription. Nothing of it is sent unless the lease outlasts the send."""

    subscription: int
    claim: str
    lease_until: float  # unix seconds
    items: list[Item]
    is_probe: bool = False  # a person asked for it: the breaker lets it through before its time


# What is kept of an answer, in bytes. It travels through Redis and stays in the attempts' log.
RESPONSE_HEADERS_KEPT = 2048
RESPONSE_BODY_KEPT = 4096

Outcome = Literal["delivered", "failed", "unsent"]


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of one item. `unsent` gives the row back without counting an attempt."""

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


def queue_name(biz_id: int, receive_id: int) -> str:
    """The queue of one subscription, named as in the original: notify-<biz id>-<receive id>."""
    return f"notify-{biz_id}-{receive_id}"  # without ":", on which RQ splits names


def system_of(queue: str) -> int:
    """The business system whose subscription has this queue."""
    return int(queue.split("-")[1])


def body(event_type: str, timestamp: str, payload: bytes) -> str:
    """The Standard Webhooks body around the payload's exact bytes."""
    head = f'{{"type":"{event_type}","timestamp":"{timestamp}","data":'
    return head + payload.decode("utf-8") + "}"


def fitting(sizes: Sequence[int], max_items: int, max_bytes: int) -> int:
    """How many of the first items, by their sizes, make one order; one always fits."""
    filled = 0
    for count, size in enumerate(sizes[:max_items]):
        filled += size
        if count and filled > max_bytes:
            return count
    return min(len(sizes), max_items)
