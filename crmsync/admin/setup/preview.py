"""Preview of a policy: a mapped sample, and a dry run against the CRM.

Both read the newest rows of the source. Nothing is stored and nothing is sent.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

import msgspec

from crmsync.adapters.base import CRMAdapter, Stored
from crmsync.adapters.records import is_same_value
from crmsync.directory import Policy
from crmsync.poller.policy_poll import source_from_row
from crmsync.poller.reading.database import Database, inspect
from crmsync.poller.reading.horizon import Bound
from crmsync.poller.reading.increment import Increment, Row
from crmsync.poller.reading.source import Source
from crmsync.poller.requests import make_requests
from msgplatform.core.data import chunks
from msgplatform.core.errors import Permanent

SAMPLE, DRY_RUN = 5, 100
# Rows that are read when a policy carries only those of a system or of some APPKEYs.
_LOOKED_AT = 1_000

Fate = Literal["create", "change", "delete", "same", "refused"]


class NotReady(Permanent):
    """The CRM does not take the fields of the mapping; the message says why."""


class Mapped(msgspec.Struct, frozen=True):
    """A row with its mapped fields. With a `problem`, `field` is the field at fault."""

    key: str
    time: str
    deleted: bool
    fields: dict[str, Any]
    problem: str = ""
    field: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """The effect on a row. `changes` are (field, the CRM's value, the new value)."""

    row: Mapped
    fate: Fate
    remote_id: str = ""
    changes: Sequence[tuple[str, Any, Any]] = ()


class Facts(msgspec.Struct, frozen=True):
    """The result of testing a source. `bounded_by`: the reason why reading misses rows that are
    committed late, '' where it misses none."""

    bounded_by: Bound
    behind: timedelta
    is_indexed: bool
    is_empty: bool
    without_time: int


def examine(source: Source) -> Facts:
    """Read one row as the poller does. Raises SourceUnavailable, SourceRefused, SourceMismatch,
    InvalidInput."""
    increment = Increment(source)
    page = increment.read(None, 1)
    facts = page.facts
    is_empty = not (page.rows or facts.waiting or facts.without_time)
    return Facts(facts.bounded_by, facts.age, increment.is_indexed, is_empty, facts.without_time)


def sample(policy: Policy) -> list[Mapped]:
    """The newest rows, mapped. Raises what `examine` raises."""
    return _map_rows(policy, SAMPLE)


def dry_run(policy: Policy, adapter: CRMAdapter) -> list[Outcome]:
    """The effect of a run on the newest rows, compared with the records in the CRM.

    Raises NotReady, Unavailable and CredentialsRefused of the CRM, and what `examine` raises.
    """
    # Check the CRM first: with wrong credentials or fields every row fails for the same reason.
    result = adapter.check(policy.mapping.fields)
    if not result.is_usable:
        raise NotReady(result.message)
    rows = _map_rows(policy, DRY_RUN)
    crm_records: dict[str, Stored] = {}
    for keys in chunks([row.key for row in rows if not row.problem], adapter.batch_size):
        crm_records.update(adapter.read(keys))
    return [_outcome(row, crm_records.get(row.key)) for row in rows]


def _outcome(row: Mapped, crm_record: Stored | None) -> Outcome:
    if row.problem:
        return Outcome(row, "refused")
    # The CRM has no live record: create one, unless the row is deleted too.
    if crm_record is None or crm_record.deleted:
        return Outcome(row, "same" if row.deleted else "create")
    if row.deleted:
        return Outcome(row, "delete", crm_record.remote_id)
    changes = tuple(
        (name, crm_record.fields.get(name), value)
        for name, value in row.fields.items()
        if not is_same_value(value, crm_record.fields.get(name))
    )
    return Outcome(row, "change" if changes else "same", crm_record.remote_id, changes)


def _map_rows(policy: Policy, limit: int) -> list[Mapped]:
    # Read more rows than `limit`: rows of other systems and pages are left out below.
    is_chosen = policy.biz_id is not None or policy.appkeys
    rows = _newest(source_from_row(policy.source), _LOOKED_AT if is_chosen else limit)
    # A request has no time: take the row's time.
    times = {str(row.key): row.time for row in rows}
    row_requests = [request for request in make_requests(policy, rows, 0) if not request.is_outside]
    return [
        Mapped(
            each.request.key, times[each.key], each.request.deleted, dict(each.request.fields),
            str(each.problem or ""), each.problem.field if each.problem else "",
        )
        for each in row_requests[:limit]
    ]  # fmt: skip


def _newest(source: Source, limit: int) -> list[Row]:
    """The newest rows, newest first. Read without the horizon: a missed row does no harm."""
    database = Database(source)
    index = inspect(source, database).index
    columns, quote = source.columns, database.quote
    deleted_column = f"COALESCE({quote(columns.is_deleted)}, 0)" if columns.is_deleted else "0"
    column_list = ", ".join(map(quote, (columns.key, columns.update_time, *columns.values)))
    engine = database.engine
    force = engine.force_index(quote(index)) if index and engine.is_server else ""
    order = f"{quote(columns.update_time)} DESC, {quote(columns.key)} DESC"
    statement = (
        f"SELECT {deleted_column}, {column_list} FROM {quote(source.table)} {force} "  # noqa: S608 - quoted
        f"ORDER BY {order} LIMIT {limit:d}"
    )
    return [
        Row(key, str(time), bool(is_deleted), 0, dict(zip(columns.values, values, strict=True)))
        for is_deleted, key, time, *values in database.rows(statement)
    ]
