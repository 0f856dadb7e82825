"""What a round makes of rows that were read, and what is due again."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from crmsync import copies, directory, models, orders
from crmsync.models import Operation, Record, RecoveryEntry
from crmsync.monitor import failures
from crmsync.orders import MainQueue, Order, RetryQueue
from crmsync.poller import due, removal_guard, requests
from crmsync.poller.decisions import Decisions, Round, StoredRound
from crmsync.poller.distribution import DistributionCenter
from crmsync.poller.reading.increment import Row, Watermark
from crmsync.poller.store import store, store_or_set_aside
from crmsync.recovery import actions, entries
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import LeaseLost
from msgplatform.core.queues import jobs
from msgplatform.models import MinuteCounter
from tests.integration.crmsync import recovery_steps, sync_support
from tests.integration.crmsync.sync_support import Store
from tests.servers import Servers
from tests.support.cutting_proxy import CuttingProxy
from tests.support.json_stub import Answer, asked, serving

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

HOLDER = "h" * 32
State = Record.State


class Poller:
    """A policy that this test holds, and rounds with rows of its own."""

    def __init__(self, **fields: Any) -> None:
        self.crm_row = models.Crm.objects.create(
            name="sales", adapter="sql", settings={"table": "customer"},
            credentials={"url": "sqlite:////nowhere.db"},
        )  # fmt: skip
        given = {"mapping": "full_name = name\nmail = extra.email", **fields}
        source = models.Source.hive()
        self.row = models.Policy.objects.create(source=source, crm=self.crm_row, **given)
        self.hold(60)
        self.crm = directory.crm_from_row(self.crm_row)

    @property
    def policy(self) -> models.Policy:
        return models.Policy.objects.select_related("source").get(pk=self.row.pk)

    def hold(self, seconds: float) -> None:
        until = sql.now() + timedelta(seconds=seconds)
        models.Policy.objects.filter(pk=self.row.pk).update(claimed_by=HOLDER, lease_until=until)

    def serve(self, crm: models.Crm) -> None:
        """Read for another CRM."""
        models.Policy.objects.filter(pk=self.row.pk).update(crm=crm)
        self.crm = directory.crm_from_row(crm)

    def send(self, *rows: Row) -> None:
        """A round whose records a handler sends."""
        self.deliver(*self.round(*rows))

    def deliver(self, this: Round, stored: StoredRound) -> None:
        DistributionCenter(self.policy).distribute(self.crm, this, stored)
        with sync_support.running() as handler:
            sync_support.turn_until(
                handler, lambda: not Record.objects.filter(claimed_by=this.claim).exists()
            )

    def released(self) -> list[orders.Entry]:
        """Removals, as they are sent once the guard has let them go."""
        removal_guard.settle(self.policy, HOLDER, is_reading=False)
        return list(due.claim(self.policy, self.crm.id, 100).entries)

    def round(self, *rows: Row, run: int = 0, are_new: bool = False) -> tuple[Round, StoredRound]:
        operation = ids.new(0)
        mark = Watermark(rows[-1].time, rows[-1].key) if rows else None
        wanted = requests.make_requests(self.policy, rows, operation)
        this = Round(self.policy, HOLDER, self.crm.id, operation, run, wanted, mark, are_new)
        return this, store(this)


def lead(key: int, version: int = 1, name: str = "王", deleted: bool = False, **values: Any) -> Row:
    values = {"biz_id": 1, "appkey": "ad", "name": name, "extra": "{}", **values}
    return Row(key, f"2026-11-22 08:00:{version:02d}.000000", deleted, version, values)


def record(key: int = 1) -> Record:
    return Record.objects.get(key=str(key))


def mark(key: int, **fields: Any) -> None:
    """What a handler would write."""
    Record.objects.filter(key=str(key)).update(**fields)


def confirm(key: int) -> None:
    row = record(key)
    mark(
        key, state=State.CONFIRMED, sent_version=row.version, sent_digest=row.digest,
        remote_id="r-1", claimed_by="", next_at=None, sending_operation=0,
    )  # fmt: skip


def counts(operation: int) -> tuple[int, int, int, int, int | None]:
    row = Operation.objects.get(pk=operation)
    return row.records, row.confirmed, row.replaced, row.dead, row.result


@pytest.fixture
def poller() -> Poller:
    return Poller()


class TestNew:
    def test_everything_is_stored_in_one_step(self, poller: Poller) -> None:
        this, stored = poller.round(lead(1), lead(2, name="Li", extra='{"email": "l@x.cn"}'))
        row = record(2)
        assert (row.state, row.version, row.attempt) == (State.QUEUED, 1, 0)
        assert (row.operation_id, row.sending_operation) == (this.operation, this.operation)
        assert (row.claimed_by, row.sent_version) == (this.claim, 0)
        assert row.next_at is not None
        assert row.next_at.timestamp() == pytest.approx(stored.lease_until, abs=0.01)
        data = json.loads(bytes(Operation.objects.get().data))
        assert data == [
            {"key": "1", "version": 1, "fields": {"full_name": "王"}, "previous": 0},
            {"key": "2", "version": 1, "fields": {"full_name": "Li", "mail": "l@x.cn"},
             "previous": 0},
        ]  # fmt: skip
        mark_row = models.Watermark.objects.get()
        assert (mark_row.update_time, mark_row.key) == ("2026-11-22 08:00:01.000000", 2)
        assert [entry.record for entry in stored.entries] == [record(1).pk, record(2).pk]
        assert MinuteCounter.objects.get(flow="crmsync", name="read").value == 2

    def test_the_same_rows_again_are_nothing_new(self, poller: Poller) -> None:
        poller.round(lead(1))
        before = record().operation_id
        _, again = poller.round(lead(1))
        assert (again.entries, again.operation, record().operation_id) == ([], None, before)

    def test_a_lead_that_was_deleted_before_anybody_read_it(self, poller: Poller) -> None:
        _, stored = poller.round(lead(1, deleted=True))
        assert (stored.entries, stored.operation, stored.unchanged) == ([], None, 1)
        assert (record().state, record().sent_version) == (State.CONFIRMED, 1)

    def test_without_the_lease_nothing_is_stored(self, poller: Poller) -> None:
        poller.hold(-1)
        with pytest.raises(LeaseLost):
            poller.round(lead(1))
        assert not Record.objects.exists()
        assert not Operation.objects.exists()
        assert not models.Watermark.objects.exists()

    def test_a_round_that_breaks_off_moves_no_watermark(
        self, poller: Poller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else its rows would never be read again."""
        poller.round(lead(1))
        before = models.Watermark.objects.values().get()
        write = Decisions.write

        def write_and_break_off(decisions: Decisions) -> None:
            write(decisions)
            raise InterruptedError

        with monkeypatch.context() as patches:
            patches.setattr(Decisions, "write", write_and_break_off)
            with pytest.raises(InterruptedError):
                poller.round(lead(2, version=2))
        assert models.Watermark.objects.values().get() == before
        assert not Record.objects.filter(key="2").exists()

    def test_leads_of_other_systems_are_passed_over(self) -> None:
        poller = Poller(appkeys=["ad-7"])
        poller.round(lead(1), lead(2, appkey="ad-7"))
        assert list(Record.objects.values_list("key", flat=True)) == ["2"]
        assert models.Watermark.objects.get().key == 2

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_keys_that_differ_in_blanks_at_the_end_alone(
        self, poller: Poller, is_deleted: bool
    ) -> None:
        """MariaDB takes them for one: the later row changes nothing about the earlier one."""
        poller.round(replace(lead(1), key="a"))
        Record.objects.update(state=State.CONFIRMED, remote_id="r-1", claimed_by="", next_at=None)
        before = Record.objects.values().get()
        row = replace(lead(1, 2, "Li", deleted=is_deleted), key="a ")
        for _ in range(2):  # it is read twice
            operation = ids.new(0)
            row_requests = requests.make_requests(poller.policy, [row], operation)
            store_or_set_aside(
                Round(poller.policy, HOLDER, poller.crm.id, operation, 0, row_requests, None)
            )
        assert Record.objects.values().get(pk=before["id"]) == before
        other = Record.objects.exclude(pk=before["id"]).get()
        if is_deleted:
            assert other.state == State.CONFIRMED
        elif connection.vendor == "mysql":
            entry = RecoveryEntry.objects.get()
            assert (other.state, other.key[:3], entry.key) == (State.DEAD, "a ~", other.key)
            assert entry.reason.startswith("Another row has this key, but for blanks at the end")
        else:
            assert (other.state, other.key) == (State.QUEUED, "a ")


