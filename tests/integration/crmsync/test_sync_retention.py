from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from crmsync import retention
from crmsync.flow import FLOW
from crmsync.models import ExceptionEntry, Item, Operation, Policy, Record, RecoveryEntry, Run
from crmsync.recovery import actions
from crmsync.retention import ARCHIVE, Housekeeping
from msgplatform.core.archive import partitions
from msgplatform.core.archive.partitions import partitions_of
from msgplatform.core.data import ids, sql
from tests.integration.crmsync import sync_support
from tests.integration.crmsync.recovery_steps import dead
from tests.support.archive_support import old_id, without_months

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
ON_MARIADB = connection.vendor == "mysql"
OLD = 200.0  # days; older than a month that began before what is kept


@pytest.fixture(autouse=True)
def fresh(db: None, settings: Any) -> Iterator[None]:
    """Months from a year ago on, and 90 days of them are kept."""
    settings.CRM_KEEP_DAYS = 90
    without_months(ARCHIVE)
    partitions.prepare(ARCHIVE, sql.now() - timedelta(days=365))
    yield
    without_months(ARCHIVE)


@pytest.fixture
def policy() -> Policy:
    return sync_support.policy(sync_support.crm())


def run(days: float, policy: Policy, state: int = Run.State.READ) -> int:
    made = Run(id=old_id(days), policy_id=policy.pk, kind="changes", state=state)
    made.started_at = sql.now() - timedelta(days=days)
    made.save(force_insert=True)
    return made.pk


def operation(days: float, policy: Policy, ended: bool = True) -> int:
    """With one item, a little later."""
    pk = old_id(days)
    Operation.objects.create(
        id=pk, data=b"[]", start_at=1, policy_id=policy.pk, records=1,
        end_at=2 if ended else None, result=1 if ended else None,
    )  # fmt: skip
    Item.objects.create(
        id=old_id(days - 0.01), operation_id=pk, record_id=1, crm_id=1, version=1, attempt=1,
        outcome="ok", at=sql.now() - timedelta(days=days),
    )  # fmt: skip
    return pk


def failed_call(days: float) -> int:
    at = sql.now() - timedelta(days=days)
    return ExceptionEntry.objects.create(id=old_id(days), kind="retry", message="x", at=at).pk


def keep_house() -> None:
    housekeeping = Housekeeping()
    while housekeeping.turn_if_due():
        pass


def kept(model: Any) -> set[int]:
    return set(model.objects.values_list("pk", flat=True))


def test_what_is_old_and_has_ended_is_deleted(policy: Policy) -> None:
    for make in (run, operation):
        make(OLD, policy)
        make(OLD + 60, policy)
    failed_call(OLD)
    run_on_the_last_day = run(89.99, policy)  # in a month that began before what is kept
    stay = run(10, policy), operation(10, policy), failed_call(10)
    records = dead(policy, "a")

    keep_house()

    assert kept(Run) == {run_on_the_last_day, stay[0]}
    assert kept(Operation) == {stay[1], records[0].operation_id}
    assert [item.operation_id for item in Item.objects.all()] == [stay[1]]
    assert kept(ExceptionEntry) == {stay[2]}
    assert Record.objects.exists()


def test_what_has_not_ended_stays(policy: Policy) -> None:
    open_one = operation(OLD, policy, ended=False)

    keep_house()

    assert kept(Operation) == {open_one}
    assert Item.objects.count() == 1


def test_a_run_is_protected_while_somebody_may_go_on_with_it(policy: Policy, settings: Any) -> None:
    settings.CRM_KEEP_DAYS = 1
    run(OLD, policy, Run.State.READING)
    reading = run(6, policy, Run.State.READING)

    keep_house()

    assert kept(Run) == {reading}


def test_what_cannot_end_any_more_goes(policy: Policy) -> None:
    run(OLD, policy, Run.State.READING)
    operation(OLD, policy, ended=False)
    policy.delete()

    keep_house()

    assert (kept(Run), kept(Operation), kept(Item)) == (set(), set(), set())


def test_everything_is_kept_for_ever_when_asked(policy: Policy, settings: Any) -> None:
    settings.CRM_KEEP_DAYS = 0
    old = operation(OLD, policy)
    _record, entry = dead(policy, "a", state=RecoveryEntry.State.SOLVED)
    RecoveryEntry.objects.update(handled_at=Now() - timedelta(days=OLD))

    keep_house()

    assert old in kept(Operation)
    assert kept(RecoveryEntry) == {entry.pk}


def test_entries_that_are_open_or_were_handled_lately_stay(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "CHUNK", 2)
    states = RecoveryEntry.State
    for state in states:
        for name in ("100", "10"):
            for number in range(3):
                dead(policy, f"{state.name}-{name}-{number}", state=state)
    RecoveryEntry.objects.update(created_at=Now() - timedelta(days=OLD))
    for days in (100, 10):
        handled = RecoveryEntry.objects.filter(key__contains=f"-{days}-").exclude(state=0)
        handled.update(handled_at=Now() - timedelta(days=days))

    keep_house()

    left = [(each.state, each.key.split("-")[1]) for each in RecoveryEntry.objects.all()]
    assert Counter(left) == {
        (states.OPEN, "100"): 3, (states.OPEN, "10"): 3, (states.RETRIED, "10"): 3,
        (states.SOLVED, "10"): 3, (states.DISMISSED, "10"): 3,
    }  # fmt: skip


def test_a_dead_record_outlives_its_operation(policy: Policy) -> None:
    pk = operation(OLD, policy)
    record, entry = dead(policy, "a")
    Operation.objects.filter(pk=record.operation_id).delete()
    Record.objects.update(operation_id=pk)

    keep_house()
    assert not kept(Operation)
    assert actions.retry([entry.pk], "ann") == 1

    policy.refresh_from_db()
    assert policy.requested == Policy.Kind.SWEEP


def test_months_are_made_ahead(policy: Policy) -> None:
    keep_house()

    for table in ARCHIVE.all_tables() if ON_MARIADB else ():
        found = partitions_of(table)
        assert found[-1].bound is None
        ahead = sum(not part.is_below(ids.first_id_at(sql.now())) for part in found)
        assert ahead == 4  # this month, two more, and what comes after
    assert {table.name for table in ARCHIVE.all_tables()} == {
        "sync_run", "sync_operation", "sync_item", "exception_log",
    }  # fmt: skip


def test_nothing_is_written_between_two_looks(policy: Policy) -> None:
    housekeeping = Housekeeping()
    while housekeeping.turn_if_due():
        pass
    old = operation(OLD, policy)

    assert not housekeeping.turn_if_due()

    assert old in kept(Operation)


def test_what_is_overdue_is_a_metric(policy: Policy) -> None:
    run(10, policy)
    names = {sample.name: sample.value for sample in FLOW.health.metrics()}
    if not ON_MARIADB:  # there whole months are looked at
        assert names["crmsync_archive_overdue_seconds"] == 0
        operation(OLD, policy)
        names = {sample.name: sample.value for sample in FLOW.health.metrics()}
    assert names["crmsync_archive_overdue_seconds"] > 100 * 86_400


def test_a_database_that_refuses_does_not_stop_the_poller(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    housekeeping = Housekeeping()
    dead(policy, "a", state=RecoveryEntry.State.SOLVED)
    RecoveryEntry.objects.update(handled_at=Now() - timedelta(days=OLD))
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE sync_item RENAME TO sync_item_elsewhere")
    try:
        assert not housekeeping.turn_if_due()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE sync_item_elsewhere RENAME TO sync_item")
    assert not RecoveryEntry.objects.exists(), "of other tables everything old goes"
