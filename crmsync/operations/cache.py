"""Copies of operations in Redis, kept for CRM_OPERATION_DAYS.

`sync_recover` reads them when the database was restored from an older backup. The database is the
truth: losing the copies loses nothing.

`crm:operation:<id>` is JSON: id, data (a list of requests), start_at, end_at, result, as the row
has them. `crm:operation-policy:<id>` is the id of its policy. `crm:operations` has the ids of all,
sorted by start_at. All functions raise RedisError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec
from django.conf import settings

from crmsync.models import Operation
from msgplatform.core.connections import work_redis

INDEX = "crm:operations"
PAGE = 500
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


def remember(operation: Operation) -> None:
    """Write or overwrite the copy of an operation. Old ids leave the index."""
    days = settings.CRM_OPERATION_DAYS
    if not days:
        return
    kept_ms = round(days * _DAY_MS)
    copy = _Content(
        operation.pk, msgspec.Raw(bytes(operation.data)), operation.start_at, operation.end_at,
        operation.result,
    )  # fmt: skip
    with work_redis().pipeline(transaction=False) as pipe:
        pipe.set(f"crm:operation:{operation.pk}", msgspec.json.encode(copy), px=kept_ms)
        pipe.set(f"crm:operation-policy:{operation.pk}", operation.policy_id, px=kept_ms)
        pipe.zadd(INDEX, {str(operation.pk): operation.start_at})
        pipe.zremrangebyscore(INDEX, "-inf", f"({operation.start_at - kept_ms}")
        pipe.pexpire(INDEX, kept_ms)
        pipe.execute()


def read(operation_ids: Sequence[int]) -> Mapping[int, Copy]:
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


def since(start_ms: int) -> Iterator[list[int]]:
    """The ids of operations that began at `start_ms` or later, oldest first, at most PAGE at a
    time."""
    client = work_redis()
    # Pages begin at a time, not at an id: `seen_members` are ids that began in the millisecond
    # `page_start` and were part of an earlier page.
    page_start, seen_members = start_ms, set[bytes]()
    while True:
        limit = PAGE + len(seen_members)
        page = cast(
            "list[tuple[bytes, float]]",
            client.zrange(
                INDEX, page_start, "+inf", byscore=True, offset=0, num=limit, withscores=True
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
