"""Requests, which operations keep; work orders from the poller to the handler; and the queues of
each CRM: first attempts, retries, dead records.

Requests and orders are JSON in Redis and in the database, where an earlier or later version of the
programs may read them. The names of queues are those of the original platform; they hold no ":", at
which RQ splits.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from django.conf import settings

from crmsync import signals
from crmsync.models.sources import MAX_BATCH
from msgplatform.core import logging
from msgplatform.core.data import chunks_within
from msgplatform.core.queues import jobs

log = logging.get(__name__)

# The maximum of one order, which is claimed, decoded and marked as a whole.
MAX_ENTRIES = MAX_BATCH
MAX_BYTES = 1024 * 1024
_ENTRY_BYTES = 256  # an entry without its request: two ids, the id in the CRM


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values that a CRM is to hold: `key` as the CRM knows it, `fields` by the CRM's names.

    A deletion has no fields. `previous` is the operation with the record's request before this one,
    0 for the first, None in what an earlier release stored: `crmsync.erasure` follows it. An
    `erased` request has lost its fields there, and is never sent. `row_digest` is the digest of the
    row's own values in a request whose fields differ from them, because a person has corrected it
    or the mapping refused the row. With it the row does not count as changed when its version is
    read once more.
    """

    key: str
    version: int
    fields: Mapping[str, Any] = {}
    deleted: bool = False
    previous: int | None = None
    erased: bool = False
    row_digest: str = ""

    @property
    def cleared_fields(self) -> int:
        """The number of fields that hold nothing in the CRM afterwards."""
        return sum(value is None or value == "" for value in self.fields.values())


class Entry(msgspec.Struct, array_like=True):
    """One record of an order. `attempt` is the number of failed attempts.

    `check`: an earlier attempt may have stored it, so the record is looked up first, unless the
    adapter's calls can be repeated.
    """

    record: int
    operation: int
    request: Request
    remote_id: str = ""
    attempt: int = 0
    check: bool = False


class Order(msgspec.Struct, array_like=True):
    """Records of one policy that carry `claim` until `lease_until` (unix seconds)."""

    policy: int
    crm: int
    claim: str
    lease_until: float
    entries: Sequence[Entry]


_requests = msgspec.json.Decoder(list[Request])
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def digest(request: Request) -> str:
    """A hash that is equal for requests of rows with the same values."""
    if request.row_digest:
        return request.row_digest
    content = _encode_sorted((request.deleted, request.fields))
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def dump(requests: Sequence[Request]) -> bytes:
    """Requests as the `data` of an operation."""
    return msgspec.json.encode(requests)


def load(data: bytes) -> list[Request]:
    """The requests of an operation's `data`. Raises msgspec.DecodeError."""
    return _requests.decode(data)


def load_readable(operation_id: int, data: bytes) -> list[Request]:
    """The requests of a stored operation; none, and a line in the log, if they cannot be read."""
    try:
        return load(data)
    except msgspec.DecodeError:
        log.error("operation_unreadable", operation=operation_id)
        return []


def split(entries: Sequence[Entry], size: int | None = None) -> Iterable[Sequence[Entry]]:
    """Split entries into parts that fit into one order each. `size`: the bytes of their requests,
    if known."""
    if size is None:
        size = len(msgspec.json.encode(entries))
    else:
        size += _ENTRY_BYTES * len(entries)
    if len(entries) <= MAX_ENTRIES and size <= MAX_BYTES:
        yield entries  # nearly always
        return
    yield from chunks_within(
        entries,
        (lambda _entry: 1, MAX_ENTRIES),
        (lambda entry: len(msgspec.json.encode(entry.request)), MAX_BYTES),
    )


PATTERN = r"crm-(main|retry|dead)-[a-z0-9][a-z0-9-]{0,39}"
# An order is useless after its lease. A little longer: the handler's clock may be behind.
_SPARE_SECONDS = 60


class Queue:
    """Work orders of one CRM; all calls raise RedisError."""

    kind: ClassVar[str]

    def __init__(self, crm: str) -> None:
        self.name = f"crm-{self.kind}-{crm}"

    def put(self, orders: Sequence[Order]) -> None:
        """Queue all of the orders, or none."""
        jobs.put(self.name, orders, ttl=settings.CRM_LEASE_SECONDS + _SPARE_SECONDS)
        signals.HANDLER.send()

    def claim(self) -> jobs.Claimed | None:
        """Take the first order: a `jobs.Claimed` whose `data` is an Order. `jobs.remove_orders`
        ends the claim."""
        claims, _ = jobs.claim_all([self.name], settings.CRM_LEASE_SECONDS, Order)
        return claims[0] if claims else None

    def depth(self) -> int:
        """The number of orders that wait or are in flight."""
        return jobs.depths([self.name])[self.name]


class MainQueue(Queue):
    """Records that are sent for the first time."""

    kind = "main"


class RetryQueue(Queue):
    """Records that are tried again."""

    kind = "retry"


class DeadQueue(Queue):
    """A mirror of the dead records for people who look at queues. The database has the records, and
    no program takes from this queue."""

    kind = "dead"

    def replace(self, parts: Sequence[Any]) -> None:
        """Replace everything in the queue with these parts, which are any JSON."""
        jobs.replace(self.name, parts)
