import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from crmsync import copies, orders
from crmsync.models import Operation, Policy, Record, RecoveryEntry
from crmsync.operations import add_endings
from crmsync.recovery import actions
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.models import AuditLog
from tests.integration.crmsync import sync_support
from tests.integration.crmsync.recovery_steps import (
    dead,
    entry as make_entry,
    record as make_record,
    request,
    send_what_is_due,
)
from tests.integration.crmsync.sync_support import Customers, new_operation
from tests.support.json_stub import Answer, serving

pytestmark = pytest.mark.django_db(transaction=True)
_State, _Entry = Record.State, RecoveryEntry.State


@pytest.fixture
def customers(tmp_path: Path) -> Customers:
    return Customers(tmp_path)


@pytest.fixture
def policy(customers: Customers) -> Policy:
    return sync_support.policy(customers.crm())


def test_a_dead_record_begins_anew_and_its_operation_is_open_again(policy: Policy) -> None:
    record, entry = dead(policy, "a")

    assert actions.retry([entry.pk], "ann") == 1

    record.refresh_from_db()
    assert (record.state, record.attempt, record.error_class) == (_State.WAITING, 0, "")
    assert _is_due(record)
    entry.refresh_from_db()
    assert (entry.state, entry.handled_by) == (_Entry.RETRIED, "ann")
    assert entry.handled_at is not None
    operation = Operation.objects.get()
    assert (operation.dead, operation.end_at, operation.result) == (0, None, None)
    add_endings({(operation.pk, "confirmed"): 1}, sql.now())
    operation.refresh_from_db()
    assert (operation.confirmed, operation.result) == (1, 1)
    assert operation.end_at
    audit = AuditLog.objects.get()
    assert (audit.actor, audit.action) == ("ann", "recovery_retried")
    assert audit.detail == {"entries": [entry.pk], "done": 1}


def test_what_may_have_been_stored_is_still_looked_up_first(policy: Policy) -> None:
    record, entry = dead(policy, "a")
    Record.objects.update(error_class="unknown")

    actions.retry([entry.pk], "ann")

    record.refresh_from_db()
    assert (record.state, record.error_class) == (_State.WAITING, "unknown")


def test_an_entry_that_is_not_open_is_left_alone(policy: Policy) -> None:
    record, entry = dead(policy, "a", state=_Entry.DISMISSED)

    assert actions.retry([entry.pk], "ann") == 0
    assert actions.dismiss([entry.pk], "ann") == 0

    record.refresh_from_db()
    assert record.state == _State.DEAD
    assert not AuditLog.objects.exists()


@pytest.mark.parametrize(
    ("state", "then", "of_entry"),
    [
        (_State.QUEUED, _State.QUEUED, _Entry.RETRIED),
        (_State.RETRY, _State.RETRY, _Entry.RETRIED),
        (_State.CONFIRMED, _State.CONFIRMED, _Entry.SOLVED),
    ],
)
def test_a_record_that_a_newer_version_revived(
    policy: Policy, state: int, then: int, of_entry: int
) -> None:
    one = request("a", version=2)
    later = sql.now() + timedelta(hours=1)
    record = make_record(new_operation(policy, [one]), one, state, next_at=later)
    entry = make_entry(record, policy, version=1)

    actions.retry([entry.pk], "ann")

    before = record.next_at
    record.refresh_from_db()
    entry.refresh_from_db()
    assert (record.state, entry.state) == (then, of_entry)
    due_at_once = state == _State.RETRY
    assert (record.next_at != before) is due_at_once
    counts = Operation.objects.values_list("confirmed", "dead").get()
    assert counts == (1 if state == _State.CONFIRMED else 0, 0)


def test_dismissed_records_stay_dead_in_the_counts(policy: Policy) -> None:
    record, entry = dead(policy, "a")

    assert actions.dismiss([entry.pk], "ann") == 1

    record.refresh_from_db()
    entry.refresh_from_db()
    assert (record.state, entry.state) == (_State.DISMISSED, _Entry.DISMISSED)
    operation = Operation.objects.get()
    assert (operation.dead, operation.result) == (1, 0)
    assert AuditLog.objects.get().action == "recovery_dismissed"


