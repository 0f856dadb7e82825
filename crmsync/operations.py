"""Operations, for all programs: counts of how their records ended, and copies in Redis.

    open ── each of its records is confirmed, replaced by a newer version, or dead ──> ended
    ended ── a record is sent again, dead or confirmed ──> open, until that record ends anew

A record ends once each time that it is sent; it is counted in the transaction that ends it.

Redis keeps a copy of each operation for CRM_OPERATION_DAYS: `sync_recover` reads the copies when
the database was restored from an older backup. The database is the truth: losing the copies loses
nothing. `crm:operation:<id>` is JSON: id, data (a list of requests), start_at, end_at, result, as
the row has them. `crm:operation-policy:<id>` is the id of its policy. `crm:operations` has the ids
of all, sorted by start_at. Functions for copies raise RedisError.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import msgspec
from django.conf import settings
from django.db import models
from django.db.models import Case, F, Value, When

from crmsync.models import Operation
from msgplatform.core.connections import work_redis
from msgplatform.core.data import claims
from msgplatform.core.data.chunks import chunks

Ended = Mapping[tuple[int, str], int]  # (operation, "confirmed", "replaced" or "dead") → how many


def add_endings(counts: Ended, now: datetime) -> None:
    """Add to the counts, and end operations of which every record has ended."""
    # Operations with the same counts share a statement; usually all of them do.
    by_change: dict[tuple[tuple[str, int], ...], list[int]] = defaultdict(list)
    of_operation: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for (operation, name), count in sorted(counts.items()):
        if operation and count:
            of_operation[operation].append((name, count))
    for operation, changes in of_operation.items():
        by_change[tuple(changes)].append(operation)
    for each, operations in by_change.items():
        for some in chunks(operations, claims.CHUNK):
            rows = Operation.objects.filter(id__in=some)
            rows.update(**{name: F(name) + count for name, count in each})
    total = F("confirmed") + F("replaced") + F("dead")
    for some in chunks(sorted(of_operation), claims.CHUNK):
        rows = Operation.objects.filter(id__in=some, end_at__isnull=True, records__lte=total)
        rows.update(
            end_at=int(now.timestamp() * 1000),
            result=Case(
                When(dead=0, then=Value(1)), default=Value(0),
                output_field=models.PositiveSmallIntegerField(),
            ),
        )  # fmt: skip


def take_back_endings(counts: Ended) -> None:
    """Remove records that are sent again from the counts; their operations are open until they end
    anew. An operation whose count is smaller stays as it is."""
    of_change: dict[tuple[str, int], list[int]] = defaultdict(list)
    for (operation, name), count in sorted(counts.items()):
        if operation and count:
            of_change[name, count].append(operation)
    for (name, count), operations in of_change.items():
        for some in chunks(operations, claims.CHUNK):
            rows = Operation.objects.filter(id__in=some, **{f"{name}__gte": count})
            rows.update(**{name: F(name) - count}, end_at=None, result=None)


COPIES_INDEX = "crm:operations"
COPIES_PAGE = 500
_DAY_MS = 86_400_000


class _Content(msgspec.Struct, frozen=True):
    id: int
    data: msgspec.Raw
    start_at: int
    end_at: int | None = None
    result: int | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """An operation as Redis has it; times are milliseconds since 1970. `policy_id` is 0 when Redis
    has lost it."""

    id: int
    policy_id: int
    data: bytes
    start_at: int
    end_at: int | None
    result: int | None


def keep_copy(operation: Operation) -> None:
    """Write the copy of an operation, unless there is one: a program that was stopped before this
    must not bring back what was erased meanwhile. Old ids leave the index."""
    days = settings.CRM_OPERATION_DAYS
    if not days:
        return
    kept_ms = round(days * _DAY_MS)
    copy = _Content(
        operation.pk, msgspec.Raw(bytes(operation.data)), operation.start_at, operation.end_at,
        operation.result,
    )  # fmt: skip
    with work_redis().pipeline(transaction=False) as pipe:
        pipe.set(f"crm:operation:{operation.pk}", msgspec.json.encode(copy), px=kept_ms, nx=True)
        pipe.set(f"crm:operation-policy:{operation.pk}", operation.policy_id, px=kept_ms)
        pipe.zadd(COPIES_INDEX, {str(operation.pk): operation.start_at})
        pipe.zremrangebyscore(COPIES_INDEX, "-inf", f"({operation.start_at - kept_ms}")
        pipe.pexpire(COPIES_INDEX, kept_ms)
        pipe.execute()


def overwrite_copy(operation: Operation | Copy, data: bytes) -> None:
    """Write the copy of an operation with these data, whether there is one or not; without one
    only while it would still be kept."""
    kept_until = operation.start_at + round(settings.CRM_OPERATION_DAYS * _DAY_MS)
    rest_ms = kept_until - int(time.time() * 1000)
    key = f"crm:operation:{operation.id}"
    if rest_ms <= 0:
        work_redis().delete(key)
        return
    copy = _Content(
        operation.id, msgspec.Raw(data), operation.start_at, operation.end_at, operation.result
    )
    work_redis().set(key, msgspec.json.encode(copy), px=rest_ms)


def read_copies(operation_ids: Sequence[int]) -> Mapping[int, Copy]:
    """The copies that Redis still has, by id; a copy that cannot be read is left out."""
    if not operation_ids:
        return {}
    client = work_redis()
    contents = client.mget([f"crm:operation:{each}" for each in operation_ids])
    policies = client.mget([f"crm:operation-policy:{each}" for each in operation_ids])
    copies: dict[int, Copy] = {}
    for content, policy in zip(contents, policies, strict=True):
        if content is None:
            continue
        try:
            fields = msgspec.json.decode(content, type=_Content)
        except msgspec.DecodeError:
            continue
        copies[fields.id] = Copy(
            fields.id, int(policy or 0), bytes(fields.data), fields.start_at, fields.end_at,
            fields.result,
        )  # fmt: skip
    return copies


def copies_since(start_ms: int) -> Iterator[list[int]]:
    """The ids of operations that began at `start_ms` or later, oldest first, at most COPIES_PAGE
    at a time."""
    client = work_redis()
    # Pages begin at a time, not at an id: `seen_members` are ids that began in the millisecond
    # `page_start` and were part of an earlier page.
    page_start, seen_members = start_ms, set[bytes]()
    while True:
        limit = COPIES_PAGE + len(seen_members)
        page = cast(
            "list[tuple[bytes, float]]",
            client.zrange(
                COPIES_INDEX, page_start, "+inf", byscore=True, offset=0, num=limit, withscores=True
            ),
        )  # fmt: skip
        new = [(member, int(score)) for member, score in page if member not in seen_members]
        if new:
            yield [int(member) for member, _score in new]
            last_start = new[-1][1]
            seen_members = {m for m, score in new if score == last_start} | (
                seen_members if last_start == page_start else set()
            )
            page_start = last_start
        if len(page) < limit:
            return
