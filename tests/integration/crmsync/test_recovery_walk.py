"""Recovery beside a poller and a handler that work: from the hive to a CRM and back."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from crmsync.flow import FLOW
from crmsync.handler.handler import DataHandler
from crmsync.models import Lead, Operation, Policy, Record, RecoveryEntry, Source, Watermark
from crmsync.poller.poller import Poll
from crmsync.recovery import actions
from msgplatform.core.connections import work_redis
from msgplatform.core.data import ids
from tests.integration.crmsync.sync_support import Customers, running

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
DEADLINE = 300.0  # longer than the lease of a record
_State = Record.State
flow = FLOW


@pytest.fixture(autouse=True)
def empty_redis() -> Iterator[None]:
    work_redis().flushdb()
    yield
    work_redis().flushdb()


@pytest.fixture
def customers(tmp_path: Path) -> Customers:
    return Customers(tmp_path)


class Programs:
    """A poller and a handler; `until` lets them work."""

    def __init__(self, poller: Poll, handler: DataHandler) -> None:
        self._poller, self._handler = poller, handler

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, "it did not come"
            self._poller.turn()
            self._handler.turn()


@pytest.fixture
def programs() -> Iterator[Programs]:
    with running() as handler, contextlib.ExitStack() as stack:
        poller = Poll()
        poller.start()
        stack.callback(poller.stop)
        stack.callback(lambda: poller.drain(time.monotonic() + 10))
        yield Programs(poller, handler)


def carry(customers: Customers, mapping: str = "name = name") -> Policy:
    return Policy.objects.create(
        source=Source.hive(), crm=customers.crm(), mapping=mapping, interval_seconds=1,
        sweep_cron="",
    )  # fmt: skip


def leads(count: int) -> list[Lead]:
    made = ids.reserve(count).ids([0] * count)
    return [Lead.objects.create(id=pk, biz_id=1, appkey="ad", name=f"n{pk % 1000}") for pk in made]


def in_crm(customers: Customers) -> dict[str, tuple[str, int]]:
    return customers.rows()


def in_hive() -> dict[str, tuple[str, int]]:
    rows = Lead.objects.values_list("id", "name", "version")
    return {str(pk): (name, version) for pk, name, version in rows}


def all_confirmed() -> bool:
    return (
        Record.objects.count() == Lead.objects.count()
        and not Record.objects.exclude(state=_State.CONFIRMED).exists()
    )


def check_operations() -> None:
    """Every operation has ended, and has counted each of its records once."""
    for row in Operation.objects.all():
        assert row.end_at is not None
        assert row.confirmed + row.replaced + row.dead == row.records
        assert row.result == (0 if row.dead else 1)


def test_rows_that_the_mapping_refused(customers: Customers, programs: Programs) -> None:
    policy = carry(customers, "name = name.first")
    made = leads(3)
    programs.until(lambda: RecoveryEntry.objects.count() == 3)
    assert in_crm(customers) == {}
    assert {entry.error_class for entry in RecoveryEntry.objects.all()} == {"mapping"}
    edited, *others = RecoveryEntry.objects.order_by("key")

    Policy.objects.filter(pk=policy.pk).update(mapping="name = name")
    actions.edit_and_retry(edited.pk, {"name": "by hand"}, "ann")
    actions.retry([entry.pk for entry in others], "ann")
    programs.until(all_confirmed)

    expected = in_hive() | {str(made[0].pk): ("by hand", 1)}
    assert in_crm(customers) == expected
    states = set(RecoveryEntry.objects.values_list("state", flat=True))
    assert states == {RecoveryEntry.State.SOLVED}
    check_operations()


def test_a_database_from_an_older_backup(customers: Customers, programs: Programs) -> None:
    """What was sent since then is known to Redis alone, and the CRM has lost it too."""
    carry(customers)
    leads(5)
    programs.until(all_confirmed)
    backup: dict[Any, list[Any]] = {
        model: list(model.objects.all()) for model in (Record, Operation, Watermark)
    }
    leads(5)
    Lead.objects.filter(pk=Lead.objects.order_by("id")[0].pk).update(name="changed")
    programs.until(lambda: in_crm(customers) == in_hive() and all_confirmed())
    expected = in_hive()
    Policy.objects.update(enabled=False)
    programs.until(lambda: not Policy.objects.exclude(claimed_by="").exists())
    customers.run("DELETE FROM customer")
    for model, rows in backup.items():
        model.objects.all().delete()
        model.objects.bulk_create(rows)
    Policy.objects.update(enabled=True)

    call_command("sync_recover", "--since", "1h", stdout=StringIO())
    programs.until(lambda: in_crm(customers) == expected and all_confirmed())

    check_operations()


def test_people_recover_while_records_change(customers: Customers, programs: Programs) -> None:
    """Whatever is done at the same time: the CRM has the newest versions in the end, and every
    record of every operation is counted once."""
    carry(customers)
    made = leads(60)
    programs.until(all_confirmed)
    stop = threading.Event()
    problems: list[BaseException] = []

    def again_and_again(work: Callable[[int], Any]) -> None:
        turn = 0
        try:
            while not stop.wait(0.05):
                work(turn)
                turn += 1
        except BaseException as error:
            problems.append(error)
        finally:
            connection.close()

    def change(turn: int) -> None:
        chosen = [lead.pk for lead in made[turn % 7 :: 7]]
        Lead.objects.filter(pk__in=chosen).update(name=f"v{turn}")

    def resend(turn: int) -> None:
        begun = flow.action("replay").step({"crm": "sales"}, "", 25)
        step = flow.action("replay").step({"crm": "sales"}, begun.cursor, 25)
        if step.cursor:
            flow.action("replay").step({"crm": "sales"}, step.cursor, 25)

    def recover(turn: int) -> None:
        call_command("sync_recover", "--since", "1h", stdout=StringIO(), stderr=StringIO())

    people = [
        threading.Thread(target=again_and_again, args=(work,)) for work in (change, resend, recover)
    ]
    for thread in people:
        thread.start()
    until = time.monotonic() + 8
    programs.until(lambda: time.monotonic() > until)
    stop.set()
    for thread in people:
        thread.join(DEADLINE)
        assert not thread.is_alive()

    assert not problems
    programs.until(lambda: in_crm(customers) == in_hive() and all_confirmed())
    check_operations()
    assert not RecoveryEntry.objects.exists()