class TestChanged:
    def test_a_new_version_goes_out(self, poller: Poller) -> None:
        poller.round(lead(1))
        confirm(1)
        this, stored = poller.round(lead(1, 2, "Zhang"))
        (entry,) = stored.entries
        assert (entry.request.fields, entry.remote_id) == ({"full_name": "Zhang"}, "r-1")
        assert (record().state, record().operation_id) == (State.QUEUED, this.operation)

    def test_no_call_when_the_crm_has_it_already(self, poller: Poller) -> None:
        poller.round(lead(1))
        confirm(1)
        _, stored = poller.round(lead(1, 2, phone="something that is not mapped"))
        assert (stored.entries, stored.unchanged) == ([], 1)
        assert (record().version, record().sent_version) == (2, 2)
        assert record().state == State.CONFIRMED

    def test_an_older_version_is_left(self, poller: Poller) -> None:
        poller.round(lead(1, 3))
        confirm(1)
        _, stored = poller.round(lead(1, 2, "older"))
        assert (stored.entries, record().version) == ([], 3)

    def test_a_row_without_a_version_is_older_than_any_with_one(self, poller: Poller) -> None:
        poller.round(replace(lead(1), version=None))
        confirm(1)
        _, same_version = poller.round(replace(lead(1, name="Li"), version=None))
        confirm(1)
        _, stored = poller.round(lead(1, 1, "Zhang"))
        assert [len(each.entries) for each in (same_version, stored)] == [1, 1]
        assert record().version == 1

    def test_a_deletion_has_no_fields(self, poller: Poller) -> None:
        poller.round(lead(1))
        confirm(1)
        _, stored = poller.round(lead(1, 2, deleted=True))
        assert (stored.entries, stored.held) == ([], 1)
        (entry,) = poller.released()
        assert (entry.request.deleted, entry.request.fields) == (True, {})

    def test_a_row_that_comes_back_as_the_crm_has_it_solves_its_entry(self, poller: Poller) -> None:
        poller.round(lead(1))
        confirm(1)
        poller.round(lead(1, 2, extra="no json"))
        assert [failure.count for failure in failures.failures()] == [1]
        poller.round(lead(1, 3, deleted=True))
        assert record().state == State.HELD
        poller.round(lead(1, 4))
        assert record().state == State.CONFIRMED
        assert RecoveryEntry.objects.get().state == RecoveryEntry.State.SOLVED
        assert list(failures.failures()) == []

    def test_what_is_on_its_way_is_not_sent_twice(self, poller: Poller) -> None:
        first, _ = poller.round(lead(1))
        second, stored = poller.round(lead(1, 2, "Li"))
        assert stored.entries == []
        row = record()
        assert (row.state, row.claimed_by, row.version) == (State.QUEUED, first.claim, 2)
        assert (row.operation_id, row.sending_operation) == (second.operation, first.operation)
        poller.round(lead(1, 3))
        assert counts(second.operation) == (1, 0, 1, 0, 1)  # it was never sent
        assert counts(first.operation) == (1, 0, 0, 0, None)  # its handler says how it ended

    def test_a_newer_version_replaces_one_that_waits_for_another_try(self, poller: Poller) -> None:
        first, _ = poller.round(lead(1))
        mark(1, state=State.RETRY, attempt=2, claimed_by="", sending_operation=0)
        _, stored = poller.round(lead(1, 2, "Li"))
        assert len(stored.entries) == 1
        assert (record().state, record().attempt) == (State.QUEUED, 0)
        assert counts(first.operation) == (1, 0, 1, 0, 1)

    def test_a_lost_handler_is_looked_up(self, poller: Poller) -> None:
        first, _ = poller.round(lead(1))
        mark(1, next_at=sql.now() - timedelta(seconds=1))
        _, stored = poller.round(lead(1, 2, "Li"))
        assert [entry.check for entry in stored.entries] == [True]
        assert counts(first.operation) == (1, 0, 1, 0, 1)


