"""What a policy would do, before it does it: a mapped sample, and a dry run against the CRM.

Both read the newest rows of the source. Nothing is stored and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from crmsync.adapters.base import CRMAdapter, Stored
from crmsync.adapters.records import is_same_value
from crmsync.directory import Policy
from crmsync.poller.policy_poll import described
from crmsync.poller.reading.database import Database
from crmsync.poller.reading.horizon import Bound
from crmsync.poller.reading.increment import Increment, Row
from crmsync.poller.reading.source import Source
from crmsync.poller.reading.table import inspect
from crmsync.poller.requests import wanted
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import Permanent

SAMPLE, DRY_RUN = 5, 100
# Rows that are read when a policy carries only those of a system or of some APPKEYs.
_LOOKED_AT = 1_000

Fate = Literal["create", "change", "delete", "same", "refused"]


class NotReady(Permanent):
    """The CRM does not take what the mapping sends; the message says why."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A row and what the mapping makes of it. With a `problem`, `field` is the field at fault."""

    key: str
    time: str
    deleted: bool
    fields: dict[str, Any]
    problem: str = ""
    field: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What would become of a row. `changes` are (field, as the CRM has it, as it would be)."""

    row: Mapped
    fate: Fate
    remote_id: str = ""
    changes: Sequence[tuple[str, Any, Any]] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the test of a source found. `bounded_by`: why reading misses what is committed late, ''
    where it misses nothing."""

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
    return _mapped(policy, SAMPLE)


def dry_run(policy: Policy, adapter: CRMAdapter) -> list[Outcome]:
    """What a run would do to the newest rows, by what the CRM holds now.

    Raises NotReady, Unavailable and CredentialsRefused of the CRM, and what `examine` raises.
    """
    # First: with wrong credentials or fields every row would fail for the same reason.
    checked = adapter.check(policy.mapping.fields)
    if not checked.is_usable:
        raise NotReady(checked.message)
    rows = _mapped(policy, DRY_RUN)
    held: dict[str, Stored] = {}
    for keys in chunks([row.key for row in rows if not row.problem], adapter.batch_size):
        held.update(adapter.read(keys))
    return [_outcome(row, held.get(row.key)) for row in rows]


def _outcome(row: Mapped, held: Stored | None) -> Outcome:
    if row.problem:
        return Outcome(row, "refused")
    # A deleted record is created anew, unless the row is deleted too.
    if held is None or held.deleted:
        return Outcome(row, "same" if row.deleted else "create")
    if row.deleted:
        return Outcome(row, "delete", held.remote_id)
    changes = tuple(
        (name, held.fields.get(name), value)
        for name, value in row.fields.items()
        if not is_same_value(value, held.fields.get(name))
    )
    return Outcome(row, "change" if changes else "same", held.remote_id, changes)


def _mapped(policy: Policy, limit: int) -> list[Mapped]:
    # Rows of other systems and pages are left out afterwards: read more to find enough.
    is_chosen = policy.biz_id is not None or policy.appkeys
    rows = _newest(described(policy.source), _LOOKED_AT if is_chosen else limit)
    # Requests have no times.
    times = {str(row.key): row.time for row in rows}
    return [
        Mapped(
            each.request.key, times[each.key], each.request.deleted, dict(each.request.fields),
            str(each.problem or ""), each.problem.field if each.problem else "",
        )
        for each in wanted(policy, rows, 0)[:limit]
    ]  # fmt: skip


def _newest(source: Source, limit: int) -> list[Row]:
    """The newest rows, the newest first. Without the horizon: what is missed here is no harm."""
    database = Database(source)
    index = inspect(source, database).index
    columns, quote = source.columns, database.quote
    deleted = f"COALESCE({quote(columns.is_deleted)}, 0)" if columns.is_deleted else "0"
    listed = ", ".join(map(quote, (columns.key, columns.update_time, *columns.values)))
    force = f"FORCE INDEX ({quote(index)})" if index and database.is_mysql else ""
    order = f"{quote(columns.update_time)} DESC, {quote(columns.key)} DESC"
    statement = (
        f"SELECT {deleted}, {listed} FROM {quote(source.table)} {force} "  # noqa: S608 - quoted
        f"ORDER BY {order} LIMIT {limit:d}"
    )
    return [
        Row(key, str(time), bool(is_deleted), 0, dict(zip(columns.values, values, strict=True)))
        for is_deleted, key, time, *values in database.rows(statement)
    ]
