"""Records in any state, and entries of the recovery log, as the programs leave them."""

from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from crmsync import directory, orders
from crmsync.models import Operation, Policy, Record, RecoveryEntry
from crmsync.operations import add_endings
from crmsync.orders import Request
from crmsync.poller import due, removal_guard
from crmsync.poller.distribution import DistributionCenter
from msgplatform.core.data import ids, sql
from tests.integration.crmsync import sync_support

HOLDER = "h" * 32
_State = Record.State


def request(key: str, version: int = 1) -> Request:
    return sync_support.requests([key], version)[0]


def record(operation: Operation, one: Request, state: int, **fields: Any) -> Record:
    now = sql.now()
    fields = {
        "key": one.key, "version": one.version, "digest": orders.digest(one),
        "deleted": one.deleted, "next_at": None, **fields,
    }  # fmt: skip
    if state == _State.CONFIRMED:
        fields = {"sent_version": one.version, "sent_digest": orders.digest(one), **fields}
        ended(operation, "confirmed")
    if state == _State.QUEUED:
        fields |= {"next_at": now + timedelta(seconds=100), "claimed_by": "somebody"}
        fields = {"sending_operation": operation.pk, **fields}
    return Record.objects.create(
        id=ids.new(0), policy_id=operation.policy_id, operation_id=operation.pk, state=state,
        updated_at=now, **fields,
    )  # fmt: skip


def ended(operation: Operation, how: str) -> None:
    add_endings({(operation.pk, how): 1}, sql.now())


def confirmed(policy: Policy, key: str, version: int = 1) -> Record:
    """A confirmed record, the only one of its operation."""
    one = request(key, version)
    return record(sync_support.new_operation(policy, [one]), one, _State.CONFIRMED)


def entry(of: Record, policy: Policy, **fields: Any) -> RecoveryEntry:
    fields = {
        "record_id": of.pk, "key": of.key, "version": of.version, "error_class": of.error_class,
        "created_at": sql.now(), **fields,
    }  # fmt: skip
    return RecoveryEntry.objects.create(
        policy_id=of.policy_id, crm_id=policy.crm_id, operation_id=of.operation_id, **fields
    )


def dead(
    policy: Policy, key: str, error: str = "retry", **fields: Any
) -> tuple[Record, RecoveryEntry]:
    """A dead record, the only one of its operation, and its entry."""
    one = request(key)
    operation = sync_support.new_operation(policy, [one])
    ended(operation, "dead")
    made = record(operation, one, _State.DEAD, attempt=3, error_class=error)
    return made, entry(made, policy, **fields)


def send_what_is_due(policy: Policy) -> None:
    """As poller and handler do it, once."""
    crm = directory.crm_from_row(policy.crm)
    center, claims = DistributionCenter(policy), []
    until = sql.now() + timedelta(seconds=60)
    Policy.objects.filter(pk=policy.pk).update(claimed_by=HOLDER, lease_until=until)
    for _ in range(2):  # once more for the removals that the guard has let go
        found = due.claim(policy, crm.id, 500)
        center.retry(crm, found)
        claims.append(found.claim)
        removal_guard.settle(policy, HOLDER, is_reading=False)
    with sync_support.running() as handler:
        sync_support.turn_until(
            handler, lambda: not Record.objects.filter(claimed_by__in=claims).exists()
        )


def longer_ago() -> None:
    """All records changed before anything that follows."""
    Record.objects.update(updated_at=Now() - timedelta(seconds=5))
