"""Copies of operations in the work Redis, which `sync_recover` reads when the database was restored
from an older backup. The database is the truth: losing the copies loses nothing.

    crm:copies:<slot>   hash: id of an operation -> the operation, for ids made in these ten minutes
    crm:copies          hash: slot -> bytes of its copies

A key for each operation would need more memory than what it holds. A slot is kept for
CRM_OPERATION_DAYS; before that the oldest go when all copies exceed CRM_COPIES_MB, since a full
Redis takes no message of any flow. All functions raise RedisError.
"""

import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import msgspec
from django.conf import settings

from crmsync.models import Operation
from msgplatform.core import logging
from msgplatform.core.connections import numbers_of, work_redis
from msgplatform.core.data import chunks, ids

log = logging.get(__name__)

INDEX = "crm:copies"
PREFIX = f"{INDEX}:"
PAGE = 500
_SLOT_SECONDS = 600
_DAY_SECONDS = 86_400
# `start_at` and the ids of an operation or of its records may come from two clocks.
EARLIER = timedelta(minutes=5)
_ENTRY_BYTES = 64  # bytes that Redis needs for an entry besides its value
# Texts of nearly every copy, the most frequent last. Stored copies are read with this dictionary: a
# change needs another first byte.
_DICTIONARY = (
    b'"deleted":true"erased":true},"deleted":false"email":"@163.com","@qq.com","@gmail.com",'
    b'"mobile":"phone":"1380"name":"first_name":"last_name":"city":"address":"company":null,'
    b'"extra":{"id":"","previous":0},{"key":"25","version":1,"fields":{"name":"","phone":"'
    b'[{"key":"25","version":1,"fields":{"'
)
_FORMAT = b"\x01"


class Copy(msgspec.Struct, frozen=True):
    """An operation as Redis has it; times are milliseconds since 1970."""

    id: int
    policy_id: int
    data: bytes
    start_at: int
    end_at: int | None
    result: int | None


class _Content(msgspec.Struct, frozen=True, array_like=True):
    policy_id: int
    start_at: int
    end_at: int | None
    result: int | None
    data: bytes  # raw deflate with _DICTIONARY


# -- writing -------------------------------------------------------------------------------------
def keep(operation: Operation) -> None:
    """Write the copy of an operation, unless there is one: a program that was stopped before this
    must not bring back what was erased meanwhile."""
    if not settings.CRM_OPERATION_DAYS:
        return
    slot, value = _slot(operation.pk), _encode(operation, bytes(operation.data))
    with work_redis().pipeline(transaction=False) as pipe:
        pipe.hsetnx(f"{PREFIX}{slot}", str(operation.pk), value)
        # A repeated call counts twice, which only drops copies a little earlier.
        pipe.hincrby(INDEX, str(slot), _size(value))
        pipe.expire(f"{PREFIX}{slot}", _keep_seconds())
        pipe.expire(INDEX, _keep_seconds())
        slot_bytes = pipe.execute()[1]
    if slot_bytes == _size(value):  # the first of its slot
        _drop_old_slots()


def overwrite(operation: Operation | Copy, data: bytes) -> None:
    """Write the copy of an operation with these data. A copy that does not exist is made only while
    it would still be kept."""
    slot = _slot(operation.id)
    with work_redis().pipeline(transaction=False) as pipe:
        if _slot_end(slot) + _keep_seconds() <= time.time():
            pipe.hdel(f"{PREFIX}{slot}", str(operation.id))
        else:
            pipe.hset(f"{PREFIX}{slot}", str(operation.id), _encode(operation, data))
            pipe.hincrby(INDEX, str(slot), 0)
            # An absolute time: Redis 6.2 does not have EXPIRE … NX.
            pipe.expireat(f"{PREFIX}{slot}", _slot_end(slot) + _keep_seconds())
        pipe.execute()