def test_dismissing_leaves_a_newer_version_on_its_way(policy: Policy) -> None:
    one = request("a", version=2)
    record = make_record(new_operation(policy, [one]), one, _State.QUEUED)
    entry = make_entry(record, policy, version=1)

    assert actions.dismiss([entry.pk], "ann") == 1

    record.refresh_from_db()
    assert record.state == _State.QUEUED


def test_what_a_queue_did_not_take_is_due_already(policy: Policy) -> None:
    one = request("a")
    waiting = make_record(new_operation(policy, [one]), one, _State.WAITING, next_at=sql.now())
    entry = make_entry(waiting, policy, record_id=None, key="", error_class="queue")

    assert actions.retry([entry.pk], "ann") == 1

    waiting.refresh_from_db()
    entry.refresh_from_db()
    assert (waiting.state, entry.state) == (_State.WAITING, _Entry.RETRIED)
    with pytest.raises(InvalidInput, match="one record"):
        actions.edit_and_retry(entry.pk, {"name": "x"}, "ann")


@pytest.mark.parametrize(("column", "kind"), [("version", "sweep"), ("", "full")])
def test_a_row_that_the_mapping_refused_is_read_again(
    policy: Policy, column: str, kind: str
) -> None:
    policy.source.version_column = column
    policy.source.save()
    record, entry = dead(policy, "a", "mapping")

    assert actions.retry([entry.pk], "ann") == 1

    record.refresh_from_db()
    # Its request was never made: nothing may be sent before the row was read.
    assert (record.state, record.version, record.digest) == (_State.DEAD, -1, "")
    entry.refresh_from_db()
    assert (entry.state, entry.handled_by) == (_Entry.OPEN, "ann")
    policy.refresh_from_db()
    assert (policy.requested, policy.requested_by) == (kind, "ann")
    assert Operation.objects.get().dead == 1


def test_a_record_whose_operation_is_gone_is_read_again(policy: Policy) -> None:
    record, entry = dead(policy, "a")
    Operation.objects.all().delete()
    Policy.objects.update(requested="full", requested_by="bob")

    assert actions.retry([entry.pk], "ann") == 1

    record.refresh_from_db()
    policy.refresh_from_db()
    assert (record.state, record.version) == (_State.DEAD, -1)
    assert (policy.requested, policy.requested_by) == ("full", "bob")  # it reads this row too


def test_an_edited_record_is_an_operation_of_its_own(policy: Policy) -> None:
    Policy.objects.update(key_prefix="hive-")
    record, entry = dead(policy, "a")
    old = record.operation_id

    actions.edit_and_retry(entry.pk, {"name": "王"}, "ann")

    record.refresh_from_db()
    entry.refresh_from_db()
    assert (record.state, record.version, record.attempt) == (_State.WAITING, 1, 0)
    made = Operation.objects.get(pk=record.operation_id)
    assert made.pk != old
    assert (made.records, made.end_at) == (1, None)
    (sent,) = orders.load(bytes(made.data))
    # The row's own values are not changed by it, and are not sent when they are read once more.
    assert sent == orders.Request(
        "hive-a", 1, {"name": "王"}, previous=old, row_digest=record.digest
    )
    assert record.digest == orders.digest(sent) == orders.digest(request("a"))
    assert entry.state == _Entry.RETRIED
    earlier = Operation.objects.get(pk=old)
    assert (earlier.dead, earlier.result) == (1, 0)
    assert orders.load(copies.read([made.pk])[made.pk].data) == [sent]
    audit = AuditLog.objects.get()
    assert audit.detail == {"record": record.pk, "fields": ["name"]}


def test_a_field_that_the_crm_does_not_have_is_refused(policy: Policy) -> None:
    record, entry = dead(policy, "a")

    with pytest.raises(InvalidInput) as caught:
        actions.edit_and_retry(entry.pk, {"nickname": "x"}, "ann")

    assert caught.value.field == "nickname"
    record.refresh_from_db()
    assert record.state == _State.DEAD


def test_a_crm_that_cannot_be_asked_says_it_later(policy: Policy, tmp_path: Path) -> None:
    (tmp_path / "customers.db").unlink()
    record, entry = dead(policy, "a")

    actions.edit_and_retry(entry.pk, {"nickname": "x"}, "ann")

    record.refresh_from_db()
    assert record.state == _State.WAITING


