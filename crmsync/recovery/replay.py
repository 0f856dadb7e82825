"""Replay operations that were found in the database or in Redis: send their records again.

What the database has lost, because it was restored from an older backup, is made anew from the copy
in Redis: the operation, and records that are missing or older.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial

from django.db import transaction

from crmsync import orders
from crmsync.models import Operation, Policy, Record
from crmsync.models.operations import UNKNOWN
from crmsync.operations import endings
from crmsync.orders import Request
from crmsync.recovery import resend
from crmsync.recovery.found import Found
from msgplatform.core.data import ids, sql, transactions

_State = Record.State
_COLUMNS = tuple(column.attname for column in Record._meta.fields)


@dataclass(slots=True)
class Replayed:
    """What became of operations, and of their records.

    `again` are sent again; `made` are among them, which the database did not have, or only in an
    older version. Nothing is done for those `on_their_way`, those `dismissed` and those that
    changed `since` the replay began. `without_policy` are operations whose policy is gone.
    """

    operations: int = 0
    from_redis: int = 0
    without_policy: int = 0
    again: int = 0
    made: int = 0
    on_their_way: int = 0
    dismissed: int = 0
    since: int = 0

    def add(self, other: Replayed) -> None:
        for name, count in asdict(other).items():
            setattr(self, name, getattr(self, name) + count)


def replay(operation: Found, begun: datetime, by: str, dry_run: bool = False) -> Replayed:
    """Send the operation's records again, each in the newest version that is known.

    A record that changed since `begun` stays as it is, so that one replay of many operations
    sends it once. A record that is older than the operation is sent all the same.
    """
    policy = Policy.objects.filter(pk=operation.policy_id).first()
    if policy is None:
        return Replayed(1, int(not operation.is_stored), without_policy=1)
    # The newest request of each record, by the source's key.
    newest: dict[str, Request] = {}
    for request in operation.requests:
        key = request.key.removeprefix(policy.key_prefix)
        if request.version > newest.setdefault(key, request).version:
            newest[key] = request
    known = Record.objects.filter(policy_id=policy.pk, key__in=list(newest))
    if dry_run:
        return _Plan(operation, newest, list(known), begun).counts()
    # Ids are reserved before the transaction, which may be repeated.
    missing = len(newest) - known.count()
    block = ids.reserve(missing) if missing else None
    return transactions.retrying(partial(_replay, operation, newest, block, begun, by))


@dataclass(slots=True)
class _Plan:
    """What is to be done with each record of an operation. `new` are requests without a record,
    `older` are records of an older version; `flying` are in flight."""

    operation: Found
    newest: Mapping[str, Request]
    records: Sequence[Record]
    begun: datetime
    new: list[Record] = field(default_factory=list)
    older: list[Record] = field(default_factory=list)
    again: list[Record] = field(default_factory=list)
    flying: list[Record] = field(default_factory=list)
    dismissed: list[Record] = field(default_factory=list)
    since: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        for record in self.records:
            request = self.newest[record.key]
            if record.state == _State.QUEUED:
                self.flying.append(record)
            # Older than the operation: also when it was dismissed, or changed since.
            elif record.version < request.version and _was_made(request):
                self.older.append(record)
            elif record.state == _State.DISMISSED:
                self.dismissed.append(record)
            elif record.updated_at > self.begun:
                self.since.append(record)
            else:
                self.again.append(record)
        # Records that the database has lost are made anew, from version 0.
        known = {record.key for record in self.records}
        policy = self.operation.policy_id
        self.new = [
            Record(policy_id=policy, key=key, version=0, sent_version=0)
            for key, request in self.newest.items()
            if key not in known and _was_made(request)
        ]

    def counts(self) -> Replayed:
        made = len(self.new) + len(self.older)
        return Replayed(
            operations=1,
            from_redis=int(not self.operation.is_stored),
            again=made + len(self.again),
            made=made,
            on_their_way=len(self.flying),
            dismissed=len(self.dismissed),
            since=len(self.since),
        )


def _was_made(request: Request) -> bool:
    """Whether the mapping made this request. A row that it refused has nothing to send: the next
    comparison finds it behind, and reads it again."""
    return request.deleted or bool(request.fields)


def _replay(
    operation: Found,
    newest: Mapping[str, Request],
    block: ids.Block | None,
    begun: datetime,
    by: str,
) -> Replayed:
    with transaction.atomic():
        # A poller that stores what it read of this policy waits, or is waited for.
        Policy.objects.select_for_update().get(pk=operation.policy_id)
        rows = Record.objects.select_for_update().filter(policy_id=operation.policy_id)
        locked = list(rows.filter(key__in=list(newest)).order_by("id"))
        plan = _Plan(operation, newest, locked, begun)
        if block:
            buckets = [ids.bucket(operation.policy_id, record.key) for record in plan.new]
            for record, record_id in zip(plan.new, block.ids(buckets), strict=True):
                record.pk = record_id
        now = sql.now()
        _take_over(plan, now, by)
        if not operation.is_stored:
            _store(plan, now)
        # Also records that the CRM has confirmed: that is what a replay is for.
        resend.forget(plan.again, by)
    return plan.counts()


def _take_over(plan: _Plan, now: datetime, by: str) -> None:
    """Requests of the operation become the newest version of records that are behind it."""
    flying = [r for r in plan.flying if r.version < plan.newest[r.key].version]
    replaced: Counter[tuple[int, str]] = Counter()
    for record in [*plan.older, *flying]:
        if record.state in Record.OPEN:
            counted = {record.operation_id, record.sending_operation} - {0}
            # The version in flight is counted by whoever marks the record or queues it again.
            if record.state == _State.QUEUED:
                counted.discard(record.sending_operation)
            replaced.update((each, "replaced") for each in counted)
    endings.add(replaced, now)
    resend.solve_entries([record.pk for record in plan.older], by)
    for record in [*plan.new, *plan.older]:
        record.state, record.attempt, record.next_at = _State.WAITING, 0, now
        record.claimed_by, record.sending_operation = "", 0
        # What the CRM has confirmed is not known to the older backup.
        record.sent_version, record.sent_digest = 0, ""
        record.error_class = record.error_class if record.error_class == UNKNOWN else ""
    changed = [*plan.new, *plan.older, *flying]
    for record in changed:
        request = plan.newest[record.key]
        record.version, record.deleted = request.version, request.deleted
        record.operation_id, record.digest = plan.operation.id, orders.digest(request)
        record.updated_at = now
    rows = [tuple(getattr(record, column) for column in _COLUMNS) for record in changed]
    sql.insert_or_update(Record._meta.db_table, _COLUMNS, sorted(rows))


def _store(plan: _Plan, now: datetime) -> None:
    """Store the row of an operation that the database has lost. It is open for the records that
    wait for it; the others have a newer version, or have ended."""
    operation = plan.operation
    waiting = [*plan.new, *plan.older, *plan.flying, *plan.again]
    mine = sum(record.operation_id == operation.id for record in waiting)
    Operation.objects.create(
        id=operation.id,
        data=orders.dump(operation.requests),
        start_at=operation.start_at,
        policy_id=operation.policy_id,
        records=len(plan.newest),
    )
    endings.add({(operation.id, "replaced"): len(plan.newest) - mine}, now)
