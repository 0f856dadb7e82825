"""Requests, which operations keep, and work orders, from the poller to the handler.

All of it is JSON in Redis and in the database, where an earlier or later version of the programs
may read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from crmsync.adapters.base import Record

# The maximum of one order, which is claimed, decoded and marked as a whole.
MAX_ENTRIES = 500
MAX_BYTES = 1024 * 1024


class Request(msgspec.Struct, frozen=True):
    """The values that a CRM is to hold: `key` as the CRM knows it, `fields` by the CRM's names.

    A deletion has no fields.
    """

    key: str
    version: int
    fields: Mapping[str, Any] = {}
    deleted: bool = False


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

    def to_send(self, is_adopted: bool = False, should_fill_empty: bool = False) -> Record:
        """The record as an adapter takes it."""
        request = self.request
        return Record(
            request.key, request.version, request.fields, request.deleted, self.remote_id,
            is_adopted, should_fill_empty,
        )  # fmt: skip


class Order(msgspec.Struct, array_like=True):
    """Records of one policy that carry `claim` until `lease_until` (unix seconds)."""

    policy: int
    crm: int
    claim: str
    lease_until: float
    entries: Sequence[Entry]


_requests = msgspec.json.Decoder(list[Request])


def digest(request: Request) -> str:
    """A hash that is equal for requests with the same values."""
    content = msgspec.json.encode([request.deleted, request.fields], order="sorted")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def dump(requests: Sequence[Request]) -> bytes:
    """Requests as the `data` of an operation."""
    return msgspec.json.encode(requests)


def load(data: bytes) -> list[Request]:
    """The requests of an operation's `data`. Raises msgspec.DecodeError."""
    return _requests.decode(data)


def split(entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
    """Split entries into parts that fit into one order each."""
    if len(entries) <= MAX_ENTRIES and len(msgspec.json.encode(entries)) <= MAX_BYTES:
        yield entries  # nearly always
        return
    part: list[Entry] = []
    size = 0
    for entry in entries:
        length = len(msgspec.json.encode(entry.request))
        if part and (len(part) == MAX_ENTRIES or size + length > MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(entry)
        size += length
    if part:
        yield part
