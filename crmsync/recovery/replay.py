"""Replay operations: send their records once more, in the newest version that is known.

A database that was restored from an older backup has lost operations and records. They are made
anew from the copies of operations in Redis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from crmsync import orders
from crmsync.models import Operation, Policy, Record
from crmsync.models.operations import UNKNOWN
from crmsync.operations import add_endings
from crmsync.orders import Request
from crmsync.recovery import entries
from crmsync.recovery.operation_finder import KnownOperation, OperationFinder
from msgplatform.core.data import claims, ids, sql, transactions
from msgplatform.core.errors import Unavailable

_State = Record.State
_COLUMNS = tuple(column.attname for column in Record._meta.fields)


class ReplayCounts(msgspec.Struct):
    """The numbers of operations and records that a replay sent or left alone, by reason."""

    operations: int = 0
    operations_from_redis: int = 0
    operations_without_policy: int = 0  # the policy is deleted: nothing is sent
    sent: int = 0
    recreated: int = 0  # part of `sent`: missing in the database, or older there
    left_in_flight: int = 0
    left_dismissed: int = 0
    left_changed: int = 0  # changed after the replay began
    left_erased: int = 0  # their values are erased: nothing is sent

    def add(self, other: ReplayCounts) -> None:
        for name, count in msgspec.structs.asdict(other).items():
            setattr(self, name, getattr(self, name) + count)


def replay(
    operation: KnownOperation, started_at: datetime, by: str, dry_run: bool = False
) -> ReplayCounts:
    """Send the operation's records once more, each in the newest version that is known.

    A record that changed after `started_at` stays as it is, so that one replay of many operations
    sends it once. A record that is older than the operation is sent all the same.
    """
    policy = Policy.objects.filter(pk=operation.policy_id).first()
    if policy is None:
        from_redis = int(not operation.is_stored)
        return ReplayCounts(1, from_redis, operations_without_policy=1)
    newest = _newest(operation, policy)
    records = Record.objects.filter(policy_id=policy.pk, key__in=list(newest))
    if dry_run:
        return _plan(operation, newest, list(records), started_at).counts()
    # Ids are reserved before the transaction, which may be repeated.
    missing = len(newest) - records.count()
    block = ids.reserve(missing) if missing else None
    return _replay(operation, block, started_at, by)


def _newest(operation: KnownOperation, policy: Policy) -> dict[str, Request]:
    """The newest request of each record, by the source's key."""
    newest: dict[str, Request] = {}
    for request in operation.requests:
        key = request.key.removeprefix(policy.key_prefix)
        if request.version > newest.setdefault(key, request).version:
            newest[key] = request
    return newest


class _Plan(msgspec.Struct):
    """The records of an operation, by what a replay does with them. `new`: made for requests
    without a record. `older`: behind the operation. These two and `to_resend` are sent. The others
    are left alone."""

    operation: KnownOperation
    newest: Mapping[str, Request]
    new: list[Record] = msgspec.field(default_factory=list)
    older: list[Record] = msgspec.field(default_factory=list)
    to_resend: list[Record] = msgspec.field(default_factory=list)
    in_flight: list[Record] = msgspec.field(default_factory=list)
    dismissed: list[Record] = msgspec.field(default_factory=list)
    changed: list[Record] = msgspec.field(default_factory=list)
    erased: list[str] = msgspec.field(default_factory=list)  # keys

    def counts(self) -> ReplayCounts:
        recreated_count = len(self.new) + len(self.older)
        return ReplayCounts(
            operations=1,
            operations_from_redis=int(not self.operation.is_stored),
            sent=recreated_count + len(self.to_resend),
            recreated=recreated_count,
            left_in_flight=len(self.in_flight),
            left_dismissed=len(self.dismissed),
            left_changed=len(self.changed),
            left_erased=len(self.erased),
        )


def _plan(
    operation: KnownOperation,
    newest: Mapping[str, Request],
    records: Sequence[Record],
    started_at: datetime,
) -> _Plan:
    plan = _Plan(operation, newest)
    plan.erased = [key for key, request in newest.items() if request.erased]
    for record in records:
        request = newest[record.key]
        if request.erased:
            continue
        if record.state == _State.QUEUED:
            plan.in_flight.append(record)
        # Records behind the operation are sent also if they were dismissed or changed since.
        elif _is_behind(record, operation, request):
            plan.older.append(record)
        elif record.state == _State.DISMISSED:
            plan.dismissed.append(record)
        elif record.updated_at > started_at:
            plan.changed.append(record)
        else:
            plan.to_resend.append(record)
    # Make records that the database has lost anew, from version 0.
    stored_keys = {record.key for record in records}
    plan.new = [
        Record(policy_id=operation.policy_id, key=key, version=0, sent_version=0)
        for key, request in newest.items()
        if key not in stored_keys and _is_sendable(request)
    ]
    return plan


