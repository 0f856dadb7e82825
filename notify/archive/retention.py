"""Let go of what is older than it is kept: archived messages, idempotency keys."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from django.db import connections, models

from msgplatform.core import logging
from msgplatform.core.data import sql
from notify.archive import ages, partitions
from notify.archive.router import cold_alias
from notify.models import ColdAttempt, ColdBizMsg, ColdReceiveMsg, IdempotencyKey

log = logging.get(__name__)

CHUNK = 500


def purge_archive(now: datetime) -> int:
    """Drop whole months where the archive has partitions, else delete a chunk of each table;
    how many rows or partitions went."""
    age = ages.keep_archived()
    if age is None:
        return 0
    before, using = ages.horizon(now, age), cold_alias()
    if connections[using].vendor == "mysql" and partitions.bounds_of(
        ColdBizMsg._meta.db_table, using
    ):
        dropped = partitions.drop(before)
        if dropped:
            log.info("archive_dropped", partitions=dropped)
        return len(dropped)
    tables = (ColdBizMsg, ColdReceiveMsg, ColdAttempt)
    return sum(_delete_chunk(model, before, using) for model in tables)


def purge_keys(now: datetime) -> int:
    """Delete a chunk of the idempotency keys that nobody repeats any more; how many."""
    return _delete_chunk(IdempotencyKey, ages.horizon(now, ages.keep_keys()), "default")


def _delete_chunk(model: type[models.Model], before: int, using: str) -> int:
    rows = model._base_manager.using(using)
    old = list(rows.filter(id__lt=before).order_by("id").values_list("id", flat=True)[:CHUNK])
    if not old:
        return 0
    return sql.retrying(partial(_delete, model, old, using), using)


def _delete(model: type[models.Model], row_ids: list[int], using: str) -> int:
    return model._base_manager.using(using).filter(id__in=row_ids).delete()[0]