@pytest.mark.usefixtures("work_redis")
def test_a_record_is_never_longer_than_before(tmp_path: Path) -> None:
    """InnoDB would write its whole page anew."""
    poller = Poller(mapping="name = name")
    poller.serve(sync_support.Customers(tmp_path).crm("shop"))

    def length() -> int:
        row = record()
        texts = (row.claimed_by, row.room, row.sent_digest, row.remote_id, row.error_class)
        return sum(map(len, texts)) + 8 * bool(row.next_at)

    lengths = []
    for version in (1, 2, 3):
        this, stored = poller.round(lead(1, version, name=f"name {version}"))
        lengths.append(length())
        poller.deliver(this, stored)
        assert record().state == State.CONFIRMED
        lengths.append(length())
    assert lengths[1:] == [lengths[1]] * 5
    assert lengths[0] >= lengths[1]


class TestTakenOff:
    @pytest.mark.parametrize("are_new", [False, True])
    def test_of_an_appkey_that_was_taken_off_only_deletions_are_sent(self, are_new: bool) -> None:
        """Of leads that the CRM has: their erasure waits for it."""
        poller = Poller(appkeys=["ad", "ad-7"])
        poller.round(lead(1), lead(2, appkey="ad-7"))
        confirm(1)
        confirm(2)
        models.Policy.objects.update(appkeys=["ad-7"])
        _, changed = poller.round(lead(1, 2, "Zhang"))
        assert (changed.entries, record().version) == ([], 1)
        rows = [lead(1, 3, deleted=True), lead(3, deleted=True), lead(4, appkey="ad-7")]
        _, stored = poller.round(*rows, are_new=are_new)
        sent = [*stored.entries, *poller.released()]
        keys = sorted((entry.request.key, entry.request.deleted) for entry in sent)
        assert keys == [("1", True), ("4", False)]
        assert {entry.remote_id for entry in sent} == {"r-1", ""}
        assert not Record.objects.filter(key="3").exists()
        assert stored.read == 2
        confirm(1)
        _, again = poller.round(lead(1, 3, deleted=True))
        assert again.entries == []


