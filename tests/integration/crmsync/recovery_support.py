"""Records, operations and entries of the recovery log, as the programs leave them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from crmsync import orders
from crmsync.models import Crm, Operation, Policy, Record, RecoveryEntry, Source
from crmsync.orders import Request
from msgplatform.core.data import ids, sql

SETTINGS = {"url": "https://crm.example/leads"}


def make_crm(name: str = "sales", **fields: Any) -> Crm:
    fields = {"adapter": "sql", "settings": {}, "credentials": {}, **fields}
    return Crm.objects.create(name=name, **fields)


def make_policy(crm: Crm, source: str = "hive", **fields: Any) -> Policy:
    table = Source.objects.filter(name=source).first() or Source.objects.create(
        name=source, table="people", time_column="changed", value_columns=["name"]
    )
    return Policy.objects.create(source=table, crm=crm, mapping="LastName = name", **fields)


def request(key: str, version: int = 1, **fields: Any) -> Request:
    return Request(key, version, fields or {"LastName": f"name of {key}"})


def make_operation(policy: Policy, *requests: Request, **fields: Any) -> Operation:
    """An operation whose records are still on their way, unless `fields` say otherwise."""
    start = int(sql.now().timestamp() * 1000)
    fields = {"id": ids.new(0), "start_at": start, "records": len(requests), **fields}
    return Operation.objects.create(policy_id=policy.pk, data=orders.dump(requests), **fields)


def make_record(operation: Operation, one: Request, state: int, **fields: Any) -> Record:
    now = sql.now()
    confirmed = {"sent_version": one.version, "sent_digest": orders.digest(one)}
    fields = {
        "policy_id": operation.policy_id, "key": one.key, "version": one.version,
        "operation_id": operation.pk, "digest": orders.digest(one), "updated_at": now,
        **(confirmed if state == Record.State.CONFIRMED else {}), **fields,
    }  # fmt: skip
    if state == Record.State.QUEUED:
        leased = {"claimed_by": "somebody", "next_at": now + timedelta(seconds=100)}
        fields = {**leased, "sending_operation": operation.pk, **fields}
    return Record.objects.create(id=ids.new(0), state=state, **fields)


def make_entry(record: Record, crm: Crm, **fields: Any) -> RecoveryEntry:
    fields = {
        "policy_id": record.policy_id, "crm_id": crm.pk, "operation_id": record.operation_id,
        "record_id": record.pk, "key": record.key, "version": record.version,
        "error_class": "invalid", "created_at": sql.now(), **fields,
    }  # fmt: skip
    return RecoveryEntry.objects.create(**fields)


def dead(policy: Policy, key: str, **fields: Any) -> tuple[Record, RecoveryEntry]:
    """A dead record: the only one of its operation, which has ended."""
    one = request(key)
    ended = {"dead": 1, "end_at": 1, "result": 0}
    operation = make_operation(policy, one, **ended)
    record = make_record(operation, one, Record.State.DEAD, attempt=3, error_class="retry")
    return record, make_entry(record, policy.crm, **fields)
