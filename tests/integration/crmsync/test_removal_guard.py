"""The guard against removals, with the poller and the handler: nothing is deleted or cleared in a
CRM beyond the limit before a person has confirmed it."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from crmsync import models
from crmsync.directory import Crms, Policies
from crmsync.intake import intake
from crmsync.models import LandingPage, Lead, Operation, Record
from crmsync.monitor import conditions
from crmsync.policies import run_requests
from crmsync.poller.policy_poll import PolicyPoll
from crmsync.recovery import entries, replay
from crmsync.recovery.operation_finder import OperationFinder
from msgplatform.core.data import sql
from msgplatform.core.errors import NotNow
from msgplatform.models import AuditLog, Biz
from tests.integration.crmsync import sync_support
from tests.integration.crmsync.sync_support import Customers

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]

HOLDER = "h" * 32
Decision, State = models.Policy.Decision, Record.State


class Guarded:
    """A policy from the hive to the CRM of `customers`, served by a poller and a handler."""

    def __init__(self, customers: Customers, handler: Any, **fields: Any) -> None:
        self.customers, self._handler = customers, handler
        self.biz = Biz.objects.create(name="cars")
        given = {"mapping": "name = name", "interval_seconds": 1, "sweep_cron": "", **fields}
        self.row = models.Policy.objects.create(
            source=models.Source.hive(), crm=customers.crm(), **given
        )
        self.start_poller()

    def start_poller(self) -> None:
        """A new poller, which knows only what is in the database, as after a SIGKILL."""
        self.policies, self.crms = Policies(), Crms()
        self.poll = PolicyPoll(self.row.pk, HOLDER, self.policies, self.crms, lambda _: None)

    def carry(self, count: int) -> list[int]:
        """New leads, once the CRM has them."""
        page = LandingPage(appkey="ad-1", biz=self.biz)
        before = len(self.customers.rows())
        new = [intake.make_lead(page, {"name": f"name {n}"}, "", None) for n in range(count)]
        keys = [int(verdict.id) for verdict in intake.add_many(new)]
        self.turn_until(lambda: len(self.customers.rows()) == before + count)
        self.turn_until(self.is_idle)
        return keys

    def change(self, keys: Sequence[int], **values: Any) -> None:
        Lead.objects.filter(pk__in=keys).update(**values)

    def turn(self) -> None:
        until = sql.now() + timedelta(seconds=60)
        models.Policy.objects.filter(pk=self.row.pk).update(claimed_by=HOLDER, lease_until=until)
        self.policies.refresh(at_once=True)
        self.crms.refresh(at_once=True)
        sync_support.turn_after(self._handler, self.poll.turn())

    def turn_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + sync_support.DEADLINE
        while not condition():
            assert time.monotonic() < deadline
            self.turn()

    def is_idle(self) -> bool:
        return not Record.objects.exclude(
            state__in=(State.CONFIRMED, State.HELD, State.DISMISSED)
        ).exists()

    def stop(self) -> tuple[int, int] | None:
        """What the guard says: removals, and records of the policy."""
        row = models.Policy.objects.get(pk=self.row.pk)
        return (row.stopped_removals, row.stopped_records) if row.stopped_at else None

    def wait_for_stop(self) -> tuple[int, int] | None:
        self.turn_until(self.stop)
        return self.stop()

    def goes_on(self) -> None:
        """Another lead comes to the CRM, and so whatever was due before it."""
        self.carry(1)

    def decide(self, decision: models.Policy.Decision) -> None:
        removals, _records = self.stop() or (0, 0)
        run_requests.decide(self.row, decision, removals, "li")
        self.turn_until(lambda: self.stop() is None)
        self.turn_until(self.is_idle)


@pytest.fixture
def handler() -> Iterator[Any]:
    with sync_support.running() as running:
        yield running


@pytest.fixture
def guarded(tmp_path: Path, handler: Any) -> Guarded:
    return Guarded(Customers(tmp_path), handler)


def alerts_of(policy: models.Policy) -> list[tuple[str, str]]:
    return [
        (condition.subject, condition.text)
        for condition in conditions.conditions()
        if condition.key == f"crm.removals:{policy.pk}"
    ]


class TestStop:
    def test_an_emptied_source_deletes_nothing(self, guarded: Guarded) -> None:
        keys = guarded.carry(100)
        guarded.change(keys[:60], is_delete=True)
        assert guarded.wait_for_stop() == (60, 100)
        guarded.goes_on()
        assert len(guarded.customers.rows()) == 101
        assert Record.objects.filter(state=State.HELD).count() == 60
        [(summary, detail)] = alerts_of(guarded.row)
        assert "60 of 100 records" in summary
        assert "None of these was sent to sales" in detail

    def test_pages_before_the_last_send_nothing(self, tmp_path: Path, handler: Any) -> None:
        guarded = Guarded(Customers(tmp_path), handler, batch_size=7)
        keys = guarded.carry(100)
        guarded.change(keys[:60], is_delete=True)
        assert guarded.wait_for_stop() == (60, 100)
        assert len(guarded.customers.rows()) == 100

    def test_cleared_fields_count(self, tmp_path: Path, handler: Any) -> None:
        guarded = Guarded(Customers(tmp_path), handler, mapping="name = name or null")
        keys = guarded.carry(60)
        guarded.change(keys[:55], name="")
        assert guarded.wait_for_stop() == (55, 60)
        assert all(name for name, _version in guarded.customers.rows().values())
        guarded.decide(Decision.CONFIRMED)
        assert sum(name is None for name, _ in guarded.customers.rows().values()) == 55
        assert alerts_of(guarded.row) == []
        # The same empty field in a later version clears nothing.
        guarded.change(keys[:55], phone="13800000000")
        versions = set(Lead.objects.values_list("version", flat=True))
        guarded.turn_until(
            lambda: set(Record.objects.values_list("version", flat=True)) == versions
        )
        guarded.turn_until(guarded.is_idle)
        assert guarded.stop() is None

    def test_few_go_at_once(self, guarded: Guarded) -> None:
        keys = guarded.carry(100)
        guarded.change(keys[:20], is_delete=True)
        guarded.turn_until(lambda: len(guarded.customers.rows()) == 80)
        assert guarded.stop() is None

    def test_a_small_share_goes_at_once(self, tmp_path: Path, handler: Any) -> None:
        guarded = Guarded(Customers(tmp_path), handler, guard_records=5)
        keys = guarded.carry(60)
        guarded.change(keys[:12], is_delete=True)  # 20 %
        guarded.turn_until(lambda: len(guarded.customers.rows()) == 48)
        assert guarded.stop() is None
        guarded.change(keys[12:13], is_delete=True)  # 13 within the day
        assert guarded.wait_for_stop() == (1, 48)

    def test_it_is_switched_off(self, tmp_path: Path, handler: Any) -> None:
        guarded = Guarded(Customers(tmp_path), handler, guard_percent=100)
        keys = guarded.carry(60)
        guarded.change(keys, is_delete=True)
        guarded.turn_until(lambda: not guarded.customers.rows())
        assert guarded.stop() is None

    def test_many_small_runs_are_counted_together(self, guarded: Guarded) -> None:
        keys = guarded.carry(100)
        guarded.change(keys[:30], is_delete=True)
        guarded.turn_until(lambda: len(guarded.customers.rows()) == 70)
        guarded.turn_until(guarded.is_idle)
        guarded.change(keys[30:60], is_delete=True)
        assert guarded.wait_for_stop() == (30, 70)
        assert len(guarded.customers.rows()) == 70

    def test_rows_that_come_back_end_the_stop(self, guarded: Guarded) -> None:
        keys = guarded.carry(60)
        guarded.change(keys, is_delete=True)
        guarded.wait_for_stop()
        guarded.change(keys, is_delete=False)
        guarded.turn_until(lambda: guarded.stop() is None)
        assert guarded.is_idle()
        assert len(guarded.customers.rows()) == 60
        assert set(Record.objects.values_list("state", flat=True)) == {State.CONFIRMED}
        assert not Operation.objects.filter(end_at=None).exists()
        # They can be sent again as any other confirmed record.
        guarded.customers.run("DELETE FROM customer")
        ids = list(Record.objects.values_list("pk", flat=True))
        assert entries.resend(ids, sql.now() + timedelta(seconds=1), "li") == 60
        guarded.turn_until(lambda: not Record.objects.filter(state__in=Record.OPEN).exists())
        assert set(Record.objects.values_list("state", flat=True)) == {State.CONFIRMED}
        assert len(guarded.customers.rows()) == 60
        assert not Operation.objects.filter(end_at=None).exists()


class TestOtherWays:
    """Removals that no increment has read."""

    def test_a_full_comparison(self, guarded: Guarded) -> None:
        keys = guarded.carry(60)
        guarded.change(keys, is_delete=True)
        # The watermark has passed the rows: only a comparison of versions finds them.
        newest = Lead.objects.order_by("-update_time").values_list("update_time", flat=True)[0]
        models.Watermark.objects.update(update_time=f"{newest:%Y-%m-%d %H:%M:%S.%f}")
        guarded.start_poller()
        models.Policy.objects.update(requested="sweep", requested_by="li")
        assert guarded.wait_for_stop() == (60, 60)
        assert len(guarded.customers.rows()) == 60

    def test_removals_that_are_sent_anew(self, guarded: Guarded) -> None:
        keys = guarded.carry(60)
        guarded.change(keys, is_delete=True)
        guarded.wait_for_stop()
        guarded.decide(Decision.CONFIRMED)
        assert guarded.customers.rows() == {}
        # Somebody has filled the CRM from a backup: records of a time before the deletions.
        for key in keys:
            guarded.customers.run(f"INSERT INTO customer VALUES ('{key}', 'back', 1)")
        started_at = sql.now() + timedelta(seconds=1)
        ids = list(Record.objects.values_list("pk", flat=True))
        assert entries.resend(ids, started_at, "li") == 60
        guarded.wait_for_stop()
        assert len(guarded.customers.rows()) == 60

    def test_operations_that_are_replayed(self, guarded: Guarded) -> None:
        keys = guarded.carry(60)
        guarded.change(keys, is_delete=True)
        guarded.wait_for_stop()
        operation_ids = list(Operation.objects.values_list("pk", flat=True))
        # The database is of a time before the deletions were read, the copies in Redis are not.
        Record.objects.update(
            state=State.CONFIRMED, version=1, deleted=False, removal=0, next_at=None,
            operation_id=min(operation_ids),
        )  # fmt: skip
        guarded.turn_until(lambda: guarded.stop() is None)
        for operation in OperationFinder().by_ids(operation_ids):
            replay.replay(operation, sql.now() + timedelta(seconds=1), "li")
        assert guarded.wait_for_stop() == (60, 60)
        assert len(guarded.customers.rows()) == 60


def test_removals_that_are_let_go_are_sent_in_the_same_turn(guarded: Guarded) -> None:
    keys = guarded.carry(60)
    guarded.change(keys[:1], is_delete=True)
    guarded.turn_until(lambda: Record.objects.filter(state=State.HELD).exists())
    guarded.turn_until(lambda: not Record.objects.filter(state=State.HELD).exists())
    assert not Record.objects.filter(state=State.WAITING).exists()


class TestDecisions:
    def test_a_killed_poller_loses_neither_the_stop_nor_the_decision(
        self, guarded: Guarded
    ) -> None:
        keys = guarded.carry(100)
        guarded.change(keys[:60], is_delete=True)
        guarded.wait_for_stop()
        guarded.start_poller()
        guarded.goes_on()
        assert guarded.stop() == (60, 100)
        assert len(guarded.customers.rows()) == 101
        run_requests.decide(guarded.row, Decision.CONFIRMED, 60, "li")
        guarded.start_poller()
        guarded.turn_until(lambda: len(guarded.customers.rows()) == 41)
        guarded.turn_until(lambda: guarded.stop() is None)

    def test_refused_removals_are_given_up(self, guarded: Guarded) -> None:
        keys = guarded.carry(60)
        guarded.change(keys, is_delete=True)
        guarded.wait_for_stop()
        guarded.decide(Decision.REFUSED)
        assert set(Record.objects.values_list("state", flat=True)) == {State.DISMISSED}
        assert not Operation.objects.filter(end_at=None).exists()
        models.Policy.objects.update(requested="full", requested_by="li")
        guarded.goes_on()
        assert len(guarded.customers.rows()) == 61
        # A later change of a row is carried as ever.
        guarded.change(keys[:1], is_delete=False, name="new")
        guarded.turn_until(lambda: guarded.customers.rows()[str(keys[0])][0] == "new")

    def test_another_number_is_another_decision(self, guarded: Guarded) -> None:
        keys = guarded.carry(120)
        guarded.change(keys[:60], is_delete=True)
        guarded.wait_for_stop()
        with pytest.raises(NotNow, match="60"):
            run_requests.decide(guarded.row, Decision.CONFIRMED, 59, "li")
        run_requests.decide(guarded.row, Decision.CONFIRMED, 60, "li")
        with pytest.raises(NotNow):
            run_requests.decide(guarded.row, Decision.REFUSED, 60, "wang")
        entry = AuditLog.objects.get(action="removals_confirmed")
        assert (entry.actor, entry.detail) == ("li", {"removals": 60, "records": 120})
        guarded.turn_until(lambda: guarded.stop() is None)
        guarded.turn_until(guarded.is_idle)
        # A deletion after the decision is held anew.
        guarded.change(keys[60:], is_delete=True)
        guarded.turn_until(lambda: guarded.stop() == (60, 60))
        assert len(guarded.customers.rows()) == 60


def test_a_person_decides_on_the_page(guarded: Guarded, admin_client: Client) -> None:
    keys = guarded.carry(60)
    guarded.change(keys, is_delete=True)
    guarded.wait_for_stop()
    page = f"/admin/crmsync/policy/{guarded.row.pk}/"
    text = admin_client.get(f"{page}change/").content.decode()
    assert "60 of 60 records would be deleted or cleared" in text
    assert "60 of 60" in admin_client.get("/admin/crmsync/policy/").content.decode()
    answer = admin_client.post(
        f"{page}removals/", {"decision": "refused", "removals": "60"}, follow=True
    )
    assert "the CRM keeps what it has" in answer.content.decode()
    guarded.turn_until(lambda: guarded.stop() is None)
    assert len(guarded.customers.rows()) == 60
    assert AuditLog.objects.filter(action="removals_refused").count() == 1