class TestDismissed:
    def test_a_dismissed_version_stays_dismissed_whatever_the_mapping(self, poller: Poller) -> None:
        poller.round(lead(1))
        mark(1, state=State.DISMISSED, next_at=None, claimed_by="")
        models.Policy.objects.update(mapping="name = name")
        _, stored = poller.round(lead(1))
        assert (stored.entries, record().state) == ([], State.DISMISSED)
        _, stored = poller.round(lead(1, 2))  # the source has a newer one
        assert (len(stored.entries), record().state) == (1, State.QUEUED)

    @pytest.mark.parametrize("state", [State.DISMISSED, State.DEAD])
    def test_without_versions_only_a_changed_row_is_sent(
        self, poller: Poller, state: State
    ) -> None:
        poller.row.source.version_column = ""
        poller.row.source.save()
        poller.round(lead(1))
        mark(1, state=state, next_at=None, claimed_by="")
        _, stored = poller.round(lead(1))
        assert (stored.entries, record().state) == ([], state)
        _, stored = poller.round(lead(1, name="Zhang"))
        assert (len(stored.entries), record().state) == (1, State.QUEUED)

    @pytest.mark.parametrize("version_column", ["version", ""])
    def test_a_refused_row_that_was_to_be_read_again_stays_dismissed(
        self, poller: Poller, version_column: str
    ) -> None:
        poller.row.source.version_column = version_column
        poller.row.source.save()
        poller.round(lead(1, extra="no json"))
        before = record()
        entry = RecoveryEntry.objects.get()
        actions.retry([entry.pk], "ann")  # its row is not read yet
        assert actions.dismiss([entry.pk], "ann") == 1
        assert (record().version, record().digest) == (before.version, before.digest)
        _, stored = poller.round(lead(1, extra="no json"))
        assert (stored.requests, record().state) == ([], State.DISMISSED)
        _, stored = poller.round(lead(1, 2))
        assert (len(stored.entries), record().state) == (1, State.QUEUED)


