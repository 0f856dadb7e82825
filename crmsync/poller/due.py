"""Claim records that are due: waiting ones, failed ones, and those whose lease is over.

    waiting, retry ── next_at is reached ──> queued, with a new claim and lease
    any of these   ── its newest version is a removal ──> held, until the guard lets it go
    queued ── the lease is over: its handler died, or hangs ──> queued, looked up before it is sent
    any state ── its operation cannot be read any more, or its values were erased ──> dead

Only the poller that holds the policy claims its records.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db import connection
from django.db.models import Case, F, Value, When

from crmsync import orders
from crmsync.models import Operation, Policy, Record, RecoveryEntry
from crmsync.models.operations import ERASED, UNKNOWN
from crmsync.monitor import counters, failures
from crmsync.operations import add_endings
from crmsync.orders import Entry, Request
from msgplatform.core import logging
from msgplatform.core.data import claims, sql, transactions

log = logging.get(__name__)

# Each operation is read as a whole: records of many operations are claimed in several passes.
_MAX_OPERATIONS = 20
_State, _Removal = Record.State, Record.Removal
# Records that were sent before come first: otherwise they would wait for the end of a resend.
_CLAIM_ORDER = (_State.QUEUED, _State.RETRY, _State.WAITING)
_LOST = "fault"  # the error class of records whose operation is gone
_REASONS = {
    _LOST: "The operation of this record can no longer be read. "
    "Run: manage.py sync_recover --operation {operation}",
    ERASED: "The values of this record were erased: there is nothing to send.",
}
_COLUMNS = (
    "id", "key", "state", "operation_id", "sending_operation", "remote_id", "attempt",
    "error_class", "version", "digest", "sent_digest", "removal",
)  # fmt: skip
# A record in flight may have been stored.
_UNKNOWN_IF_QUEUED = Case(When(state=_State.QUEUED, then=Value(UNKNOWN)), default=F("error_class"))


class Due(msgspec.Struct):
    """Records that now carry `claim` until `lease_until`, with their requests; `held` is the number
    of others, which are removals."""

    entries: list[Entry]
    claim: str
    lease_until: float
    held: int = 0


def is_due(policy_id: int, now: datetime) -> bool:
    """True if a record is due; one index dive for each state, in one statement."""
    table, moment = Record._meta.db_table, sql.stored(now)
    clause = f"EXISTS (SELECT 1 FROM {table} WHERE policy_id = %s AND state = %s AND next_at <= %s)"  # noqa: S608
    parameters = [(policy_id, int(state), moment) for state in Record.DUE]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT " + " OR ".join([clause] * len(parameters)),
            [value for values in parameters for value in values],
        )
        return bool(cursor.fetchone()[0])


@transactions.repeatable
def claim(policy: Policy, crm_id: int, limit: int) -> Due:
    """Claim up to `limit` due records, with their requests."""
    now = sql.now()
    lease = now + timedelta(seconds=settings.CRM_LEASE_SECONDS)
    due = Due([], uuid.uuid4().hex, lease.timestamp())
    candidates: list[dict[str, Any]] = []
    for state in _CLAIM_ORDER:
        if len(candidates) < limit:
            records = Record.objects.select_for_update().filter(
                policy_id=policy.id, state=state, next_at__lte=now
            )
            in_order = records.order_by("next_at", "id")
            candidates += in_order.values(*_COLUMNS)[: limit - len(candidates)]
    unique_ids = dict.fromkeys(row["operation_id"] for row in candidates)
    operation_ids = list(unique_ids)[:_MAX_OPERATIONS]
    rows = [row for row in candidates if row["operation_id"] in operation_ids]
    if not rows:
        return due
    end_counts = Counter(
        (row["sending_operation"], "replaced")
        for row in rows
        if row["sending_operation"] not in (0, row["operation_id"])
    )
    held_ids = [row["id"] for row in rows if row["removal"] == _Removal.PENDING]
    due.held = len(held_ids)
    if held_ids:
        claims.update_by_key(
            Record.objects.filter(pk__in=held_ids),
            {
                "error_class": _UNKNOWN_IF_QUEUED, "state": _State.HELD, "next_at": now,
                "claimed_by": "", "sending_operation": 0, "updated_at": now,
            },
        )  # fmt: skip
    due_rows = [row for row in rows if row["removal"] != _Removal.PENDING]
    requests = _requests(policy, due_rows)
    unsendable: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in due_rows:
        operation = row["operation_id"]
        request = requests.get((operation, row["key"]))
        if request is None or request.erased:
            unsendable[_LOST if request is None else ERASED].append(row)
            continue
        # A newer version with the same values has no request of its own: it uses this request.
        request = msgspec.structs.replace(request, version=row["version"])
        # After an expired lease the record may have been sent, with an unknown outcome.
        has_expired = row["state"] == _State.QUEUED
        check = has_expired or row["error_class"] == UNKNOWN
        due.entries.append(
            Entry(row["id"], operation, request, row["remote_id"], row["attempt"], check)
        )
    if due_rows:
        claims.update_by_key(
            Record.objects.filter(pk__in=[row["id"] for row in due_rows]),
            {
                "error_class": _UNKNOWN_IF_QUEUED, "state": _State.QUEUED,
                "sending_operation": F("operation_id"), "claimed_by": due.claim, "room": "",
                "next_at": lease, "updated_at": now,
            },
        )  # fmt: skip
    # In one order: the failure groups that are counted are locked, and pollers share them.
    for error in (_LOST, ERASED):
        if dead_rows := unsendable[error]:
            _mark_dead(policy, crm_id, dead_rows, error, now, end_counts)
    add_endings(end_counts, now)
    return due


def _requests(policy: Policy, rows: Sequence[Mapping[str, Any]]) -> dict[tuple[int, str], Request]:
    """Requests by operation and the source's key. A request is left out if its digest differs from
    its record's, because its values must not be sent. Erased requests stay."""
    keys = {(row["operation_id"], policy.key_prefix + row["key"]): row["key"] for row in rows}
    by_operation = {}
    operations = Operation.objects.filter(id__in={operation for operation, _ in keys})
    for operation, data in operations.values_list("id", "data"):
        for request in orders.load_readable(operation, bytes(data)):
            if key := keys.get((operation, request.key)):
                by_operation[operation, key] = request
    digests = {(row["operation_id"], row["key"]): row["digest"] for row in rows}
    return {
        key: request
        for key, request in by_operation.items()
        if request.erased or orders.digest(request) == digests[key]
    }


