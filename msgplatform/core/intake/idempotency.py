"""Store each item once, for any number of requests with its key.

Each flow has a table of idempotency keys (a model that inherits IdempotencyRow) beside its table of
items. A key is unique for a business system within a bucket. The item's id has the same bucket, so
that one shard holds both. Rows are kept longer than callers repeat requests; the flow's retention
deletes them.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from django.db import connection, models, transaction
from django.db.models import Q
from django.utils import timezone

from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import InvalidInput
from msgplatform.core.failpoints import failpoint
from msgplatform.core.fields import ExactCharField
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.core.tracing import accepted
from msgplatform.core.tracing.context import Start

T = TypeVar("T")

MAX_KEY_LENGTH = 128
_KEY = re.compile(r"[\x21-\x7e]+")
_LOOKUP = 100  # keys looked up per statement


class IdempotencyRow(models.Model):
    """The item of a (business system, key) pair; `id` is the item's id.

    A subclass adds this constraint, under a name that is unique in the database:
    `UniqueConstraint(fields=IdempotencyRow.UNIQUE, name=…)`.
    """

    UNIQUE = ("bucket", "biz_id", "key")

    id = models.BigIntegerField(primary_key=True)
    bucket = models.PositiveSmallIntegerField()
    biz_id = models.BigIntegerField()
    key = ExactCharField(max_length=MAX_KEY_LENGTH)
    payload_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.key)


def key_of(rows: type[IdempotencyRow], id: int) -> str:
    """The key with which an item was stored, if its row still exists; else ''."""
    return rows._base_manager.filter(pk=id).values_list("key", flat=True).first() or ""


class Item(msgspec.Struct, Generic[T]):
    """An item to store: the flow's own `body`, with the key and hash that identify a duplicate.

    `payload_hash` is empty without a key. `store` sets the id. `trace` is None unless the item is
    traced.
    """

    body: T
    biz: int
    key: str | None
    payload_hash: str
    bucket: int
    id: int = 0
    trace: Start | None = None


def check_key(key: str) -> None:
    """Raises InvalidInput."""
    if len(key) > MAX_KEY_LENGTH or not _KEY.fullmatch(key):
        raise InvalidInput(
            f"use 1 to {MAX_KEY_LENGTH} visible ASCII characters without spaces", "idempotency_key"
        )


def payload_hash(*parts: bytes) -> str:
    """The hash of the parts of a request that are equal in a duplicate."""
    return hashlib.sha256(b"\n".join(parts)).hexdigest()


def item(
    body: T, biz: int, key: str | None, *payload_parts: bytes, trace: Start | None = None
) -> Item[T]:
    """Make an item. `payload_parts` are hashed; `key` has been checked, or is None."""
    digest = payload_hash(*payload_parts) if key is not None else ""
    return Item(body, biz, key, digest, ids.bucket(biz, key), trace=trace)


def store(
    items: Sequence[Item[T]],
    keys: type[IdempotencyRow],
    insert: Callable[[Sequence[Item[T]], Any], None],
    flow: str = "",
) -> list[Verdict]:
    """Store each item once, all in one transaction; the verdicts come in the same order.

        reserve ids ─▶ BEGIN ─▶ claim keys ─▶ insert(new items, now) ─▶ COMMIT ─▶ created
                                    └─ key exists ─▶ read its first item ──────▶ duplicate, conflict
        connection lost, deadlock ─▶ repeat all from BEGIN on, with the same ids

    `insert` writes the rows of new items; `now` is the time as the database stores it. `insert`
    must keep existing rows (`sql.insert_or_keep`), because a transaction that lost its connection
    during COMMIT may have been stored before its repetition. `flow` names the spans of traced
    items.

    Must not run inside a transaction of the caller: an answer given before the caller's commit
    would not be durable. Raises OperationalError when the database is unavailable.
    """
    block = ids.reserve(len(items))
    for item, item_id in zip(items, block.ids([item.bucket for item in items]), strict=True):
        item.id = item_id
    spans = accepted.begin(flow, items)
    verdicts = transactions.retrying(lambda: _store_once(items, keys, insert, spans))
    accepted.end(spans, items, verdicts)
    return verdicts


def _store_once(
    items: Sequence[Item[T]],
    keys: type[IdempotencyRow],
    insert: Callable[[Sequence[Item[T]], Any], None],
    spans: accepted.Spans,
) -> list[Verdict]:
    now = sql.stored(timezone.now())  # once, instead of for each row
    keyed_items = [each for each in items if each.key is not None]
    with transaction.atomic(durable=True):
        new_ids = _claim_keys(keyed_items, keys, now)
        repeat_items = [each for each in keyed_items if each.id not in new_ids]
        new = [each for each in items if each.key is None or each.id in new_ids]
        if new:
            insert(new, now)
            if spans:
                accepted.remember(spans, [each.id for each in new])
        failpoint("intake_before_commit")
        first = first_ones(repeat_items, keys)
    failpoint("intake_after_commit")
    repeat_verdicts = {}
    for each in repeat_items:
        first_id, first_hash = first[each.biz, each.key]
        repeat_verdicts[each.id] = Verdict.duplicate_or_conflict(
            first_hash == each.payload_hash, first_id
        )
    return [repeat_verdicts.get(each.id) or Verdict("created", each.id) for each in items]


def _claim_keys(items: Sequence[Item[T]], keys: type[IdempotencyRow], now: Any) -> set[int]:
    """Insert the new keys, and return the ids of their items. A key is new if its row has our
    id."""
    if not items:
        return set()
    # Sorted, so that groups with common keys wait for each other instead of deadlocking.
    rows = sorted(items, key=lambda each: (each.bucket, each.biz, each.key))
    sql.insert_or_keep(
        keys._meta.db_table,
        ("id", "bucket", "biz_id", "key", "payload_hash", "created_at"),
        [(e.id, e.bucket, e.biz, e.key, e.payload_hash, now) for e in rows],
    )
    table = connection.ops.quote_name(keys._meta.db_table)
    places = ", ".join(["%s"] * len(items))
    with connection.cursor() as cursor:
        # Raw SQL: the statement is the same for every group of this size, and the ORM takes longer
        # to build it than the database to run it.
        cursor.execute(
            f"SELECT id FROM {table} WHERE id IN ({places})",  # noqa: S608
            [each.id for each in items],
        )
        return {row_id for (row_id,) in cursor.fetchall()}


def first_ones(
    items: Sequence[Item[T]], keys: type[IdempotencyRow]
) -> dict[tuple[int, str | None], tuple[int, str]]:
    """(biz, key) → id and payload hash of the item that was stored with the key, if any."""
    first_rows: dict[tuple[int, str | None], tuple[int, str]] = {}
    for some in chunks(items, _LOOKUP):
        condition = Q()
        for each in some:
            condition |= Q(bucket=each.bucket, biz_id=each.biz, key=each.key)
        rows = keys._default_manager.filter(condition)
        for biz, key, row_id, digest in rows.values_list("biz_id", "key", "id", "payload_hash"):
            first_rows[biz, key] = (row_id, digest)
    return first_rows