class TestCorrected:
    @pytest.mark.parametrize("version_column", ["version", ""])
    def test_the_row_read_once_more_does_not_undo_a_correction(
        self, poller: Poller, version_column: str
    ) -> None:
        poller.row.source.version_column = version_column
        poller.row.source.save()
        poller.round(lead(1, name="too long"))
        row = record()
        mark(1, state=State.DEAD, claimed_by="", next_at=None, sending_operation=0)
        entry = recovery_steps.entry(row, poller.row)
        actions.edit_and_retry(entry.pk, {"full_name": "short"}, "ann")

        # As a poller does that is started again, or that a person asks for everything.
        _this, stored = poller.round(lead(1, name="too long"))
        assert stored.requests == []
        claimed = due.claim(poller.policy, poller.crm.id, 10)
        assert [each.request.fields for each in claimed.entries] == [{"full_name": "short"}]
        confirm(1)
        _this, stored = poller.round(lead(1, name="too long"))
        assert stored.requests == []
        _this, stored = poller.round(lead(1, version=2, name="new"))
        assert [each.fields for each in stored.requests] == [{"full_name": "new"}]

    @pytest.mark.parametrize("extra", ["{}", "no json"])
    @pytest.mark.parametrize("is_on_its_way", [False, True])
    def test_a_newer_version_with_the_same_values_does_not_undo_one_that_is_not_confirmed_yet(
        self, poller: Poller, is_on_its_way: bool, extra: str
    ) -> None:
        poller.round(lead(1, name="too long", extra=extra))
        mark(1, state=State.DEAD, claimed_by="", next_at=None, sending_operation=0)
        entry = RecoveryEntry.objects.first() or recovery_steps.entry(record(), poller.row)
        actions.edit_and_retry(entry.pk, {"full_name": "short"}, "ann")
        if is_on_its_way:
            due.claim(poller.policy, poller.crm.id, 10)
        before = record()

        _, stored = poller.round(lead(1, version=2, name="too long", extra=extra))
        assert (stored.requests, stored.unchanged) == ([], 1)
        row = record()
        assert (row.version, row.state, row.claimed_by) == (2, before.state, before.claimed_by)
        mark(1, state=State.WAITING, next_at=sql.now())  # as after an answer that stored nothing
        claimed = due.claim(poller.policy, poller.crm.id, 10)
        (request,) = [each.request for each in claimed.entries]
        assert (request.version, request.fields) == (2, {"full_name": "short"})
        _, stored = poller.round(lead(1, version=3, name="new"))
        assert [each.fields for each in stored.requests] == [{"full_name": "new"}]

    @pytest.mark.parametrize("version_column", ["version", ""])
    def test_a_row_that_was_refused_and_corrected_is_dead_when_it_changes_and_is_refused_again(
        self, poller: Poller, version_column: str
    ) -> None:
        poller.row.source.version_column = version_column
        poller.row.source.save()
        poller.round(lead(1, extra="no json"))
        actions.edit_and_retry(RecoveryEntry.objects.get().pk, {"full_name": "王"}, "ann")
        confirm(1)

        poller.round(lead(1, extra="no json"))
        assert record().state == State.CONFIRMED
        poller.round(lead(1, version=2, extra="no JSON either"))
        assert record().state == State.DEAD
        entry = RecoveryEntry.objects.get(state=RecoveryEntry.State.OPEN)
        assert (entry.record_id, entry.version) == (record().pk, record().version)


