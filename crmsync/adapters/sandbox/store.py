"""The records and calls of a sandbox CRM, in the work Redis for an hour."""

import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from msgplatform.core.connections import work_redis
from msgplatform.core.sandbox import KEEP_SECONDS, Sandbox

MAX_RECORDS = 1000
MAX_RECORD_BYTES = 16 * 1024
# Records of a call that are kept with it.
MAX_SENT = 20


class StoredRecord(msgspec.Struct, frozen=True):
    """A record as the sandbox holds it; `at` is the time of its last change in unix seconds."""

    key: str
    version: int
    fields: dict[str, Any]
    at: float

    @property
    def changed_at(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


class SentRecord(msgspec.Struct, frozen=True):
    """A record as it was sent."""

    key: str
    version: int
    fields: dict[str, Any]
    is_deleted: bool = False


class Call(msgspec.Struct, frozen=True):
    """A call of the adapter: `count` records, of which the first are in `records`; its answer is
    one of the adapter's words."""

    answer: str
    count: int
    records: list[SentRecord]
    delay: float = 0.0


class RecordsFull(Exception):
    """The sandbox holds MAX_RECORDS records of the last hour."""


class Records(Sandbox):
    """The sandbox `space` with its records. All methods raise RedisError."""

    def __init__(self, space: str) -> None:
        super().__init__(f"crm:{space}")
        self._name = f"sandbox:crm:{space}:records"

    def get(self, keys: Collection[str]) -> dict[str, StoredRecord]:
        """The records with these keys."""
        if not keys:
            return {}
        contents = work_redis().hmget(self._name, list(keys))
        return _current(content for content in contents if content)

    def all(self) -> list[StoredRecord]:
        """Every record, the one that was changed last first."""
        records = _current(work_redis().hvals(self._name)).values()
        return sorted(records, key=lambda record: -record.at)

    def put(self, records: Mapping[str, StoredRecord | None]) -> None:
        """Store records by key; None deletes one. Raises RecordsFull before it stores any."""
        client = work_redis()
        stored = {key: record for key, record in records.items() if record}
        if client.hlen(self._name) + len(stored) > MAX_RECORDS:
            current = {record.key for record in self.all()}
            names = {key.encode() for key in current}
            if outdated := [name for name in client.hkeys(self._name) if name not in names]:
                client.hdel(self._name, *outdated)
            if len(current | stored.keys()) > MAX_RECORDS:
                raise RecordsFull
        pipeline = client.pipeline()
        if stored:
            pipeline.hset(
                self._name,
                mapping={key: msgspec.json.encode(record) for key, record in stored.items()},
            )
        if deleted := [key for key, record in records.items() if record is None]:
            pipeline.hdel(self._name, *deleted)
        pipeline.expire(self._name, KEEP_SECONDS)
        pipeline.execute()

    def empty(self) -> int:
        """Drop the records and the calls; returns the number of calls."""
        work_redis().delete(self._name)
        return super().empty()


def _current(contents: Any) -> dict[str, StoredRecord]:
    """Decode records of the last hour; others, as of another release, are left out."""
    oldest = time.time() - KEEP_SECONDS
    records = {}
    for content in contents:
        try:
            record = msgspec.json.decode(content, type=StoredRecord)
        except msgspec.DecodeError:
            continue
        if record.at >= oldest:
            records[record.key] = record
    return records
