"""The Agent's statements on the business system's tables.

The Agent keeps no position: it finds every due row, so a row that commits late under a lower id is
found too. Every change is fenced by the claim's token: an Agent whose lease is over changes
nothing.
Statements find rows by primary key only, with a hint on MySQL: a statement that scanned the table
would wait for rows that a producer has inserted and not yet committed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from django.db import OperationalError, ProgrammingError, connections, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from msgplatform.core.data import chunks, claims, databases, engines, transactions
from msgplatform.core.data.engines.contract import Fault
from msgplatform.core.errors import LeaseLost, Unavailable
from msgplatform.core.failpoints import failpoint
from notify.agent.models import Outbox

ALIAS = "outbox"
MAX_COUNTED = 20_000  # rows of a table
_TEXT_LENGTH = 500  # of last_error and reason
_MAX_PAGES = 20  # of a claim; more than one only beside locked rows
_REPAIRS = {
    Fault.NO_TABLE: "the database has no table outbox: load notify/agent/ddl/mysql.sql or "
    "sqlite.sql, or migrate the Django app notify.agent",
    Fault.LOG_FORMAT: "the server's binlog_format is STATEMENT: set ROW or MIXED",
}


class Due(msgspec.Struct, frozen=True):
    """A claimed row before its content is read. `size`: bytes of the payload."""

    id: int
    size: int
    attempts: int


class Event(msgspec.Struct, frozen=True):
    """A claimed row. Bytes, because SQLite's text may be anything."""

    id: int
    msg_key: bytes
    event_type: bytes
    channel: bytes
    payload: bytes
    traceparent: bytes


class Refusal(msgspec.Struct, frozen=True):
    """The reason why a row is never accepted; `code` is invalid, conflict or too_large."""

    code: str
    reason: str


class Measure(msgspec.Struct, frozen=True):
    """The fill of the tables; `oldest` is the age in seconds of the oldest row."""

    pending: int
    oldest: float
    dead: int


def add_database(url: str, alias: str = ALIAS) -> str:
    """Make the business system's database known to Django as `alias`, and return that.

    Opens no connection. Raises InvalidInput with a sentence that does not repeat the URL, which
    may hold a password.
    """
    return databases.add(alias, databases.for_writing(url))