def _is_behind(record: Record, operation: KnownOperation, request: Request) -> bool:
    """True if the operation's request is newer than the record and can be sent. Of two requests for
    one version the later operation's is newer: a correction, or another mapping."""
    pair = record.version, record.operation_id
    return pair < (request.version, operation.id) and _is_sendable(request)


def _is_sendable(request: Request) -> bool:
    """True if the mapping made this request. A refused row has nothing to send: the next comparison
    finds it behind and reads it again."""
    return not request.erased and (request.deleted or bool(request.fields))


@transactions.repeatable
def _replay(
    operation: KnownOperation, block: ids.Block | None, started_at: datetime, by: str
) -> ReplayCounts:
    # This lock keeps apart this transaction, an erasure, and a poller that stores rows.
    policy = Policy.objects.select_for_update().get(pk=operation.policy_id)
    # Values may have been erased since the operation was read.
    finder = OperationFinder()
    present = next(finder.by_ids([operation.id]), None)
    if present is None and finder.problem:  # only Redis may have it
        raise Unavailable(finder.problem)
    operation = present or msgspec.structs.replace(operation, requests=[])
    newest = _newest(operation, policy)
    rows = Record.objects.select_for_update().filter(policy_id=operation.policy_id)
    records = list(rows.filter(key__in=list(newest)).order_by("id"))
    plan = _plan(operation, newest, records, started_at)
    if block:
        buckets = [ids.bucket(operation.policy_id, record.key) for record in plan.new]
        for record, record_id in zip(plan.new, block.ids(buckets), strict=True):
            record.pk = record_id
    now = sql.now()
    # The backup does not know whether the CRM has confirmed a record, and in which version. A
    # record without a remote id is looked up if a call may not be repeated. An HTTP interface
    # without a reading call cannot look up: all its records would be dead.
    can_look_up = policy.crm.adapter != "http" or bool(policy.crm.settings.get("read"))
    unsure_class = UNKNOWN if can_look_up else ""
    _take_over(plan, now, by, unsure_class)
    if not operation.is_stored:
        # The database has lost the operation. It is open for records that wait; other records
        # have a newer version or have ended.
        waiting = [*plan.new, *plan.older, *plan.in_flight, *plan.to_resend]
        own_count = sum(record.operation_id == operation.id for record in waiting)
        Operation.objects.create(
            id=operation.id,
            data=orders.dump(operation.requests),
            start_at=operation.start_at,
            policy_id=operation.policy_id,
            records=len(plan.newest),
        )
        add_endings({(operation.id, "replaced"): len(plan.newest) - own_count}, now)
    if unsure_class:
        record_ids = [record.pk for record in plan.to_resend if not record.remote_id]
        lookups = Record.objects.filter(pk__in=record_ids)
        claims.update_by_key(lookups, {"error_class": UNKNOWN})
    # Records that the CRM has confirmed too: that is the purpose of a replay.
    entries.send_from_scratch(plan.to_resend, by)
    return plan.counts()


def _take_over(plan: _Plan, now: datetime, by: str, unsure_class: str) -> None:
    """Make the operation's requests the newest version of records that are behind it."""
    in_flight = [r for r in plan.in_flight if _is_behind(r, plan.operation, plan.newest[r.key])]
    outdated_counts: Counter[tuple[int, str]] = Counter()
    for record in [*plan.older, *in_flight]:
        if record.state in Record.OPEN:
            operation_ids = {record.operation_id, record.sending_operation} - {0}
            # The program that marks the record in flight, or queues it again, counts its version.
            if record.state == _State.QUEUED:
                operation_ids.discard(record.sending_operation)
            outdated_counts.update((operation_id, "replaced") for operation_id in operation_ids)
    add_endings(outdated_counts, now)
    entries.close_as_retried([record.pk for record in plan.older], by)
    for record in [*plan.new, *plan.older]:
        record.state, record.attempt, record.next_at = _State.WAITING, 0, now
        record.claimed_by, record.sending_operation = "", 0
        record.sent_version, record.sent_digest = 0, ""
        if record.error_class != UNKNOWN:
            record.error_class = "" if record.remote_id else unsure_class
    records = [*plan.new, *plan.older, *in_flight]
    for record in records:
        request = plan.newest[record.key]
        record.version, record.deleted = request.version, request.deleted
        record.operation_id, record.digest = plan.operation.id, orders.digest(request)
        is_removal = request.deleted or request.cleared_fields > record.cleared
        record.removal = Record.Removal.PENDING if is_removal else Record.Removal.NONE
        if not request.deleted:
            record.cleared = request.cleared_fields
        record.updated_at = now
    rows = [tuple(getattr(record, column) for column in _COLUMNS) for record in records]
    sql.insert_or_update(Record._meta.db_table, _COLUMNS, sorted(rows))
