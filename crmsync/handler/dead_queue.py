"""The mirror of the dead records in Redis, `crm-dead-<crm>`, for whoever looks at queues."""

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
_IN_ONE = 500


def mirror(crms: Iterable[Crm]) -> None:
    """Make these CRMs' mirrors anew where they are missing or old. Raises RedisError, and what a
    database raises that is away."""
    for crm in crms:
        entries = RecoveryEntry.objects.filter(
            crm_id=crm.id, state=RecoveryEntry.State.OPEN, record_id__isnull=False
        ).order_by("-id")
        found = list(entries.values_list("id", "version")[:MOST])
        said = hashlib.sha256(msgspec.json.encode(found)).hexdigest()
        key, queue = f"crm:dead:{crm.id}", DeadQueue(crm.name)
        parts = -(-len(found) // _IN_ONE)
        known: Any = work_redis().get(key)
        if known == said.encode() and queue.depth() == parts:
            continue
        rows = list(
            entries.values(
                "id", "record_id", "key", "version", "operation_id", "error_class", "field",
                "reason", "attempts",
            )[:MOST]
        )  # fmt: skip
        queue.replace([list(part) for part in chunks(rows, _IN_ONE)])
        work_redis().set(key, said)