class Store:
    """The tables of the connection `alias`."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def claim(self, limit: int, lease: float) -> claims.Claim:
        """Claim up to `limit` due rows for `lease` seconds, lowest id first. Raises Unavailable."""
        due = Outbox._default_manager.using(self.alias).order_by("id")
        with _setup_needed():
            return transactions.retrying(partial(self._claim, due, limit, lease), self.alias)

    def due(self, claim: claims.Claim) -> list[Due]:
        """Size and attempts of the claimed rows, before their content is read, in the claim's
        order."""
        length = f"LENGTH(CAST(payload AS {engines.of(self.alias).bytes_type}))"
        return [Due(*row) for row in self._rows(f"id, {length}, attempts", claim, claim.ids)]

    def read(self, claim: claims.Claim, ids: Sequence[int]) -> list[Event]:
        """The rows of `ids` that still carry the claim."""
        names = ("msg_key", "event_type", "channel", "payload", "traceparent")
        bytes_type = engines.of(self.alias).bytes_type
        columns = ", ".join(f"CAST({name} AS {bytes_type})" for name in names)
        return [Event(*row) for row in self._rows(f"id, {columns}", claim, ids)]

    def settle(
        self, claim: claims.Claim, delivered_ids: Sequence[int], refusals: Mapping[int, Refusal]
    ) -> int:
        """Delete rows that the intake has, move refused rows to outbox_dead, in one transaction.

        Only rows that still carry the claim change; returns the number of these rows.
        """
        return transactions.retrying(
            partial(self._settle, claim, delivered_ids, refusals), self.alias
        )

    def release(
        self,
        claim: claims.Claim,
        ids: Sequence[int],
        seconds: float = 0.0,
        error: str = "",
        counts_attempt: bool = False,
    ) -> int:
        """Give rows back, due again in `seconds`. With `counts_attempt` each row has one attempt
        more."""
        values: dict[str, Any] = {"next_at": Now() + timedelta(seconds=seconds)}
        if error:
            values["last_error"] = error[:_TEXT_LENGTH]
        if counts_attempt:
            values["attempts"] = F("attempts") + 1

        def release() -> int:
            with transaction.atomic(using=self.alias), connections[self.alias].cursor() as cursor:
                # Release the unlocked rows of the claim. The other rows stay claimed.
                unlocked_ids = self._lock_rows(cursor, claim, ids)
                part = claims.Claim(claim.token, unlocked_ids, claim.lease_until)
                return claims.release(Outbox, part, values, until="next_at", using=self.alias)

        return transactions.retrying(release, self.alias)

    def measure(self) -> Measure:
        """Count waiting rows up to MAX_COUNTED, and find the oldest among these: after a long
        outage a scan of millions of rows would keep the Agent from relaying. A row that waits for
        the time that its publisher set has no age.

        Raises Unavailable when there are no tables.
        """
        with _setup_needed(), connections[self.alias].cursor() as cursor:
            engine = engines.of(self.alias)
            age = engine.age("MIN(created_at)")  # the database wrote `created_at`
            is_scheduled = (
                f"next_at > {engine.now()} AND claimed_by = '' AND attempts = 0 AND last_error = ''"
            )
            rows_sql = (
                f"SELECT CASE WHEN {is_scheduled} THEN NULL ELSE created_at END AS created_at "  # noqa: S608
                f"FROM outbox ORDER BY id LIMIT {MAX_COUNTED}"
            )
            cursor.execute(f"SELECT COUNT(*), {age} FROM ({rows_sql}) AS first_rows", ())  # noqa: S608
            pending, oldest = cursor.fetchone()
            dead_ids = f"SELECT id FROM outbox_dead LIMIT {MAX_COUNTED}"  # noqa: S608
            cursor.execute(f"SELECT COUNT(*) FROM ({dead_ids}) AS some_rows")  # noqa: S608
            (dead,) = cursor.fetchone()
        return Measure(pending, max(0.0, float(oldest or 0)), dead)

    def close(self) -> None:
        """Close this thread's connection."""
        connections[self.alias].close()

    # -- statements ------------------------------------------------------------------------------
    def _claim(self, due: QuerySet[Outbox], limit: int, lease: float) -> claims.Claim:
        """Claim due rows. Rows that the business system's transactions have locked are skipped,
        up to _MAX_PAGES pages of these."""
        rows = due.filter(next_at__lte=Now())
        with transaction.atomic(using=self.alias):
            free_rows = rows.select_for_update(skip_locked=True)
            free_ids: list[int] = []
            following_rows = rows
            for _ in range(_MAX_PAGES):
                page_size = limit - len(free_ids)
                ids = list(following_rows.values_list("id", flat=True)[:page_size])
                for chunk in chunks(ids, claims.CHUNK):
                    free_ids += free_rows.filter(id__in=chunk).values_list("id", flat=True)
                if len(ids) < page_size or len(free_ids) == limit:
                    break
                following_rows = rows.filter(id__gt=ids[-1])
            return claims.claim_ids(rows, free_ids, lease=lease, until="next_at")

    def _lock_rows(self, cursor: Any, claim: claims.Claim, ids: Sequence[int]) -> list[int]:
        """Lock the rows of `ids` that still carry the claim and are not locked; returns their ids.
        The other rows are sent again after their lease, and the intake knows their keys."""
        hint, lock = claims.by_primary_key("outbox", self.alias), engines.of(self.alias).skip_locked
        unlocked_ids: list[int] = []
        for condition, parameters in _claimed_conditions(claim, ids):
            cursor.execute(
                f"SELECT id FROM outbox {hint} WHERE {condition} ORDER BY id {lock}",  # noqa: S608
                parameters,
            )
            unlocked_ids += [row_id for (row_id,) in cursor.fetchall()]
        return unlocked_ids

    def _rows(self, columns: str, claim: claims.Claim, ids: Sequence[int]) -> list[Any]:
        def select() -> list[Any]:
            rows: list[Any] = []
            with connections[self.alias].cursor() as cursor:
                for condition, parameters in _claimed_conditions(claim, ids):
                    cursor.execute(
                        f"SELECT {columns} FROM outbox WHERE {condition} ORDER BY id",  # noqa: S608
                        parameters,
                    )
                    rows += cursor.fetchall()
            return rows

        return transactions.retrying(select, self.alias)

    def _settle(
        self, claim: claims.Claim, delivered_ids: Sequence[int], refusals: Mapping[int, Refusal]
    ) -> int:
        columns = "msg_key, event_type, channel, payload, created_at, attempts"
        with transaction.atomic(using=self.alias), connections[self.alias].cursor() as cursor:
            refused_ids = self._lock_rows(cursor, claim, list(refusals))
            delivered_ids = self._lock_rows(cursor, claim, delivered_ids)
            # One statement for all rows that were refused for the same reason.
            ids_by_refusal: dict[Refusal, list[int]] = {}
            for row_id in refused_ids:
                ids_by_refusal.setdefault(refusals[row_id], []).append(row_id)
            moved_count = 0
            for refusal, ids in ids_by_refusal.items():
                reason = (refusal.code[:32], refusal.reason[:_TEXT_LENGTH])
                for condition, parameters in _claimed_conditions(claim, ids):
                    cursor.execute(
                        f"INSERT INTO outbox_dead ({columns}, code, reason) "  # noqa: S608
                        f"SELECT {columns}, %s, %s FROM outbox WHERE {condition}",
                        (*reason, *parameters),
                    )
                    moved_count += cursor.rowcount
            failpoint("agent_dead_before_commit")
            deleted_count = self._delete(cursor, claim, refused_ids)
            if moved_count != deleted_count:  # overtaken between the two: the new owner decides
                raise LeaseLost("the lease ended while refused rows were moved")
            return deleted_count + self._delete(cursor, claim, delivered_ids)

    def _delete(self, cursor: Any, claim: claims.Claim, ids: Sequence[int]) -> int:
        delete_sql = engines.of(self.alias).delete_by_key("outbox")
        deleted_count = 0
        for condition, parameters in _claimed_conditions(claim, ids):
            cursor.execute(f"{delete_sql} WHERE {condition}", parameters)
            deleted_count += cursor.rowcount
        return deleted_count


@contextmanager
def _setup_needed() -> Iterator[None]:
    """Raise Unavailable when the tables do not exist, or the server refuses the Agent's changes:
    the Agent waits, as for a database."""
    try:
        yield
    except (ProgrammingError, OperationalError) as error:
        if repair := _REPAIRS.get(engines.fault(error)):
            raise Unavailable(repair) from error
        raise


def _claimed_conditions(claim: claims.Claim, ids: Sequence[int]) -> Iterator[tuple[str, list[Any]]]:
    """Yield SQL conditions: rows of a chunk of `ids`, found by key, that still carry the claim."""
    for chunk in chunks(ids, claims.CHUNK):
        marks = ", ".join(["%s"] * len(chunk))
        yield f"id IN ({marks}) AND claimed_by = %s", [*chunk, claim.token]