class TestMapping:
    def test_a_row_that_cannot_be_mapped_is_dead_with_a_reason(self, poller: Poller) -> None:
        this, stored = poller.round(lead(1, extra="no json"), lead(2))
        assert [entry.record for entry in stored.entries] == [record(2).pk]
        assert (record(1).state, record(1).error_class) == (State.DEAD, "mapping")
        entry = RecoveryEntry.objects.get()
        assert (entry.record_id, entry.field) == (record(1).pk, "mail")
        assert "JSON" in entry.reason
        assert counts(this.operation) == (2, 0, 0, 1, None)

    def test_one_that_may_be_stored_is_looked_up_when_it_is_tried_again(
        self, work_redis: redis.Redis, settings: Any
    ) -> None:
        settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
        poller, crm = Poller(mapping="name = name\nmail = extra.email"), Store()
        crm.says["1"] = [sync_support.stored(Answer({"message": "oops"}, 500))]
        with serving(crm) as server:
            poller.serve(sync_support.http_crm(server, crm, retry_seconds=[3600]))
            poller.send(lead(1))
            assert (record().state, record().error_class) == (State.RETRY, "unknown")
            poller.round(lead(1, version=2, extra="no json"))
            entry = RecoveryEntry.objects.get()
            assert (record().state, entry.error_class) == (State.DEAD, "mapping")
            assert actions.retry([entry.pk], "ann") == 1
            assert record().version == -1  # it is read again
            poller.send(lead(1, version=2))
        assert record().state == State.CONFIRMED
        assert [request.method for request in asked(server)] == ["POST", "GET", "PATCH"]

    def test_one_that_is_nested_too_deeply_holds_up_no_other(self, poller: Poller) -> None:
        deep = '{"a":' * 5000 + "1" + "}" * 5000
        _, stored = poller.round(lead(1, extra=deep), lead(2))
        assert [entry.record for entry in stored.entries] == [record(2).pk]
        assert (record(1).state, record(1).error_class) == (State.DEAD, "mapping")

    def test_one_that_is_too_large_to_be_stored_holds_up_no_other(
        self, poller: Poller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("crmsync.poller.requests.MAX_BYTES", 400)
        this, stored = poller.round(lead(1, name="x" * 400), lead(2))
        assert [entry.record for entry in stored.entries] == [record(2).pk]
        assert (record(1).state, record(1).error_class) == (State.DEAD, "mapping")
        assert len(bytes(Operation.objects.get(pk=this.operation).data)) < 400
        assert "400 can be carried" in RecoveryEntry.objects.get().reason

    def test_a_newer_row_that_can_be_goes_out(self, poller: Poller) -> None:
        poller.round(lead(1, extra="no json"))
        _, stored = poller.round(lead(1, 2))
        assert len(stored.entries) == 1
        assert record().state == State.QUEUED

    def test_one_that_cannot_be_mapped_does_not_wait_behind_another(self, poller: Poller) -> None:
        """It would go out without fields."""
        first, _ = poller.round(lead(1))
        second, stored = poller.round(lead(1, 2, extra="no json"))
        assert (stored.entries, record().state) == ([], State.DEAD)
        assert RecoveryEntry.objects.get().version == 2
        assert counts(first.operation) == (1, 0, 1, 0, 1)
        assert counts(second.operation) == (1, 0, 0, 1, 0)

    def test_one_entry_a_record(self, poller: Poller) -> None:
        poller.round(lead(1, extra="no json"))
        poller.round(lead(1, 2, extra="no json"))
        assert RecoveryEntry.objects.get().version == 2


class TestDue:
    def test_what_waits_and_what_failed_goes_out_again(self, poller: Poller) -> None:
        this, _ = poller.round(lead(1), lead(2), lead(3), lead(4))
        past = sql.now() - timedelta(seconds=1)
        mark(1, state=State.RETRY, attempt=2, next_at=past, claimed_by="")
        mark(2, state=State.WAITING, next_at=past, claimed_by="")
        mark(3, next_at=past)  # its handler is gone
        mark(4, state=State.RETRY, next_at=sql.now() + timedelta(hours=1), claimed_by="")
        assert due.is_due(poller.policy.id, sql.now())
        found = due.claim(poller.policy, poller.crm.id, 100)
        by_record = {entry.record: entry for entry in found.entries}
        assert set(by_record) == {record(n).pk for n in (1, 2, 3)}
        assert by_record[record(1).pk].attempt == 2
        assert [by_record[record(n).pk].check for n in (1, 2, 3)] == [False, False, True]
        assert record(3).error_class == "unknown"
        assert {entry.operation for entry in found.entries} == {this.operation}
        for n in (1, 2, 3):
            assert (record(n).state, record(n).claimed_by) == (State.QUEUED, found.claim)
        assert not due.is_due(poller.policy.id, sql.now())

    def test_no_more_than_asked_for(self, poller: Poller) -> None:
        poller.round(*[lead(n) for n in range(1, 8)])
        Record.objects.update(state=State.WAITING, next_at=sql.now())
        assert len(due.claim(poller.policy, poller.crm.id, 5).entries) == 5

    def test_what_was_sent_before_comes_before_what_waits(self, poller: Poller) -> None:
        """A resend of many records is long."""
        poller.round(*[lead(n) for n in range(1, 8)])
        now = sql.now()
        Record.objects.update(state=State.WAITING, next_at=now - timedelta(hours=1), claimed_by="")
        mark(6, state=State.RETRY, next_at=now)
        mark(7, state=State.QUEUED, next_at=now, claimed_by="x" * 32)  # its handler is gone
        found = due.claim(poller.policy, poller.crm.id, 3)
        records = {entry.record for entry in found.entries}
        assert {record(6).pk, record(7).pk} < records

    def test_the_newest_version_is_what_goes_out(self, poller: Poller) -> None:
        first, _ = poller.round(lead(1))
        second, _ = poller.round(lead(1, 2, "newer"))
        mark(1, next_at=sql.now() - timedelta(seconds=1))  # the handler of the first is gone
        (entry,) = due.claim(poller.policy, poller.crm.id, 9).entries
        assert (entry.operation, entry.request.fields["full_name"]) == (second.operation, "newer")
        assert counts(first.operation) == (1, 0, 1, 0, 1)

    def test_a_version_that_made_no_call_goes_out_with_what_was_sent(self, poller: Poller) -> None:
        """Such as when the CRM lost its data, and everything is sent again."""
        this, _ = poller.round(lead(1))
        confirm(1)
        poller.round(lead(1, 2, phone="not mapped"))
        entries.resend([record().pk], sql.now() + timedelta(seconds=1), "ann")
        (entry,) = due.claim(poller.policy, poller.crm.id, 9).entries
        assert (entry.operation, entry.request.version) == (this.operation, 2)
        assert orders.digest(entry.request) == record().digest

    @pytest.mark.parametrize(
        ("state", "before", "after"),
        [
            (State.WAITING, "", "fault"),
            (State.WAITING, "unknown", "unknown"),
            (State.QUEUED, "", "unknown"),  # its handler is gone, and may have sent it
        ],
    )
    def test_a_lost_operation_is_a_persons(
        self, poller: Poller, state: State, before: str, after: str
    ) -> None:
        """A record that may be stored is looked up all the same when it is tried again."""
        this, _ = poller.round(lead(1))
        Operation.objects.all().delete()
        mark(1, state=state, next_at=sql.now(), error_class=before)
        assert due.claim(poller.policy, poller.crm.id, 9).entries == []
        assert (record().state, record().error_class) == (State.DEAD, after)
        entry = RecoveryEntry.objects.get()
        assert entry.error_class == "fault"
        assert f"--operation {this.operation}" in entry.reason
        actions.retry([entry.pk], "ann")
        _, stored = poller.round(lead(1))
        assert [one.check for one in stored.entries] == [after == "unknown"]


class TestFirstLoad:
    def test_records_are_stored_without_a_look(self, poller: Poller) -> None:
        with CaptureQueriesContext(connection) as queries:
            _, stored = poller.round(lead(1), lead(2), lead(3, deleted=True), are_new=True)
        assert not [q for q in queries if q["sql"].startswith("SELECT `sync_record`")]
        assert stored.are_new
        assert [entry.request.key for entry in stored.entries] == ["1", "2"]
        states = dict(Record.objects.values_list("key", "state"))
        assert states == {"1": State.QUEUED, "2": State.QUEUED, "3": State.CONFIRMED}

    def test_one_that_exists_all_the_same_is_treated_as_ever(self, poller: Poller) -> None:
        poller.round(lead(1, version=5))
        confirm(1)
        _, stored = poller.round(lead(1, version=4), lead(2), are_new=True)
        assert not stored.are_new
        assert [entry.request.key for entry in stored.entries] == ["2"]
        assert (record(1).version, record(1).state) == (5, State.CONFIRMED)
        _, stored = poller.round(lead(3), lead(1, version=6, name="Li"), are_new=True)
        [first, second] = stored.entries
        assert (second.record, second.remote_id) == (record(1).pk, "r-1")
        assert [first.request.previous, second.request.previous] == [
            0, Operation.objects.order_by("id")[0].pk,
        ]  # fmt: skip

    def test_a_deletion_of_one_that_the_crm_has(self, poller: Poller) -> None:
        poller.round(lead(1))
        confirm(1)
        _, stored = poller.round(lead(1, version=2, deleted=True), are_new=True)
        assert stored.held == 1
        [entry] = poller.released()
        assert (entry.request.deleted, entry.remote_id) == (True, "r-1")
        assert (record(1).state, record(1).sent_version) == (State.QUEUED, 1)


class TestQueues:
    def test_the_copy_comes_before_the_work(self, poller: Poller, work_redis: redis.Redis) -> None:
        this, stored = poller.round(lead(1))
        DistributionCenter(poller.policy).distribute(poller.crm, this, stored)
        claimed = MainQueue("sales").claim()
        assert claimed is not None
        order: Order = claimed.data
        assert (order.claim, order.policy) == (this.claim, poller.policy.id)
        assert [entry.request for entry in order.entries] == stored.requests
        row = Operation.objects.get()
        expected = copies.Copy(
            row.pk, row.policy_id, bytes(row.data), row.start_at, row.end_at, row.result
        )
        assert copies.read([this.operation]) == {this.operation: expected}

    def test_a_queue_that_takes_nothing_is_reported_and_repaired(
        self, poller: Poller, work_redis: redis.Redis
    ) -> None:
        this, stored = poller.round(lead(1))
        center = DistributionCenter(poller.policy)
        queues = ("rq:queue:crm-main-sales", "rq:queue:crm-retry-sales")
        for queue in queues:
            work_redis.set(queue, "in the way")
        with pytest.raises(redis.RedisError):
            center.distribute(poller.crm, this, stored)
        entry = RecoveryEntry.objects.get()
        assert (entry.error_class, entry.operation_id) == ("queue", this.operation)
        assert record().state == State.WAITING
        with pytest.raises(redis.RedisError):
            center.retry(poller.crm, due.claim(poller.policy, poller.crm.id, 9))
        assert RecoveryEntry.objects.count() == 1
        work_redis.delete(*queues)
        again = due.claim(poller.policy, poller.crm.id, 9)
        assert again.entries[0].check, "an answer of Redis that was lost says nothing"
        center.retry(poller.crm, again)
        assert RetryQueue("sales").depth() == 1
        entry.refresh_from_db()
        assert entry.state == RecoveryEntry.State.SOLVED

    def test_work_that_a_queue_may_have_taken_waits_for_the_end_of_its_lease(
        self,
        poller: Poller,
        work_redis: redis.Redis,
        servers: Servers,
        settings: Any,
        tmp_path: Path,
    ) -> None:
        """A handler may be sending it: the CRM does not show yet what it will have."""
        this, stored = poller.round(lead(1))
        path = tmp_path / "p.sock"
        with CuttingProxy(path, servers.work.socket, b"\r\nEXEC\r\n", arrives=True) as proxy:
            settings.REDIS_URL = f"unix://{proxy.path}"
            with pytest.raises(redis.ConnectionError):
                DistributionCenter(poller.policy).distribute(poller.crm, this, stored)
        assert work_redis.llen("rq:queue:crm-main-sales")
        assert (record().state, record().claimed_by) == (State.QUEUED, "")
        assert not due.claim(poller.policy, poller.crm.id, 9).entries
        Record.objects.update(next_at=sql.now())  # the end of the lease
        (entry,) = due.claim(poller.policy, poller.crm.id, 9).entries
        assert entry.check

    def test_a_copy_that_cannot_be_kept_is_told_too(
        self, poller: Poller, work_redis: redis.Redis
    ) -> None:
        this, stored = poller.round(lead(1))
        work_redis.set(copies.INDEX, "in the way")
        with pytest.raises(redis.RedisError):
            DistributionCenter(poller.policy).distribute(poller.crm, this, stored)
        assert RecoveryEntry.objects.get().error_class == "queue"
        assert (record().state, record().claimed_by) == (State.WAITING, "")

    def test_no_more_than_a_crm_can_take(self, poller: Poller, work_redis: redis.Redis) -> None:
        center = DistributionCenter(poller.policy)
        assert center.capacity(poller.crm, None) > 0
        jobs.put(MainQueue("sales").name, [{}] * 4, ttl=60)
        assert center.capacity(poller.crm, None) == 0