def _mark_dead(
    policy: Policy,
    crm_id: int,
    rows: Sequence[Mapping[str, Any]],
    error: str,
    now: datetime,
    end_counts: Counter[tuple[int, str]],
) -> None:
    """Mark records as dead whose values were erased, or whose operation is gone or cannot be read:
    `sync_recover` can restore that from Redis."""
    row_ids = [row["id"] for row in rows]
    # Records that may be stored are looked up before they are sent: the lease has marked them.
    may_be_stored = When(error_class=UNKNOWN, then=Value(UNKNOWN))
    Record.objects.filter(pk__in=row_ids).update(
        state=_State.DEAD, next_at=None, claimed_by="", sending_operation=0,
        error_class=Case(may_be_stored, default=Value(error)),
    )  # fmt: skip
    entries = [
        RecoveryEntry(
            policy_id=policy.id, operation_id=row["operation_id"], record_id=row["id"],
            key=row["key"], version=row["version"], error_class=error,
            reason=_REASONS[error].format(operation=row["operation_id"]), attempts=row["attempt"],
        )
        for row in rows
    ]  # fmt: skip
    failures.open_entries(crm_id, entries, now)
    for row in rows:
        end_counts[row["operation_id"], "dead"] += 1
    counters.add(Counter({(policy.id, counters.DEAD): len(rows)}), now)
