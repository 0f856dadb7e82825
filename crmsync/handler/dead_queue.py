"""The mirror of the dead records in Redis, `crm-dead-<crm>`, for people who look at queues."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from crmsync.directory import Crm
from crmsync.models import RecoveryEntry
from crmsync.queues import DeadQueue
from msgplatform.core.connections import work_redis
from msgplatform.core.data.chunks import chunks

MOST = 10_000  # the newest
EVERY_SECONDS = 30.0
_IN_ONE = 500
_SHOWN = (
    "id", "record_id", "key", "version", "operation_id", "error_class", "field", "reason",
    "attempts",
)  # fmt: skip


def mirror(crms: Iterable[Crm]) -> None:
    """Write these CRMs' mirrors anew where they are missing or old.

    Raises RedisError, and what an unavailable database raises.
    """
    # One handler at a time does this; half of the interval, so that the next turn is not left out.
    if not work_redis().set("crm:dead", 1, nx=True, px=int(EVERY_SECONDS * 500)):
        return
    for crm in crms:
        entries = RecoveryEntry.objects.filter(
            crm_id=crm.id, state=RecoveryEntry.State.OPEN, record_id__isnull=False
        ).order_by("-id")
        found = list(entries.values_list("id", "version", "attempts", "error_class")[:MOST])
        # A digest of what would be written: an unchanged mirror costs one query and no write.
        is_like = hashlib.sha256(msgspec.json.encode(found)).hexdigest()
        key, queue = f"crm:dead:{crm.id}", DeadQueue(crm.name)
        known: Any = work_redis().get(key)
        if known == is_like.encode() and queue.depth() == -(-len(found) // _IN_ONE):
            continue
        rows = list(entries.values(*_SHOWN)[:MOST])
        queue.replace([list(part) for part in chunks(rows, _IN_ONE)])
        work_redis().set(key, is_like)
