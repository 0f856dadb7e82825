"""Store each item once, for any number of requests with its key.

Each flow has a table of idempotency keys (a model that inherits IdempotencyRow) beside its table of
items. A key is unique for a business system within a bucket. The item's id has the same bucket, so
that one shard holds both. Rows are kept longer than callers repeat requests; the flow's retention
deletes them.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from django.db import connection, models, transaction
from django.db.models import Q
from django.utils import timezone

from msgplatform.core.data import chunks, ids, sql, transactions
from msgplatform.core.errors import InvalidInput
from msgplatform.core.failpoints import failpoint
from msgplatform.core.fields import ExactCharField
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.core.tracing import spans
from msgplatform.core.tracing.context import Start, is_on

T = TypeVar("T")

MAX_KEY_LENGTH = 128
_KEY = re.compile(r"[\x21-\x7e]+")
_MAX_LOOKUPS = 100  # keys of one statement


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


def key_of(model: type[IdempotencyRow], id: int) -> str:
    """The key with which an item was stored, if its row still exists; else ''."""
    return model._base_manager.filter(pk=id).values_list("key", flat=True).first() or ""


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
    model: type[IdempotencyRow],
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
    items. A span begins before the transaction, which also stores its context: the spans of later
    programs are its children. The span of a duplicate names the message that was stored before.

    Must not run inside a transaction of the caller: an answer given before the caller's commit
    would not be durable. Raises OperationalError when the database is unavailable.
    """
    block = ids.reserve(len(items))
    for item, item_id in zip(items, block.ids([item.bucket for item in items]), strict=True):
        item.id = item_id
    open_spans: Mapping[int, spans.Span] = {}  # by the new ids of the items
    if is_on():
        open_spans = {
            item.id: spans.start(
                f"{flow} accept", item.trace.parent, kind="server", at=item.trace.at,
                system=item.biz,
            )
            for item in items if item.trace
        }  # fmt: skip
    verdicts = transactions.retrying(lambda: _store_once(items, model, insert, open_spans))
    if open_spans:
        for item, verdict in zip(items, verdicts, strict=True):
            if span := open_spans.get(item.id):
                error = verdict.code if verdict.outcome == "rejected" else ""
                spans.end(span, error=error, message_id=str(verdict.id), outcome=verdict.outcome)
    return verdicts


def _store_once(
    items: Sequence[Item[T]],
    model: type[IdempotencyRow],
    insert: Callable[[Sequence[Item[T]], Any], None],
    open_spans: Mapping[int, "spans.Span"],
) -> list[Verdict]:
    now = sql.stored(timezone.now())  # once, instead of for each row
    keyed_items = [item for item in items if item.key is not None]
    with transaction.atomic(durable=True):
        new_ids = _claim_keys(keyed_items, model, now)
        later_items = [item for item in keyed_items if item.id not in new_ids]
        new_items = [item for item in items if item.key is None or item.id in new_ids]
        if new_items:
            insert(new_items, now)
            if open_spans:
                spans.store_contexts({
                    item.id: spans.context_of(open_spans[item.id])
                    for item in new_items if item.id in open_spans
                })  # fmt: skip
        failpoint("intake_before_commit")
        first_items = read_first_items(later_items, model)
    failpoint("intake_after_commit")
    later_verdicts = {}
    for item in later_items:
        first_id, first_hash = first_items[item.biz, item.key]
        later_verdicts[item.id] = Verdict.duplicate_or_conflict(
            first_hash == item.payload_hash, first_id
        )
    return [later_verdicts.get(item.id) or Verdict("created", item.id) for item in items]


def _claim_keys(items: Sequence[Item[T]], model: type[IdempotencyRow], now: Any) -> set[int]:
    """Insert the new keys, and return the ids of their items. A key is new if its row has our
    id."""
    if not items:
        return set()
    # Sorted, so that groups with common keys wait for each other instead of deadlocking.
    sorted_items = sorted(items, key=lambda item: (item.bucket, item.biz, item.key))
    sql.insert_or_keep(
        model._meta.db_table,
        ("id", "bucket", "biz_id", "key", "payload_hash", "created_at"),
        [(i.id, i.bucket, i.biz, i.key, i.payload_hash, now) for i in sorted_items],
    )
    table = connection.ops.quote_name(model._meta.db_table)
    places = ", ".join(["%s"] * len(items))
    with connection.cursor() as cursor:
        # Raw SQL: the statement is the same for every group of this size, and the ORM takes longer
        # to build it than the database to run it.
        cursor.execute(
            f"SELECT id FROM {table} WHERE id IN ({places})",  # noqa: S608
            [item.id for item in items],
        )
        return {row_id for (row_id,) in cursor.fetchall()}


def read_first_items(
    items: Sequence[Item[T]], model: type[IdempotencyRow]
) -> dict[tuple[int, str | None], tuple[int, str]]:
    """(biz, key) → id and payload hash of the item that was stored with the key, if any."""
    first_items: dict[tuple[int, str | None], tuple[int, str]] = {}
    for chunk in chunks(items, _MAX_LOOKUPS):
        condition = Q()
        for item in chunk:
            condition |= Q(bucket=item.bucket, biz_id=item.biz, key=item.key)
        rows = model._default_manager.filter(condition)
        for biz, key, row_id, digest in rows.values_list("biz_id", "key", "id", "payload_hash"):
            first_items[biz, key] = (row_id, digest)
    return first_items
