"""The poller on the real hive: rounds, runs, comparisons, sources that cannot be read, and pollers
that share the policies."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis
from django.db import OperationalError, transaction
from django.db.models.signals import post_save
from django.utils import timezone

from crmsync import models
from crmsync.directory import Crms, Policies
from crmsync.intake import intake
from crmsync.models import ExceptionEntry, LandingPage, Lead, Operation, Record, Run
from crmsync.models.sources import MAX_RUN
from crmsync.monitor import backlog
from crmsync.orders import MainQueue, RetryQueue
from crmsync.poller import due, policy_poll
from crmsync.poller.changes import Changes
from crmsync.poller.policy_poll import PolicyPoll
from crmsync.poller.poller import PolicyLeases, Poll
from crmsync.poller.reading.increment import Increment, Row
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.data import ids, sql
from msgplatform.core.queues import jobs
from msgplatform.core.rates.backoff import Backoff
from msgplatform.models import Biz
from tests.integration.crmsync import sync_support
from tests.integration.crmsync.recovery_steps import record
from tests.integration.crmsync.sync_support import DEADLINE, crm
from tests.support import threads

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]

HOLDER = "h" * 32


def policy(name: str = "sales", **fields: Any) -> models.Policy:
    """The hive for a CRM that nobody can reach."""
    given: dict[str, Any] = {
        "settings": {"table": "customer"},
        "credentials": {"url": "sqlite:////nowhere.db"},
    }
    made = crm(name, **given)
    source = models.Source.hive()
    return models.Policy.objects.create(source=source, crm=made, mapping="name = name", **fields)


class Polled:
    """One policy, held by this test; the CRM's queues are emptied as a handler would."""

    def __init__(self, **fields: Any) -> None:
        self.row = policy(interval_seconds=1, sweep_cron="", **fields)
        self.policies, self.crms = Policies(), Crms()
        self.poll = PolicyPoll(self.row.pk, HOLDER, self.policies, self.crms, lambda _: None)
        self.biz = Biz.objects.create(name="cars")

    def lead(self, name: str) -> int:
        return self.leads(name)[0]

    def leads(self, *names: str) -> list[int]:
        """Leads of one statement, and so of one time: one look of the poller finds them all."""
        page = LandingPage(appkey="ad-1", biz=self.biz)
        new = [intake.make_lead(page, {"name": name}, "", None) for name in names]
        return [int(verdict.id) for verdict in intake.add_many(new)]

    def waiting(self, count: int) -> None:
        """Records that are sent once more, each of an operation of its own."""
        for request in sync_support.requests([f"w-{n}" for n in range(count)]):
            operation = sync_support.new_operation(self.row, [request])
            record(operation, request, Record.State.WAITING, next_at=sql.now())

    def turn(self) -> float:
        until = sql.now() + timedelta(seconds=60)
        models.Policy.objects.filter(pk=self.row.pk).update(claimed_by=HOLDER, lease_until=until)
        self.policies.refresh(at_once=True)
        self.crms.refresh(at_once=True)
        return self.poll.turn()

    def turn_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline
            if wait := self.turn():
                time.sleep(min(wait, 0.05))

    def look_once(self) -> None:
        """The next look by itself is far away, however slow this machine is."""
        models.Policy.objects.filter(pk=self.row.pk).update(interval_seconds=3600)

    def request(self, kind: str) -> None:
        models.Policy.objects.filter(pk=self.row.pk).update(requested=kind, requested_by="li")

    def confirm_all(self) -> None:
        """What a handler would do with everything that is queued."""
        for row in Record.objects.filter(state=Record.State.QUEUED):
            Record.objects.filter(pk=row.pk).update(
                state=Record.State.CONFIRMED, sent_version=row.version, sent_digest=row.digest,
                claimed_by="", next_at=None, sending_operation=0,
            )  # fmt: skip
        jobs.replace(MainQueue("sales").name, [])

    def last_run(self) -> Run:
        return Run.objects.latest("id")


@pytest.fixture
def polled() -> Polled:
    return Polled()


def is_read(*keys: int) -> Callable[[], bool]:
    return lambda: Record.objects.filter(key__in=map(str, keys)).count() == len(keys)


