"""Claim rows for one process with a lease, in the same way on every database.

A model that can be claimed has `claimed_by` (32 characters) and a time column: `lease_until`, or a
time such as `next_at` that means "not due, or leased, until then". A row is free when the time is
over (or NULL). Leases use the database's clock, so that claims of different machines agree.

Each UPDATE finds rows by primary key and repeats the whole condition, so that only one of two
claims that chose the same row wins the row. A claim does not rely on `SKIP LOCKED`: SQLite has
none, and a Spider head ignores it silently. After an UPDATE has waited for a locked row,
claims of its table pass over locked rows by `SKIP LOCKED` for a while, where there is one.

    free ── claim ──▶ claimed ── release ──▶ free
                      claimed ── renew ──▶ claimed, for longer
                      claimed ── the lease is over ──▶ free; the old holder's token wins nothing
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, cast

import msgspec
from django.core.exceptions import EmptyResultSet
from django.db import OperationalError, connections, models, router, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.db.models.sql import UpdateQuery

from msgplatform.core.data import chunks, engines, sql, transactions

CHUNK = 500  # ids in one statement
# Seconds in which claims pass over locked rows of a table, after one has waited for a lock.
_PASS_SECONDS = 60.0
passing_until: dict[str, float] = {}  # table → monotonic seconds


class Claim(msgspec.Struct):
    """Rows that this process holds until `lease_until` (aware, database's clock), in queryset
    order.

    `read` has, by id, the columns that `claim_ids` was asked for, as of the claim.
    """

    token: str
    ids: list[Any]
    lease_until: datetime
    read: dict[Any, tuple[Any, ...]] = msgspec.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.ids)


def claim(
    queryset: QuerySet[Any],
    *,
    limit: int,
    lease: float,
    changes: Mapping[str, Any] | None = None,
    until: str = "lease_until",
) -> Claim:
    """Claim up to `limit` free rows of `queryset` for `lease` seconds.

    The queryset holds the state filter and the order, on columns of its own table only, and no
    slice (else ValueError). Order by the last columns of its index, or each claim sorts the whole
    backlog. `changes` are new values of further columns, or expressions for them.

    Fewer rows than `limit` means that no other row was free. Inside a transaction of the caller the
    statements belong to it; outside, each statement commits and is repeated after a deadlock or a
    lost connection.
    """
    free, new_claim, values = _begin(queryset, lease, changes or {}, until)
    passed_ids: list[Any] = []  # locked, or claimed
    while len(new_claim.ids) < limit and len(passed_ids) < CHUNK:
        page_size = min(CHUNK, limit - len(new_claim.ids))
        rows = free.exclude(pk__in=passed_ids)
        # No lock: other claims may choose the same rows, and the UPDATE decides.
        ids: list[Any] = transactions.retrying(
            partial(list, rows.values_list("pk", flat=True)[:page_size]), queryset.db
        )
        if not ids:
            break
        _take(new_claim, free, ids, values, until)
        if len(ids) < page_size:  # no more were free
            break
        if _is_passing(queryset.model):
            passed_ids += ids
    return new_claim


def claim_ids(
    queryset: QuerySet[Any],
    ids: Sequence[Any],
    *,
    lease: float,
    changes: Mapping[str, Any] | None = None,
    until: str = "lease_until",
    read: Sequence[str] = (),
) -> Claim:
    """Claim the rows among `ids`, which the caller chose, that are free and in `queryset`.

    Otherwise like `claim`, with ids in the given order. `read` names columns to read into
    `Claim.read` after the claim, because rows may have changed since the caller chose them.
    """
    free, new_claim, values = _begin(queryset, lease, changes or {}, until)
    for chunk in chunks(ids, CHUNK):
        _take(new_claim, free, chunk, values, until, read)
    return new_claim


def renew(model: type[models.Model], claim: Claim, lease: float, until: str = "lease_until") -> int:
    """Renew the lease, `lease` seconds from now, of rows that still carry the claim; their number.
    If the number is smaller than the claim's, other processes hold the other rows."""
    database = router.db_for_write(model)
    now = transactions.retrying(partial(sql.now, database), database)
    lease_until = now + timedelta(seconds=lease)
    row_count = _update_claimed(model, claim, {until: lease_until}, database)
    claim.lease_until = lease_until
    return row_count


def release(
    model: type[models.Model],
    claim: Claim,
    changes: Mapping[str, Any] | None = None,
    until: str = "lease_until",
    using: str | None = None,
) -> int:
    """Free the rows that still carry the claim, and make `changes` too; returns their number.

    The time column becomes NULL, or now if it cannot be NULL, unless `changes` has a value for it.
    """
    database = using or router.db_for_write(model)
    free_time = None if model._meta.get_field(until).null else Now()
    values = {"claimed_by": "", until: free_time, **(changes or {})}
    return _update_claimed(model, claim, values, database)


def _begin(
    queryset: QuerySet[Any], lease: float, changes: Mapping[str, Any], until: str
) -> tuple[QuerySet[Any], Claim, dict[str, Any]]:
    """The free rows, a claim that has none of them yet, and the values of claimed rows. Raises
    ValueError for a queryset that an UPDATE cannot repeat."""
    query = queryset.query.clone()
    query.get_initial_alias()
    if query.is_sliced or query.distinct or query.group_by is not None:
        raise ValueError("a claim needs a queryset without slice, distinct or aggregation")
    if query.count_active_tables() != 1:
        raise ValueError("a claim's queryset may filter on columns of its own table only")
    is_free = Q(**{f"{until}__lte": Now()})
    if queryset.model._meta.get_field(until).null:
        is_free |= Q(**{f"{until}__isnull": True})
    new_claim = Claim(uuid.uuid4().hex, [], datetime.now(UTC))
    end = Now() + timedelta(seconds=lease)
    values = {**changes, "claimed_by": new_claim.token, until: end}
    return queryset.filter(is_free), new_claim, values


def _update_free(
    free: QuerySet[Any], ids: Sequence[Any], values: Mapping[str, Any], using: str
) -> int:
    """Claim the free rows among `ids`; their number. Rows that another transaction keeps locked are
    passed over."""
    rows = free.filter(pk__in=ids)
    if not _is_passing(free.model):
        try:
            with transactions.waiting_once():
                return update_by_key(rows, values, using)
        except OperationalError as error:
            if not transactions.is_of_lock(error) or connections[using].in_atomic_block:
                raise
        passing_until[free.model._meta.db_table] = time.monotonic() + _PASS_SECONDS

    def update_unlocked() -> int:
        with transaction.atomic(using):
            free_rows = rows.using(using).order_by().select_for_update(skip_locked=True)
            free_ids = list(free_rows.values_list("pk", flat=True))
            if not free_ids:
                return 0
            return update_by_key(free.filter(pk__in=free_ids), values, using)

    return transactions.retrying(update_unlocked, using)


def _is_passing(model: type[models.Model]) -> bool:
    return time.monotonic() < passing_until.get(model._meta.db_table, 0.0)


def _take(
    new_claim: Claim,
    free: QuerySet[Any],
    ids: Sequence[Any],
    values: Mapping[str, Any],
    until: str,
    read: Sequence[str] = (),
) -> None:
    """Claim the free rows among `ids`, and add the rows that carry the claim's token then.

    If the UPDATE changed all rows, one row is enough to read the end of the lease. An UPDATE that
    was repeated after a lost connection reports too few rows: then all rows are read.
    """
    using = free.db
    all_won = _update_free(free, ids, values, using) == len(ids) and not read
    ids_to_read = ids[:1] if all_won else ids
    rows = free.model._base_manager.using(using)
    rows = rows.filter(pk__in=ids_to_read, claimed_by=new_claim.token)
    read_rows: list[Any] = transactions.retrying(
        partial(list, rows.values_list("pk", until, *read)), using
    )
    own_rows = {row[0]: row[1:] for row in read_rows}
    if own_rows:
        earliest = min(row[0] for row in own_rows.values())
        new_claim.lease_until = min(earliest, new_claim.lease_until) if new_claim.ids else earliest
        new_claim.ids += ids if all_won else [row_id for row_id in ids if row_id in own_rows]
        if read:
            new_claim.read.update((row_id, row[1:]) for row_id, row in own_rows.items())


def _update_claimed(
    model: type[models.Model], claim: Claim, values: Mapping[str, Any], using: str
) -> int:
    rows = model._base_manager.using(using).filter(claimed_by=claim.token)
    return sum(
        update_by_key(rows.filter(pk__in=ids), values, using) for ids in chunks(claim.ids, CHUNK)
    )


def update_by_key(
    queryset: QuerySet[Any], values: Mapping[str, Any], using: str | None = None
) -> int:
    """UPDATE by primary key; returns the number of rows. The queryset names up to CHUNK keys and
    may add conditions on columns of its own table.

    Without the hint SQLite takes the index on (state, time) and reads the whole backlog. MariaDB
    takes that index when few rows are free, that is under contention: its locks then have another
    order than locks by primary key, which can deadlock.
    """
    database = using or router.db_for_write(queryset.model)
    query = cast(UpdateQuery, queryset.order_by().query.chain(UpdateQuery))
    query.add_update_values(dict(values))
    try:
        statement, parameters = query.get_compiler(database).as_sql()
    except EmptyResultSet:  # the queryset names no key
        return 0
    table = connections[database].ops.quote_name(queryset.model._meta.db_table)
    hint = by_primary_key(queryset.model._meta.db_table, database)
    statement = statement.replace(f"{table} SET", f"{table} {hint} SET", 1)

    def execute() -> int:
        with (
            transaction.mark_for_rollback_on_error(database),
            connections[database].cursor() as cursor,
        ):
            cursor.execute(statement, parameters)
            return int(cursor.rowcount)

    return transactions.retrying(execute, database)


@lru_cache(maxsize=256)
def by_primary_key(table: str, using: str = "default") -> str:
    """The hint after the table's name for finding rows by primary key."""
    return engines.of(using).by_primary_key(connections[using], table)