def test_an_adapter_that_fails_keeps_nobody_from_editing(policy: Policy, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    record, entry = dead(policy, "a")

    with serving(lambda _: Answer({"results": [{"label": "no name"}]})) as server:
        policy.crm.adapter, policy.crm.credentials = "hubspot", {"token": "hush"}
        policy.crm.settings = {"base_url": server.url("")}
        policy.crm.save()
        actions.edit_and_retry(entry.pk, {"nickname": "x"}, "ann")
        assert server.requests

    record.refresh_from_db()
    assert record.state == _State.WAITING


def test_the_crm_gets_what_was_edited(policy: Policy, customers: Customers) -> None:
    record, entry = dead(policy, "a", error="invalid")
    actions.edit_and_retry(entry.pk, {"name": "corrected"}, "ann")

    send_what_is_due(policy)

    assert customers.rows() == {"a": ("corrected", 1)}
    record.refresh_from_db()
    entry.refresh_from_db()
    assert (record.state, entry.state) == (_State.CONFIRMED, _Entry.SOLVED)
    ended = Operation.objects.order_by("id").values_list("confirmed", "dead", "result")
    assert list(ended) == [(0, 1, 0), (1, 0, 1)]


def test_the_crm_gets_what_is_tried_again(policy: Policy, customers: Customers) -> None:
    found = [dead(policy, key) for key in ("a", "b")]
    actions.retry([entry.pk for _record, entry in found], "ann")

    send_what_is_due(policy)

    assert customers.rows() == {"a": ("name a", 1), "b": ("name b", 1)}
    assert set(RecoveryEntry.objects.values_list("state", flat=True)) == {_Entry.SOLVED}
    ended = Operation.objects.values_list("confirmed", "dead", "result")
    assert list(ended) == [(1, 0, 1), (1, 0, 1)]


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({}, "fields"),
        ({"": "x"}, ""),
        ({"n" * 129: "x"}, "n" * 128),
        ({str(number): 1 for number in range(201)}, "fields"),
        ({"name": "x" * actions.MAX_BYTES}, "fields"),
        ({"name": object()}, "fields"),
    ],
)
def test_fields_that_cannot_be_sent(policy: Policy, fields: dict[str, Any], at: str) -> None:
    record, entry = dead(policy, "a")

    with pytest.raises(InvalidInput) as caught:
        actions.edit_and_retry(entry.pk, fields, "ann")

    assert caught.value.field == at
    record.refresh_from_db()
    assert record.state == _State.DEAD


def test_an_edit_never_replaces_a_newer_version(policy: Policy) -> None:
    _record, entry = dead(policy, "a")
    Record.objects.update(version=2)

    with pytest.raises(InvalidInput, match="newer"):
        actions.edit_and_retry(entry.pk, {"name": "x"}, "ann")

    entry.refresh_from_db()
    assert entry.state == _Entry.OPEN
    assert Operation.objects.count() == 1


def test_a_deletion_has_nothing_to_edit(policy: Policy) -> None:
    _record, entry = dead(policy, "a")
    Record.objects.update(deleted=True)

    with pytest.raises(InvalidInput, match="deletion"):
        actions.edit_and_retry(entry.pk, {"name": "x"}, "ann")


def test_two_people_retry_the_same_entry(policy: Policy) -> None:
    found = [dead(policy, f"key-{number}") for number in range(20)]
    chosen = [entry.pk for _record, entry in found]
    done: list[int] = []
    begin = threading.Barrier(2)

    def person(name: str) -> None:
        begin.wait(60)
        try:
            done.append(actions.retry(chosen, name))
        finally:
            connection.close()

    people = [threading.Thread(target=person, args=(name,)) for name in ("ann", "bob")]
    for thread in people:
        thread.start()
    for thread in people:
        thread.join(60)

    assert sorted(done) == [0, 20]
    assert AuditLog.objects.count() == 1
    assert not Operation.objects.exclude(dead=0, end_at=None).exists()


def _is_due(record: Record) -> bool:
    return record.next_at is not None and record.next_at <= sql.now()


def test_more_than_a_request_should_do(policy: Policy) -> None:
    with pytest.raises(InvalidInput, match="bulk"):
        actions.retry(range(501), "ann")