class TestRuns:
    def test_what_is_filled_in_is_on_its_way(self, polled: Polled) -> None:
        first, second = polled.leads("王", "Li")
        polled.turn_until(is_read(first, second))
        polled.turn_until(lambda: polled.last_run().state == Run.State.READ)
        run = polled.last_run()
        assert (run.kind, run.read, run.unchanged, run.requested_by) == ("changes", 2, 0, "")
        assert run.read_at is not None
        assert Operation.objects.get().run_id == run.pk
        assert MainQueue("sales").depth() == 1

    def test_a_look_that_finds_nothing_writes_nothing(self, polled: Polled) -> None:
        polled.look_once()
        polled.turn()
        assert not Run.objects.exists()
        assert polled.turn() > 0

    @pytest.mark.parametrize("kind", ["changes", "sweep"])
    def test_large_rows_go_in_several_operations(
        self, polled: Polled, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        """Servers refuse a statement that is too long, however often it is repeated."""
        keys = [polled.lead("x" * 100) for _ in range(7)]
        if kind == "sweep":
            polled.turn_until(is_read(*keys))
            polled.confirm_all()
            Record.objects.all().delete()
            Operation.objects.all().delete()
        monkeypatch.setattr("crmsync.poller.requests.MAX_BYTES", 400)
        polled.request(kind)

        def is_all_read() -> bool:
            jobs.replace(MainQueue("sales").name, [])  # or it is full
            return is_read(*keys)()

        polled.turn_until(is_all_read)
        sizes = [row.records for row in Operation.objects.all()]
        assert sum(sizes) == 7
        assert max(sizes) <= 2

    @pytest.mark.parametrize("kind", ["changes", "full", "sweep"])
    def test_a_run_that_was_asked_for_is_begun_once(self, polled: Polled, kind: str) -> None:
        """The policy as it is known still asks for it."""
        polled.look_once()
        polled.request(kind)
        polled.turn()
        polled.poll.turn()
        assert polled.poll.turn() > 0
        assert Run.objects.get().kind == kind

    def test_a_change_and_a_deletion_follow(self, polled: Polled) -> None:
        key = polled.lead("王")
        polled.turn_until(is_read(key))
        polled.confirm_all()
        Lead.objects.filter(pk=key).update(name="Wang")
        polled.turn_until(lambda: Record.objects.get().version > 1)
        changed = Record.objects.get().version
        polled.confirm_all()
        Lead.objects.filter(pk=key).update(is_delete=True)
        polled.turn_until(lambda: Record.objects.get().deleted)
        assert Record.objects.get().version > changed

    def test_everything_again_sends_what_the_mapping_changed(self, polled: Polled) -> None:
        keys = [polled.lead(name) for name in ("a", "b")]
        polled.turn_until(is_read(*keys))
        polled.confirm_all()
        polled.request("full")
        polled.turn_until(
            lambda: polled.last_run().kind == "full" and polled.last_run().state == Run.State.READ
        )
        run = polled.last_run()
        assert (run.read, run.requested_by, MainQueue("sales").depth()) == (2, "li", 0)
        models.Policy.objects.update(mapping='name = name\nphone = "none"')
        polled.request("full")
        polled.turn_until(lambda: MainQueue("sales").depth() == 1)
        assert {row.version for row in Record.objects.all()} == {1}

    def test_a_comparison_finds_what_the_watermark_passed(self, polled: Polled) -> None:
        keys = [polled.lead(name) for name in ("a", "b", "c")]
        polled.turn_until(is_read(*keys))
        polled.confirm_all()
        Record.objects.filter(key=str(keys[1])).delete()
        polled.request("sweep")
        polled.turn_until(is_read(*keys))
        polled.turn_until(lambda: polled.last_run().state != Run.State.READING)
        run = polled.last_run()
        assert (run.kind, run.read) == ("sweep", 1)
        (operation,) = Operation.objects.filter(run_id=run.pk)
        assert operation.records == 1
        assert not models.Policy.objects.get().requested

    def test_a_comparison_reads_no_leads_that_the_policy_never_carried(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that it carried before is compared: it may be deleted."""
        polled = Polled(appkeys=["ad-1"])
        key = polled.lead("a")
        polled.turn_until(is_read(key))
        polled.confirm_all()
        models.Policy.objects.update(appkeys=["ad-7"])
        polled.lead("b")
        Lead.objects.filter(pk=key).update(name="Wang")
        keys_read: list[Any] = []
        read_rows = Increment.rows

        def rows(increment: Increment, keys: Sequence[Any]) -> list[Row]:
            keys_read.extend(keys)
            return read_rows(increment, keys)

        monkeypatch.setattr(Increment, "rows", rows)
        polled.request("sweep")
        polled.turn_until(Run.objects.filter(kind="sweep", state=Run.State.READ).exists)
        assert keys_read == [key]

    def test_a_run_is_gone_on_with_by_the_next_holder(self, polled: Polled) -> None:
        written = sql.now()
        polled.lead("a")
        while sql.now() < written + timedelta(seconds=4):  # MariaDB's horizon has passed it then
            time.sleep(0.1)
        run = Run.objects.create(
            id=ids.new(0), policy_id=polled.row.pk, kind="changes", started_at=sql.now()
        )
        polled.turn_until(lambda: Run.objects.get(pk=run.pk).state == Run.State.READ)
        assert Run.objects.get().read == 1

    def test_a_run_whose_begin_was_stored_although_the_connection_broke_goes_on(
        self, polled: Polled
    ) -> None:
        key = polled.lead("a")
        polled.turn_until(is_read(key))
        polled.confirm_all()
        polled.look_once()
        errors = [OperationalError(2013, "Lost connection to server during query")]

        def lose_answer(**_kwargs: object) -> None:
            def after_commit() -> None:
                if errors:
                    raise errors.pop()

            transaction.on_commit(after_commit)

        polled.request("full")
        post_save.connect(lose_answer, sender=Run)
        try:
            polled.turn_until(
                lambda: Run.objects.filter(kind="full", state=Run.State.READ, read=1).exists()
            )
        finally:
            post_save.disconnect(lose_answer, sender=Run)
        assert not errors
        assert Run.objects.filter(kind="full").count() == 1

    @pytest.mark.parametrize("kind", ["changes", "full", "sweep"])
    def test_a_poller_that_has_lost_the_policy_begins_no_run(
        self, polled: Polled, kind: str
    ) -> None:
        polled.request(kind)
        polled.policies.refresh(at_once=True)
        polled.crms.refresh(at_once=True)
        until = sql.now() + timedelta(seconds=60)
        models.Policy.objects.update(claimed_by="x" * 32, lease_until=until)
        assert polled.poll.turn() > 0
        assert not Run.objects.exists()
        assert models.Policy.objects.get().requested == kind

    def test_only_the_newest_is_gone_on_with(self, polled: Polled) -> None:
        begun = {"policy_id": polled.row.pk, "started_at": sql.now()}
        pks = [Run.objects.create(id=ids.new(0), kind="full", **begun).pk for _ in range(3)]
        polled.policies.refresh(at_once=True)
        assert Changes(cast(Any, polled.policies.get(polled.row.pk)), HOLDER, cast(Any, None)).run
        left = Run.objects.filter(state=Run.State.READING)
        assert list(left.values_list("id", flat=True)) == [max(pks)]

    def test_a_run_that_is_too_old_to_be_gone_on_with_ends(self, polled: Polled) -> None:
        began_at = sql.now() - MAX_RUN - timedelta(days=1)
        run = Run.objects.create(
            id=ids.first_id_at(began_at), policy_id=polled.row.pk, kind="full", started_at=began_at
        )
        polled.policies.refresh(at_once=True)
        changes = Changes(cast(Any, polled.policies.get(polled.row.pk)), HOLDER, cast(Any, None))
        run.refresh_from_db()
        assert (changes.run, run.state) == (0, Run.State.READ)
        assert backlog.of_runs([run])[run.pk].is_over

    def test_so_is_a_comparison_behind_many_looks_for_changes(self, polled: Polled) -> None:
        row_ids = ids.reserve(31).ids([0] * 31)
        begun = {"policy_id": polled.row.pk, "started_at": sql.now()}
        left = Run.objects.create(id=row_ids[0], kind="sweep", after=0, **begun)
        Run.objects.bulk_create(
            Run(id=row_id, kind="changes", state=Run.State.READ, **begun) for row_id in row_ids[1:]
        )
        polled.turn_until(lambda: Run.objects.get(pk=left.pk).state == Run.State.READ)

    def test_what_is_written_after_the_clock_went_back_is_read(self, polled: Polled) -> None:
        first = polled.lead("a")
        polled.turn_until(is_read(first))
        ahead = sql.now() + timedelta(hours=1)
        rows = models.Watermark.objects.filter(policy_id=polled.row.pk)
        rows.update(update_time=f"{ahead:%Y-%m-%d %H:%M:%S.%f}")
        polled.poll._parts = None  # another poller begins here, an hour later by the watermark
        second = polled.lead("b")
        polled.turn_until(is_read(second))

    def test_a_run_that_has_begun_keeps_the_hours(self) -> None:
        """Not one that somebody asked for."""
        polled = Polled(batch_size=2)
        keys = [polled.lead("a") for _ in range(7)]
        written = sql.now()
        while sql.now() < written + timedelta(seconds=4):  # MariaDB's horizon has passed it then
            time.sleep(0.1)
        polled.turn_until(Operation.objects.exists)
        later = [timezone.localtime() + timedelta(hours=hours) for hours in (2, 3)]
        rows = models.Policy.objects.filter(pk=polled.row.pk)
        rows.update(hours="-".join(f"{each:%H:%M}" for each in later))
        for _ in range(3):
            assert polled.turn() > 0
        assert Operation.objects.count() == 1
        assert Run.objects.get().state == Run.State.READING
        polled.request("full")
        polled.turn_until(is_read(*keys))

    def test_a_comparison_that_is_asked_for_ends_one_that_pauses(self) -> None:
        polled = Polled(batch_size=1)
        keys = [polled.lead(name) for name in ("a", "b", "c")]
        polled.turn_until(is_read(*keys))
        rows = models.Policy.objects.filter(pk=polled.row.pk)
        rows.update(sweep_cron="* * * * *", swept_at=sql.now() - timedelta(days=1))
        sweeps = Run.objects.filter(kind="sweep")
        polled.turn_until(sweeps.exists)
        later = [timezone.localtime() + timedelta(hours=hours) for hours in (2, 3)]
        rows.update(hours="-".join(f"{each:%H:%M}" for each in later))
        polled.turn()
        assert sweeps.get().state == Run.State.READING
        polled.request("sweep")
        polled.turn_until(lambda: sweeps.count() == 2)
        polled.turn_until(lambda: sweeps.latest("id").state == Run.State.READ)
        assert sweeps.latest("id").requested_by == "li"
        assert polled.turn() > 0

    @pytest.mark.parametrize("what", ["look", "comparison"])
    def test_a_clock_that_goes_back_holds_up_nothing(
        self, polled: Polled, what: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = models.Policy.objects.filter(pk=polled.row.pk)
        ahead = SimpleNamespace(now=lambda: sql.now() + timedelta(hours=2))
        with monkeypatch.context() as context:
            context.setattr(policy_poll, "sql", ahead)
            first = polled.lead("a")
            polled.turn_until(is_read(first))
            polled.turn_until(lambda: polled.poll._looked_at)
        if what == "look":
            second = polled.lead("b")
            polled.turn_until(is_read(second))
            return
        rows.update(sweep_cron="* * * * *", swept_at=sql.now() + timedelta(hours=2))
        polled.turn()
        assert not Run.objects.filter(kind="sweep").exists()
        polled.poll._compared_at = sql.now() - timedelta(minutes=2)  # as if they had passed
        polled.turn_until(lambda: Run.objects.filter(kind="sweep").exists())

    def test_a_comparison_that_is_due_waits_for_the_hours(self, polled: Polled) -> None:
        key = polled.lead("a")
        later = [timezone.localtime() + timedelta(hours=hours) for hours in (2, 3)]
        rows = models.Policy.objects.filter(pk=polled.row.pk)
        rows.update(
            sweep_cron="* * * * *", swept_at=sql.now() - timedelta(days=1),
            hours="-".join(f"{each:%H:%M}" for each in later),
        )  # fmt: skip
        for _ in range(3):
            assert polled.turn() > 0
        assert not Run.objects.exists()
        rows.update(hours="")
        polled.turn_until(is_read(key))
        assert Run.objects.filter(kind="sweep").exists()


class TestTrouble:
    def test_a_paused_crm_is_not_read_for(self, polled: Polled) -> None:
        models.Crm.objects.update(paused_at=sql.now(), paused_because="wrong password")
        polled.lead("a")
        polled.turn()
        assert not Operation.objects.exists()

    def test_nothing_is_read_while_the_queue_is_full(self, polled: Polled) -> None:
        polled.lead("a")
        jobs.put(MainQueue("sales").name, [{}] * 4, ttl=60)
        pauses = [polled.turn() for _ in range(30)]
        assert not Operation.objects.exists()
        assert pauses[0] < 0.1
        assert 0.5 < pauses[-1] < 2
        jobs.replace(MainQueue("sales").name, [])
        polled.turn_until(Operation.objects.exists)

    def test_a_source_that_cannot_be_read_is_told_once(self, polled: Polled) -> None:
        models.Source.objects.update(table="no_such_table")
        polled.lead("a")
        for _ in range(3):
            polled.turn()
            polled.poll._read_at = 0.0  # the pause is over
        entry = ExceptionEntry.objects.get()
        assert (entry.kind, entry.policy_id) == ("source", polled.row.pk)
        assert "no_such_table" in entry.message
        assert polled.poll.facts().problem == entry.message
        models.Source.objects.update(table="lead")
        polled.turn_until(Operation.objects.exists)
        assert polled.poll.facts().problem == ""

    def test_a_source_that_nobody_reads_is_no_problem(self, polled: Polled) -> None:
        """It may be repaired after the hours. What somebody asks for is read at any hour."""
        models.Source.objects.update(table="no_such_table")
        polled.turn_until(lambda: polled.poll.facts().problem)
        later = [timezone.localtime() + timedelta(hours=hours) for hours in (2, 3)]
        models.Policy.objects.update(hours="-".join(f"{each:%H:%M}" for each in later))
        assert polled.turn() > 0
        assert polled.poll.facts().problem == ""
        polled.request("changes")
        polled.turn_until(lambda: polled.poll.facts().problem)
        polled.turn()
        assert "no_such_table" in polled.poll.facts().problem

    def test_what_is_due_goes_out_while_the_source_cannot_be_read(
        self, polled: Polled, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(due, "_MAX_OPERATIONS", 1)
        monkeypatch.setattr(policy_poll, "MAX_AWAY_PAUSE", 3600.0)
        polled.poll._trouble = Backoff(first=3600.0, factor=1.0, cap=3600.0, jitter=0.0)
        models.Source.objects.update(table="no_such_table")
        polled.waiting(3)
        assert [polled.turn() for _ in range(3)] == [1.0, 0.0, 0.0]
        assert RetryQueue("sales").depth() == 3
        assert ExceptionEntry.objects.get().kind == "source"

    def test_what_is_due_goes_out_while_a_run_waits_for_its_hours(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        polled = Polled(batch_size=2)
        polled.leads(*"abcdefg")
        polled.turn_until(lambda: polled.poll._has_more)
        later = [timezone.localtime() + timedelta(hours=hours) for hours in (2, 3)]
        rows = models.Policy.objects.filter(pk=polled.row.pk)
        rows.update(hours="-".join(f"{each:%H:%M}" for each in later))
        monkeypatch.setattr(due, "_MAX_OPERATIONS", 1)
        polled.waiting(2)
        assert [polled.turn() for _ in range(2)] == [0.0] * 2
        assert RetryQueue("sales").depth() == 2

    def test_a_long_resend_leaves_room_for_new_leads(
        self, polled: Polled, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also where one order at a time leaves the queue."""
        monkeypatch.setattr(due, "_MAX_OPERATIONS", 1)
        polled.waiting(20)
        jobs.put(MainQueue("sales").name, [{}] * 4, ttl=60)

        def has_looked() -> bool:
            main, retry = MainQueue("sales").name, RetryQueue("sales").name
            if sum(jobs.depths([main, retry]).values()) == 4:
                claimed = jobs.claim(main, 60) or jobs.claim(retry, 60)
                jobs.remove_orders([claimed] if claimed else [])
            return polled.poll._looked_at is not None

        polled.turn_until(has_looked)
        assert Record.objects.filter(state=Record.State.WAITING).count() > 10

    def test_a_resend_pauses_only_while_the_queue_is_full(
        self, polled: Polled, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(due, "_MAX_OPERATIONS", 1)
        polled.look_once()
        polled.turn()
        polled.waiting(5)
        pauses = [polled.turn() for _ in range(4)]
        assert (pauses[:3], RetryQueue("sales").depth()) == ([0, 0, 0], 4)
        assert 0 < pauses[3] < 0.1
        jobs.replace(RetryQueue("sales").name, [])
        assert (polled.turn(), RetryQueue("sales").depth()) == (0, 1)
        assert polled.turn() > 0.5

    def test_what_failed_goes_out_again_when_it_is_due(self, polled: Polled) -> None:
        key = polled.lead("a")
        polled.turn_until(is_read(key))
        jobs.replace(MainQueue("sales").name, [])
        soon = sql.now() + timedelta(seconds=1)
        Record.objects.update(state=Record.State.RETRY, attempt=1, next_at=soon, claimed_by="")
        polled.turn_until(lambda: RetryQueue("sales").depth() == 1)
        assert sql.now() >= soon


def look_again(leases: PolicyLeases, policies: Sequence[int]) -> None:
    """A turn that does not wait for the next renewal."""
    leases._next_renew.at_once()
    leases._next_look.at_once()
    leases.turn(policies)


class TestPolicyLeases:
    def test_two_share_and_one_takes_over(self, work_redis: redis.Redis) -> None:
        rows = [policy(name).pk for name in ("a", "b", "c", "d")]
        stopped: list[int] = []
        one, two = PolicyLeases(stopped.extend), PolicyLeases(stopped.extend)
        one.turn(rows)
        assert one.tokens.keys() == set(rows)
        two.turn(rows)
        assert two.tokens.keys() == set()
        look_again(one, rows)
        assert len(one.tokens.keys()) == 2
        assert set(stopped) == set(rows) - one.tokens.keys()
        look_again(two, rows)
        assert two.tokens.keys() == set(rows) - one.tokens.keys()
        one.end()
        look_again(two, rows)
        assert two.tokens.keys() == set(rows)

    def test_a_policy_that_is_taken_again_has_another_token(self, work_redis: redis.Redis) -> None:
        """A thread that hung since the first time stores nothing."""
        row_ids = [policy(name).pk for name in ("a", "b")]
        leases = PolicyLeases(lambda _: None)
        leases.turn(row_ids)
        first = dict(models.Policy.objects.values_list("pk", "claimed_by"))
        leases.release(row_ids[:1])
        look_again(leases, row_ids)
        look_again(leases, row_ids)  # both are renewed
        rows = models.Policy.objects.filter(pk__in=row_ids)
        now = dict(rows.values_list("pk", "claimed_by"))
        again, kept = (now[pk] == first[pk] for pk in row_ids)
        assert (again, kept) == (False, True)
        leases.end()
        assert set(rows.values_list("claimed_by", flat=True)) == {""}

    def test_work_stops_on_what_another_took(self, work_redis: redis.Redis) -> None:
        row = policy()
        stopped: list[int] = []
        leases = PolicyLeases(stopped.extend)
        leases.turn([row.pk])
        models.Policy.objects.update(claimed_by="x" * 32)
        look_again(leases, [row.pk])
        assert (leases.tokens, stopped) == ({}, [row.pk])


def test_the_program_reads_in_threads_of_its_own() -> None:
    polled = Polled()
    key = polled.lead("a")
    program = Poll()
    program.start()
    try:
        with threads.refusing("policy-"), pytest.raises(RuntimeError, match="new thread"):
            program.turn()
        deadline = time.monotonic() + DEADLINE
        while not is_read(key)():
            program.turn()
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        program.drain(time.monotonic() + 10)
        program.stop()
    assert models.Policy.objects.get().claimed_by == ""


def test_its_policies_are_free_after_a_stop_without_redis(settings: Any) -> None:
    policy()
    program = Poll()
    program.start()
    program.turn()
    assert models.Policy.objects.get().claimed_by
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    program.drain(time.monotonic() + 10)
    program.stop()
    assert models.Policy.objects.get().claimed_by == ""


def test_policies_whose_sources_hang_are_waited_for_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leases of the others are kept by the same loop."""
    monkeypatch.setattr("crmsync.poller.poller._ROUND_SECONDS", 0.5)
    answered, begun = threading.Event(), threading.Barrier(9)
    waits: list[float] = []

    class Loop(ThreadLoop):
        def stop(self, wait: float = 0.0) -> None:
            waits.append(wait)
            super().stop(wait)

    def hang() -> float:
        begun.wait(180)
        answered.wait(180)
        return 0.0

    program = Poll()
    for number in range(8):
        loop = Loop(f"policy-{number}", hang)
        program._polls[number] = cast(PolicyPoll, None), loop
        loop.start()
    begun.wait(180)
    program.stop_threads(range(8))
    answered.set()
    assert sum(waits) < 1, "one after another it would be 4 s"