def _drop_old_slots() -> None:
    """Delete slots whose time is over, then the oldest ones while all exceed the bound."""
    oldest_time = time.time() - _keep_seconds()
    sizes = _slot_sizes()
    excess = sum(sizes.values()) - settings.CRM_COPIES_MB * 1024 * 1024
    slots_to_drop: list[int] = []
    for slot in sorted(sizes)[:-1]:  # programs write to the newest slot
        is_over = _slot_end(slot) < oldest_time
        if not is_over and excess <= 0:
            break
        if not is_over:
            log.warning(
                "copies_dropped", until=datetime.fromtimestamp(_slot_end(slot), UTC).isoformat(),
                why="CRM_COPIES_MB",
            )  # fmt: skip
        slots_to_drop.append(slot)
        excess -= sizes[slot]
    if slots_to_drop:
        with work_redis().pipeline(transaction=False) as pipe:
            pipe.unlink(*(f"{PREFIX}{slot}" for slot in slots_to_drop))
            pipe.hdel(INDEX, *map(str, slots_to_drop))
            pipe.execute()


# -- reading -------------------------------------------------------------------------------------
def read(operation_ids: Sequence[int]) -> Mapping[int, Copy]:
    """The copies that Redis still has, by id; a copy that cannot be read is left out."""
    by_slot: dict[int, list[int]] = defaultdict(list)
    for operation_id in operation_ids:
        by_slot[_slot(operation_id)].append(operation_id)
    with work_redis().pipeline(transaction=False) as pipe:
        for slot, slot_ids in by_slot.items():
            pipe.hmget(f"{PREFIX}{slot}", list(map(str, slot_ids)))
        values = pipe.execute()
    # Ids and values have the order of the slots.
    pairs = zip(chain(*by_slot.values()), chain(*values), strict=True)
    copies = [_decode(operation_id, value) for operation_id, value in pairs if value is not None]
    return {copy.id: copy for copy in copies if copy}


def since(start_ms: int) -> Iterator[Sequence[int]]:
    """The ids of all operations that began at `start_ms` or later, and of some that began up to a
    quarter of an hour before, oldest first, at most PAGE at a time."""
    for slot in slots():
        if _slot_end(slot) >= start_ms / 1000 - EARLIER.total_seconds():
            members: Any = work_redis().hkeys(f"{PREFIX}{slot}")
            yield from chunks(sorted(map(int, members)), PAGE)


def slots() -> list[int]:
    """The slots that have copies, oldest first."""
    return sorted(_slot_sizes())


def scan(slot: int, cursor: int) -> tuple[int, list[Copy]]:
    """Some copies of a slot, and the cursor of the next ones, 0 at the end: as HSCAN."""
    answer: Any = work_redis().hscan(f"{PREFIX}{slot}", cursor, count=PAGE)
    copies = [_decode(int(copy_id), value) for copy_id, value in answer[1].items()]
    return int(answer[0]), [copy for copy in copies if copy]


# -- the form of a copy ---------------------------------------------------------------------------
def _slot(operation_id: int) -> int:
    return int(ids.datetime_of(operation_id).timestamp()) // _SLOT_SECONDS


def _slot_end(slot: int) -> int:
    return (slot + 1) * _SLOT_SECONDS


def _slot_sizes() -> dict[int, int]:
    answer: Any = work_redis().hgetall(INDEX)
    return {int(slot): int(size) for slot, size in numbers_of(answer).items() if slot.isdecimal()}


def _keep_seconds() -> int:
    return int(settings.CRM_OPERATION_DAYS * _DAY_SECONDS) + _SLOT_SECONDS


def _size(value: bytes) -> int:
    return len(value) + _ENTRY_BYTES


def _encode(operation: Operation | Copy, data: bytes) -> bytes:
    packer = zlib.compressobj(level=1, wbits=-15, zdict=_DICTIONARY)
    content = _Content(
        operation.policy_id, operation.start_at, operation.end_at, operation.result,
        packer.compress(data) + packer.flush(),
    )  # fmt: skip
    return _FORMAT + msgspec.msgpack.encode(content)


def _decode(operation_id: int, value: bytes) -> Copy | None:
    if value[:1] != _FORMAT:
        return None
    try:
        content = msgspec.msgpack.decode(value[1:], type=_Content)
        data = zlib.decompressobj(wbits=-15, zdict=_DICTIONARY).decompress(content.data)
    except (msgspec.DecodeError, zlib.error):
        log.error("copy_unreadable", operation=operation_id)
        return None
    return Copy(
        operation_id, content.policy_id, data, content.start_at, content.end_at, content.result
    )
