"""The handler in trouble: CRMs that are slow, full, down or refuse; adapters that raise; kills."""

import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from redis import Redis

from crmsync import directory, presence
from crmsync.adapters.base import CRMAdapter, Record as AdapterRecord
from crmsync.adapters.registry import registry
from crmsync.adapters.sql.adapter import SqlAdapter
from crmsync.handler.call_limits import CallLimits
from crmsync.handler.handler import DataHandler, mirror_dead_records
from crmsync.models import Crm, ExceptionEntry, Item, Record, RecoveryEntry
from crmsync.orders import DeadQueue, MainQueue, Request
from crmsync.poller.distribution import DistributionCenter
from crmsync.recovery import actions
from msgplatform.core.daemons.timer import lease_clock
from msgplatform.core.data import sql
from msgplatform.core.personal import MARK
from msgplatform.core.queues import jobs, owners
from msgplatform.core.rates import breaker
from msgplatform.models import Alert
from msgplatform.monitor.watch import of_flows
from tests.integration.crmsync import sync_support as sync
from tests.integration.crmsync.sync_support import BATCHES, Customers, Store
from tests.support import threads
from tests.support.children import child
from tests.support.http_sinks import Sink
from tests.support.json_stub import Answer, serving
from tests.support.salesforce_stub import SalesforceStub

pytestmark = pytest.mark.django_db(transaction=True)
WAITING, QUEUED, RETRY, CONFIRMED, DEAD, DISMISSED, _HELD = Record.State
QUICK = breaker.Policy(failures_in_a_row=3, first=0.3, factor=1.0, jitter=0.0)
LONG = breaker.Policy(failures_in_a_row=3, first=600, factor=1.0, cap=600, jitter=0.0)
KILLED = -9


@pytest.fixture(autouse=True)
def _loopback(settings: Any, work_redis: Redis) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]


@pytest.fixture
def customers(tmp_path: Path) -> Customers:
    return Customers(tmp_path)


@pytest.fixture
def store() -> Store:
    return Store(is_upsert=True)


@pytest.fixture
def server(store: Store) -> Iterator[Sink]:
    with serving(store) as sink:
        yield sink


@pytest.fixture
def lasting_ownership(monkeypatch: pytest.MonkeyPatch) -> None:
    """No handler loses a CRM, or takes more than its share, because the machine stood still."""
    for name in ("OWNERSHIP_SECONDS", "_MORE_SECONDS"):
        monkeypatch.setattr(f"crmsync.handler.handler.{name}", 3600.0)


def live(crm: Crm) -> presence.LiveCrm:
    """What is reported of it."""
    return presence.crms.read_by_id().get(crm.pk, presence.LiveCrm())


def owner_key(crm: Crm) -> str:
    return f"{owners.OWNER}crm-{crm.name}"


class Clock:
    """The clock of calls and their limits, which a test sets ahead: a breaker that is to be open is
    not closed because the machine stood still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + self.ahead)
        for module in ("call_limits", "delivery"):
            monkeypatch.setattr(f"crmsync.handler.{module}.time", clock)


class TestThrottled:
    def test_it_costs_no_attempt_and_nothing_is_taken_meanwhile(
        self, server: Sink, store: Store, work_redis: Redis
    ) -> None:
        crm = sync.http_crm(server, store, settings={"concurrency": 1})
        first = sync.policy(crm)
        store.says["a"] = [Answer({}, 429, Retry_After="300")]
        queued = sync.queued(first, sync.requests("abc"))
        before = sql.now()
        with sync.running() as handler:
            sync.turn_until(handler, lambda: set(queued.states().values()) == {WAITING})
            assert store.calls == 1  # after the first answer nothing more was sent
            for record in queued.records():
                assert (record.attempt, record.error_class) == (0, "throttled")
                assert record.next_at - before > timedelta(seconds=299)
            assert queued.counts() == (0, 0, 0, None)
            other = sync.queued(sync.policy(crm, "others"), sync.requests("d"))
            sync.turn_until(handler, lambda: 200 < live(crm).held_for <= 300)
            assert store.calls == 1
            assert other.record("d").state == QUEUED
            work_redis.delete(f"crm:hold:{crm.pk}")  # the time is over
            sync.turn_until(handler, lambda: other.record("d").state == CONFIRMED)
        assert ExceptionEntry.objects.get().kind == "throttled"

    def test_the_rate_is_kept_by_all_lanes_together(self, server: Sink, store: Store) -> None:
        crm = sync.http_crm(server, store, settings={"per_second": 20}, concurrency=3)
        made = [sync.queued(sync.policy(crm, f"s{n}"), sync.requests("abcdefghij")) for n in "123"]
        started = time.monotonic()
        sync.handled(*made)
        took = time.monotonic() - started
        assert store.calls == 30
        assert took >= (30 - 2) / 20  # a burst of two

    def test_a_low_rate_admits_a_record_that_needs_several_calls(self) -> None:
        adapter = SimpleNamespace(
            calls=lambda records, _is_look_up: 3 * len(records), per_second=0.03, per_day=0
        )
        limits = CallLimits(1, QUICK)
        records = [AdapterRecord(key, 1, {}) for key in "abcde"]
        assert limits.admit(cast(CRMAdapter, adapter), records, False) == (1, 0.0)
        size, wait = limits.admit(cast(CRMAdapter, adapter), records, False)
        assert (size, 0 < wait <= 100) == (0, True)

    def test_each_call_that_deletes_a_record_counts(self, server: Sink, store: Store) -> None:
        delete = {"method": "DELETE", "url": server.url("/leads/{key}")}
        crm = sync.http_crm(server, store, settings={**BATCHES, "delete": delete, "per_day": 5})
        deletions = [Request(key, 2, {}, True) for key in "abcdefgh"]
        sync.handled(sync.queued(sync.policy(crm), deletions))
        assert len(store.deleted) == 5

    def test_the_limit_of_a_day_holds_the_crm_until_somebody_raises_it(
        self, server: Sink, store: Store, work_redis: Redis
    ) -> None:
        crm = sync.http_crm(server, store, settings={"per_day": 5})
        queued = sync.queued(sync.policy(crm), sync.requests("abcdefgh"))
        before = sql.now()
        with sync.running() as handler:
            sync.turn_until(handler, lambda: QUEUED not in queued.states().values())
            assert store.calls == 5
            left = [key for key, state in queued.states().items() if state == WAITING]
            assert len(left) == 3
            for key in left:
                record = queued.record(key)
                assert record.attempt == 0
                minute = timedelta(seconds=60)
                assert before <= record.next_at <= sql.now() + minute
            assert Item.objects.count() == 5
            # Nothing is queued meanwhile: an order would wait for longer than its lease.
            sync.turn_until(handler, lambda: live(crm).held_for > 23 * 3600)
            center = DistributionCenter(queued.policy)
            assert center.capacity(directory.crm_from_row(crm), live(crm)) == 0
            crm.settings["per_day"] = 50
            crm.save()
            queued.order = sync.again(queued)
            sync.turn_until(handler, lambda: set(queued.states().values()) == {CONFIRMED})

    def test_a_hold_that_the_crm_asked_for_outlasts_new_settings(self, work_redis: Redis) -> None:
        work_redis.config_set("maxmemory", 1)  # and a full Redis
        try:
            CallLimits(1, QUICK).hold(300)
        finally:
            work_redis.config_set("maxmemory", 0)
        limits = CallLimits(1, QUICK)
        limits.end_quota_hold()
        assert limits.seconds_until_open() > 200

    def test_of_a_look_up_too(self, work_redis: Redis) -> None:
        store = Store()

        def full(request: Any) -> Answer:
            limit = Answer({}, 429, Retry_After="300")
            return limit if request.method == "GET" else store(request)

        with serving(full) as server:
            crm = sync.http_crm(server, store)
            queued = sync.queued(sync.policy(crm), sync.requests("a"), check=True)
            before = sql.now()
            sync.handled(queued)
        record = queued.record("a")
        assert (record.state, record.attempt, record.error_class) == (WAITING, 0, "unknown")
        assert record.next_at - before >= timedelta(seconds=300)
        assert work_redis.pttl(f"crm:hold:{crm.pk}") > 200_000

    def test_what_a_look_up_found_is_kept_until_the_record_is_sent(self) -> None:
        store = Store()
        store.leads = {key: {"id": key, "name": "an older one", "v": 0} for key in "ab"}
        with serving(store) as server:
            crm = sync.http_crm(server, store, settings={"concurrency": 2, "per_day": 3})
            queued = sync.queued(sync.policy(crm), sync.requests("ab"), check=True)
            sync.handled(queued)
        assert store.changed == ["a"]  # two calls to look up, and one to store
        left = queued.record("b")
        assert (left.state, left.error_class, left.remote_id) == (WAITING, "", "r-b")


class TestCredentials:
    def test_a_refusal_pauses_the_crm_until_somebody_resumes_it(
        self, server: Sink, store: Store
    ) -> None:
        crm = sync.http_crm(server, store)
        policy = sync.policy(crm)
        store.token = "another"
        queued = sync.queued(policy, sync.requests("ab"))
        with sync.running() as handler:
            sync.turn_until(handler, lambda: set(queued.states().values()) == {WAITING})
            crm.refresh_from_db()
            assert crm.paused_at is not None
            assert crm.paused_because == "HTTP 401: who are you"
            assert all(record.attempt == 0 for record in queued.records())
            assert of_flows.report_conditions() == {}
            alert = Alert.objects.get(key=f"crm.paused:{crm.pk}")
            assert alert.resolved_at is None
            calls = store.calls
            sync.turn_until(handler, lambda: not handler._served)
            queued.order = sync.again(queued)
            for _ in range(10):
                handler.turn()
            assert store.calls == calls
            crm.credentials, crm.paused_at, crm.paused_because = {"token": "another"}, None, ""
            crm.save()
            sync.turn_until(handler, lambda: set(queued.states().values()) == {CONFIRMED})
            assert of_flows.report_conditions() == {}
            assert Alert.objects.get(key=alert.key).resolved_at is not None

    @pytest.mark.parametrize("calls", [{}, sync.BATCHES])
    def test_a_403_of_one_record_is_that_records(
        self, server: Sink, store: Store, calls: dict[str, Any]
    ) -> None:
        test = {"url": server.url("/leads/d")}
        crm = sync.http_crm(server, store, settings={"test": test, **calls})
        store.says["b"] = [Answer({"message": "owned by the board"}, 403) for _ in range(4)]
        queued = sync.queued(sync.policy(crm), sync.requests("abcd"))
        store.leads["d"] = {"id": "d", "name": "an older one", "v": 0}
        sync.handled(queued)
        assert queued.states() == {**dict.fromkeys("acd", CONFIRMED), "b": DEAD}
        assert RecoveryEntry.objects.get().error_class == "invalid"
        assert Crm.objects.get().paused_at is None

    @pytest.mark.parametrize(("status", "state"), [(403, DEAD), (422, RETRY)])
    def test_a_record_that_may_not_be_read_keeps_no_other_from_being_looked_up(
        self, status: int, state: Record.State
    ) -> None:
        store = Store()

        def answer(request: Any) -> Answer:
            is_refused = request.method == "GET" and request.path == "/leads/b"
            return Answer({"message": "odd"}, status) if is_refused else store(request)

        with serving(answer) as server:
            crm = sync.http_crm(server, store, settings={"test": {"url": server.url("/leads/a")}})
            queued = sync.queued(sync.policy(crm), sync.requests("abcd"), check=True)
            sync.handled(queued)
        assert queued.states() == {**dict.fromkeys("acd", CONFIRMED), "b": state}
        assert queued.record("b").error_class == "unknown"
        assert Crm.objects.get().paused_at is None

    def test_a_403_of_each_record_is_the_crms(self, server: Sink, store: Store) -> None:
        """Also where the credentials are good for a test: nothing dies of it."""
        crm = sync.http_crm(server, store, settings={"test": {"url": server.url("/leads/d")}})
        store.leads["d"] = {"id": "d", "name": "d", "v": 1}
        store.always = Answer({"message": "read only"}, 403)
        queued = sync.queued(sync.policy(crm), sync.requests("abcd"))
        sync.handled(queued)
        assert set(queued.states().values()) == {WAITING}
        assert Crm.objects.get().paused_because == "HTTP 403: read only"

    def test_an_old_refusal_does_not_pause_what_was_corrected(
        self, server: Sink, store: Store
    ) -> None:
        crm = sync.http_crm(server, store)
        queued = sync.on_its_way(sync.policy(crm), sync.requests("a"))

        def corrected_meanwhile(request: Any) -> Answer:
            crm.credentials = {"token": "new"}
            sync.aside(crm.save)
            return Answer({"message": "expired"}, 401)

        server.behaviour = serving(corrected_meanwhile).behaviour
        MainQueue(crm.name).put([queued.order])
        sync.handled(queued)
        assert queued.record("a").state == WAITING
        assert Crm.objects.get().paused_at is None


class TestSalesforce:
    """An org's errors come in the results of an answer with 200."""

    @pytest.fixture
    def org(self) -> Iterator[SalesforceStub]:
        org = SalesforceStub()
        with serving(org) as sink:
            org.url = sink.url("")
            yield org

    def queued(self, org: SalesforceStub, keys: str) -> sync.Queued:
        crm = sync.crm(
            "org", "salesforce", settings={"login_url": org.url},
            credentials={"client_id": "the-client", "client_secret": "hush-hush"},
        )  # fmt: skip
        requests = [Request(key, 1, {"LastName": key}) for key in keys]
        return sync.queued(sync.policy(crm), requests)

    @pytest.mark.parametrize("keys", ["a", "abcd"])
    @pytest.mark.parametrize("is_full", [True, False])
    def test_without_room_or_rights_nothing_dies(
        self, org: SalesforceStub, keys: str, is_full: bool
    ) -> None:
        org.is_full, org.readable_keys = is_full, set() if is_full else set(keys)
        queued = self.queued(org, keys)
        sync.handled(queued)
        assert set(queued.states().values()) == {WAITING}
        text = "storage limit exceeded" if is_full else "insufficient access rights on object id"
        assert Crm.objects.get().paused_because == text

    def test_an_error_of_the_login_that_passes_pauses_no_crm(self, org: SalesforceStub) -> None:
        passing = {"error": "unknown_error", "error_description": "retry your request"}
        org.login_answers = [Answer(passing, 400)]
        queued = self.queued(org, "ab")
        sync.handled(queued)
        assert set(queued.states().values()) == {RETRY}
        assert Crm.objects.get().paused_at is None
        queued.order = sync.again(queued)
        sync.handled(queued)
        assert set(queued.states().values()) == {CONFIRMED}

    def test_a_converted_lead_is_dead_after_one_call_and_opens_no_breaker(
        self, org: SalesforceStub
    ) -> None:
        org.converted_ids = {org.add(Hive_Id__c=key) for key in "ab"}
        queued = self.queued(org, "ab")
        with sync.running(policy=breaker.Policy(failures_in_a_row=1, first=600)) as handler:
            sync.turn_until(handler, lambda: set(queued.states().values()) == {DEAD})
            assert not live(queued.policy.crm).is_open
        assert [record.attempt for record in queued.records()] == [1, 1]

    def test_a_lead_that_may_not_be_written_pauses_no_crm_that_stores_others(
        self, org: SalesforceStub
    ) -> None:
        org.readable_keys = {"b"}
        queued = self.queued(org, "abcd")
        sync.handled(queued)
        assert queued.states() == {**dict.fromkeys("acd", CONFIRMED), "b": DEAD}
        assert Crm.objects.get().paused_at is None


class TestBreaker:
    def test_probes_cost_no_attempts_and_the_end_of_the_outage_is_seen(
        self, server: Sink, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch)
        crm = sync.http_crm(server, store, retry_seconds=[0] * 3, settings={"concurrency": 1})
        queued = sync.queued(sync.policy(crm), sync.requests("abcdef"))
        store.always = Answer({}, 503)
        with sync.running(policy=LONG) as handler:
            sync.turn_until(handler, lambda: QUEUED not in queued.states().values())
            assert store.calls == 3  # then it was open; the others were not sent
            attempts = [record.attempt for record in queued.records()]
            assert sorted(attempts) == [0, 0, 0, 1, 1, 1]
            sync.turn_until(handler, lambda: live(crm).is_open)
            for probe in range(1, 6):
                sync.again(queued)
                clock.ahead += LONG.first
                sync.turn_until(handler, lambda: QUEUED not in queued.states().values())
                assert store.calls == 3 + probe  # one record each time
            assert [record.attempt for record in queued.records()] == attempts
            store.always = None
            sync.again(queued)
            clock.ahead += LONG.first
            sync.turn_until(handler, lambda: set(queued.states().values()) == {CONFIRMED})
            sync.turn_until(
                handler, lambda: crm.pk in presence.crms.read_by_id() and not live(crm).is_open
            )
        assert queued.counts() == (6, 0, 0, 1)

    def test_a_crm_that_does_not_hold_a_record_has_answered(self) -> None:
        store = Store()
        slow = breaker.Policy(failures_in_a_row=1, first=600, cap=600, jitter=0.0)
        with serving(store) as server:
            crm = sync.http_crm(server, store)
            open_until_now = presence.LiveCrm(breaker=breaker.State.OPEN, retry_in=0.0)
            presence.crms.report({crm.pk: open_until_now})
            queued = sync.queued(sync.policy(crm), sync.requests("a"), check=True)
            sync.handled(queued, policy=slow)
        assert queued.record("a").state == CONFIRMED  # looked up by the probe, then sent
        assert not ExceptionEntry.objects.exists()

    def test_another_handler_goes_on_with_an_open_breaker(self, server: Sink, store: Store) -> None:
        slow = breaker.Policy(failures_in_a_row=1, first=600, cap=600, jitter=0.0)
        crm = sync.http_crm(server, store)
        queued = sync.queued(sync.policy(crm), sync.requests("a"))
        presence.crms.report({crm.pk: presence.LiveCrm(breaker=breaker.State.OPEN, retry_in=600)})
        with sync.running(policy=slow) as handler:
            for _ in range(15):
                handler.turn()
            assert store.calls == 0
            assert queued.record("a").state == QUEUED


BROKEN = """
from crmsync.adapters.base import CRMAdapter, Stored
from crmsync.adapters.outcomes import Ok

class Broken(CRMAdapter):
    name, title, is_upsert = "broken", "The broken one", True

    def deliver(self, batch):
        if any(record.key == "c" for record in batch):
            raise KeyError("token hush-hush")
        return [Ok("r-" + record.key) for record in batch]

    def fields(self):
        return None

    def read(self, keys):
        return {}

class Careless(Broken):
    name, title, is_upsert = "careless", "One that stores a record and fails", False
    sent = []

    def deliver(self, batch):
        self.sent += [record.key for record in batch]
        raise KeyError("after the call")

    def read(self, keys):
        known = [key for key in keys if key in self.sent]
        return {key: Stored("r-" + key, {"name": "name " + key}) for key in known}
"""


@pytest.fixture
def broken_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that brings an adapter with a bug."""
    (tmp_path / "broken_crm.py").write_text(BROKEN)
    info = tmp_path / "broken_crm-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-crm\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[msgplatform.crm_adapters]\nbroken = broken_crm:Broken\ncareless = broken_crm:Careless\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.cache_clear()
    yield
    registry.cache_clear()
    sys.modules.pop("broken_crm", None)


@pytest.mark.usefixtures("broken_adapter")
def test_a_record_with_which_an_adapter_fails_is_dead_and_nobody_waits_for_it(
    customers: Customers,
) -> None:
    bad = sync.queued(sync.policy(sync.crm("broken", "broken")), sync.requests("abcdefg"))
    good = sync.queued(sync.policy(customers.crm()), sync.requests("xyz"))
    sync.handled(bad, good)
    assert bad.states() == {**dict.fromkeys("abdefg", CONFIRMED), "c": DEAD}
    assert bad.counts() == (6, 0, 1, 0)
    assert good.counts() == (3, 0, 0, 1)
    entry = RecoveryEntry.objects.get()
    assert (entry.error_class, entry.key) == ("fault", "c")
    assert entry.reason.startswith("KeyError")
    assert Alert.objects.filter(key=f"crm.fault:{bad.policy.crm_id}").exists()


@pytest.mark.usefixtures("broken_adapter")
def test_a_record_that_an_adapter_stored_before_it_failed_is_not_sent_again() -> None:
    queued = sync.queued(sync.policy(sync.crm("careless", "careless")), sync.requests("a"))
    sync.handled(queued)
    entry = RecoveryEntry.objects.get()
    assert (queued.record("a").state, entry.error_class) == (DEAD, "fault")
    actions.retry([entry.pk], "ann")
    queued.order = sync.again(queued)
    sync.handled(queued)
    assert (queued.record("a").state, queued.record("a").remote_id) == (CONFIRMED, "r-a")
    assert sys.modules["broken_crm"].Careless.sent == ["a"]


def test_a_crm_that_hangs_does_not_delay_another(customers: Customers, store: Store) -> None:
    released = threading.Event()

    def hang(request: Any) -> Answer:
        released.wait(600)
        return store(request)

    with serving(hang) as server:
        slow = sync.queued(sync.policy(sync.http_crm(server, store)), sync.requests("a"))
        with sync.running() as handler:
            sync.turn_until(handler, lambda: presence.crms.read_by_id().get(slow.policy.crm_id))
            quick = sync.queued(sync.policy(customers.crm()), sync.requests("xyz"))
            sync.turn_until(handler, lambda: set(quick.states().values()) == {CONFIRMED})
            assert slow.record("a").state == QUEUED
            released.set()
            sync.turn_until(handler, lambda: slow.record("a").state == CONFIRMED)


# -- processes -----------------------------------------------------------------------------------
RUN = """
from django.core.management import call_command
say("ready")
call_command("run_sync_handler")
say("stopped")
"""


# The program reports when its workers take no further order.
STOP_REPORT = """
from crmsync.handler.crm_worker import CrmWorkers

stop, reports = CrmWorkers.stop, []

def stop_and_report(workers):
    stop(workers)
    if not reports:
        reports.append(say("stopping"))

CrmWorkers.stop = stop_and_report
"""


class TestKilled:
    @pytest.mark.parametrize("at", ["after_send_before_mark", "after_mark_before_done"])
    def test_what_was_sent_is_not_made_twice(self, at: str) -> None:
        store = Store()
        with serving(store) as server:
            policy = sync.policy(sync.http_crm(server, store))
            queued = sync.queued(policy, sync.requests("abc"))
            with child(RUN, MSGPLATFORM_FAILPOINT=at, OUTBOUND_ALLOW="127.0.0.0/8") as process:
                assert process.ended() == KILLED
            assert sorted(store.changed) == list("abc")
            is_marked = at == "after_mark_before_done"
            assert set(queued.states().values()) == {CONFIRMED if is_marked else QUEUED}
            if not is_marked:
                queued.order = sync.again(queued)  # its lease is over
            else:
                MainQueue(policy.crm.name).put([queued.order])
            sync.handled(queued)
            assert queued.counts() == (3, 0, 0, 1)
            assert sorted(store.changed) == list("abc")  # looked up, not sent
            # Without trouble the operation tells how its records ended.
            assert Item.objects.count() == (0 if is_marked else 3)

    def test_the_first_signal_finishes_the_order_in_hand_and_takes_no_other(
        self, store: Store
    ) -> None:
        crm_name = "slow"
        begun, signalled = threading.Event(), threading.Event()

        def slowly(request: Any) -> Answer:
            begun.set()
            signalled.wait(600)
            return store(request)

        with serving(slowly) as server:
            crm = sync.http_crm(server, store, crm_name, settings={"concurrency": 1})
            first = sync.queued(sync.policy(crm), sync.requests("a"))
            second = sync.queued(sync.policy(crm, "others"), sync.requests("b"))
            with child(STOP_REPORT + RUN, OUTBOUND_ALLOW="127.0.0.0/8") as process:
                process.ready()
                assert begun.wait(180)
                process.process.terminate()
                assert process.heard() == "stopping"
                signalled.set()
                assert process.heard() == "stopped"
                assert process.ended() == 0
        states = {first.record("a").state, second.record("b").state}
        assert states == {CONFIRMED, QUEUED}
        assert MainQueue(crm_name).depth() == 1

    def test_one_process_at_a_time_serves_a_crm(
        self, server: Sink, store: Store, lasting_ownership: None
    ) -> None:
        crm = sync.http_crm(server, store)
        policy = sync.policy(crm)
        with sync.running() as one, sync.running() as two:
            queued = sync.queued(policy, sync.requests("a"))
            sync.turn_until(one, lambda: queued.record("a").state == CONFIRMED)
            more = sync.queued(sync.policy(crm, "others"), sync.requests("b"))
            one.turn()
            two.turn()
            assert not two._served
            sync.turn_until(one, lambda: more.record("b").state == CONFIRMED)

    def test_no_other_process_serves_a_crm_whose_earlier_workers_finish_an_order(
        self, store: Store, work_redis: Redis, lasting_ownership: None
    ) -> None:
        begun, released = threading.Event(), threading.Event()

        def hang(request: Any) -> Answer:
            begun.set()
            released.wait(600)
            return store(request)

        with serving(hang) as server, sync.running() as one, sync.running() as two:
            crm = sync.http_crm(server, store)
            first = sync.queued(sync.policy(crm), sync.requests("a"))
            sync.turn_until(one, begun.is_set)
            sync.turn_until(one, lambda: crm.pk in presence.crms.read_by_id())
            crm.retry_seconds = [7]  # its workers end, and others begin
            crm.save()
            sync.turn_until(one, lambda: crm.pk not in presence.crms.read_by_id())
            work_redis.expire(owner_key(crm), 100)
            more = sync.queued(sync.policy(crm, "others"), sync.requests("b"))
            one.turn()
            assert work_redis.ttl(owner_key(crm)) > 100
            two.turn()
            assert work_redis.get(owner_key(crm)) == one.name.encode()
            released.set()
            sync.turn_until(one, lambda: more.record("b").state == CONFIRMED)
            assert first.record("a").state == CONFIRMED

    def test_another_process_serves_a_crm_whose_worker_hangs(
        self,
        customers: Customers,
        work_redis: Redis,
        lasting_ownership: None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        begun, released = threading.Event(), threading.Event()
        deliver = SqlAdapter.deliver

        def hang_once(adapter: SqlAdapter, batch: Any) -> Any:
            if not begun.is_set():
                begun.set()
                released.wait(600)
            return deliver(adapter, batch)

        monkeypatch.setattr(SqlAdapter, "deliver", hang_once)
        crm = customers.crm()
        queued = sync.queued(sync.policy(crm), sync.requests("a"))
        with sync.running() as one, sync.running() as two:
            sync.turn_until(one, begun.is_set)
            clock = "crmsync.handler.claimed_order.lease_clock"
            monkeypatch.setattr(clock, lambda: lease_clock() + 3600)
            sync.newer(queued, "a")  # the lease has ended: the poller queues what is newest
            queued.order = sync.again(queued)
            work_redis.delete(owner_key(crm))  # after OWNERSHIP_SECONDS
            for _ in range(2):
                one.turn()
            try:
                assert not work_redis.exists(owner_key(crm))
                sync.turn_until(two, lambda: queued.record("a").state == CONFIRMED)
            finally:
                released.set()
            # The CRM may hold the older version after the late call: the newest is due once more.
            sync.turn_until(one, lambda: queued.record("a").state == WAITING)
            record = queued.record("a")
            assert (record.version, record.sent_version) == (2, 2)

    def test_others_serve_a_crm_whose_adapter_fails_to_close(
        self, customers: Customers, lasting_ownership: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        crm = customers.crm()
        first = sync.queued(sync.policy(crm), sync.requests("a"))
        with sync.running() as handler:
            sync.turn_until(handler, lambda: first.record("a").state == CONFIRMED)
            close, has_failed = SqlAdapter.close, threading.Event()

            def fail_in_worker(adapter: SqlAdapter) -> None:
                close(adapter)
                if threading.current_thread() is not threading.main_thread():
                    has_failed.set()
                    raise ConnectionError("the CRM does not answer")

            with monkeypatch.context() as context:
                context.setattr(SqlAdapter, "close", fail_in_worker)
                crm.retry_seconds = [7]  # its workers end
                crm.save()
                sync.turn_until(handler, has_failed.is_set)
            more = sync.queued(sync.policy(crm, "others"), sync.requests("b"))
            sync.turn_until(handler, lambda: more.record("b").state == CONFIRMED)

    def test_workers_end_when_there_are_too_few_threads_for_all(self, customers: Customers) -> None:
        queued = sync.queued(sync.policy(customers.crm(concurrency=2)), sync.requests("a"))
        with sync.running() as handler:
            for _ in range(2):
                with threads.refusing("crm-sales", after=1), pytest.raises(RuntimeError):
                    handler.turn()
            sync.turn_until(handler, lambda: queued.record("a").state == CONFIRMED)
            sync.turn_until(
                handler,
                lambda: sum(row.name == "crm-sales" for row in threading.enumerate()) == 2,
            )

    def test_several_processes_share_the_crms(
        self, tmp_path: Path, lasting_ownership: None
    ) -> None:
        made = []
        for name in ("c1", "c2", "c3", "c4"):
            crm = Customers(tmp_path, f"{name}.db").crm(name)
            made.append(sync.queued(sync.policy(crm), sync.requests("ab")))
        with sync.running() as one, sync.running() as two:
            one.heartbeat.send()
            two.heartbeat.pid += 1  # as if it were another process
            two.heartbeat.send()
            one.turn()
            two.turn()
            for each in made:
                sync.turn_until(two, lambda q=each: set(q.states().values()) == {CONFIRMED})
            served = sorted(one._served), sorted(two._served)
        assert [len(each) for each in served] == [2, 2]
        assert sorted(served[0] + served[1]) == [each.policy.crm_id for each in made]


def test_dead_records_are_mirrored_in_the_dead_queue(
    server: Sink, store: Store, work_redis: Redis
) -> None:
    crm = sync.http_crm(server, store)
    store.says["a"] = [Answer({"message": "no"}, 422)]
    queued = sync.queued(sync.policy(crm), sync.requests("ab"))
    queue = DeadQueue(crm.name)
    with sync.running() as handler:
        sync.turn_until(handler, lambda: queued.record("a").state == DEAD)
        assert mirrored(handler, work_redis, crm) == [("a", "no")]
        work_redis.flushall()
        RecoveryEntry.objects.update(state=RecoveryEntry.State.SOLVED)
        mirror_dead_records(handler.crms.known.values())
        assert queue.depth() == 0
        RecoveryEntry.objects.update(state=RecoveryEntry.State.OPEN)
        work_redis.flushall()
        mirror_dead_records(handler.crms.known.values())
        assert queue.depth() == 1
        work_redis.flushall()
        work_redis.config_set("maxmemory", 1)
        try:
            mirror_dead_records(handler.crms.known.values())  # no work stands still
        finally:
            work_redis.config_set("maxmemory", 0)


def test_the_mirror_holds_up_no_crm(
    server: Sink, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand dead records of several CRMs take longer than an ownership lasts."""
    begun, over = threading.Event(), threading.Event()
    ends: list[bool] = []

    def hold(_crms: object) -> None:
        begun.set()
        ends.append(over.wait(sync.DEADLINE))

    monkeypatch.setattr("crmsync.handler.handler.mirror_dead_records", hold)
    queued = sync.queued(sync.policy(sync.http_crm(server, store)), sync.requests("ab"))
    with sync.running() as handler:
        sync.turn_until(handler, begun.is_set)
        sync.turn_until(handler, lambda: set(queued.states().values()) == {CONFIRMED})
        over.set()
        sync.turn_until(handler, lambda: ends)
    assert ends == [True]


def test_what_is_reported(server: Sink, store: Store) -> None:
    crm = sync.http_crm(server, store)
    store.says["b"] = [Answer({}, 422)]
    queued = sync.queued(sync.policy(crm), sync.requests("abc"))
    with sync.running() as handler:
        sync.turn_until(handler, lambda: set(queued.states().values()) == {CONFIRMED, DEAD})
        sync.turn_until(handler, lambda: live(crm).latency > 0)
        said = live(crm)
        assert (said.breaker, said.in_flight) == ("closed", 0)
        sync.turn_until(handler, lambda: handler.heartbeat.done == 3)
        assert handler.heartbeat.failed == 0
    assert presence.crms.read_by_id() == {}


class TestWaiting:
    def test_other_lanes_wait_for_the_probe(self, server: Sink, store: Store) -> None:
        crm = sync.http_crm(server, store, concurrency=3, retry_seconds=[0] * 3)
        first = sync.queued(sync.policy(crm, "s0"), sync.requests("abc"))
        store.always = Answer({}, 503)
        with sync.running(policy=QUICK) as handler:
            sync.turn_until(handler, lambda: QUEUED not in first.states().values())
            store.always = None
            more = [sync.queued(sync.policy(crm, f"s{n}"), sync.requests("xyz")) for n in "123"]
            for each in more:
                sync.turn_until(handler, lambda q=each: set(q.states().values()) == {CONFIRMED})

    def test_a_lease_is_kept_while_an_order_takes_longer(
        self, store: Store, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.CRM_LEASE_SECONDS = 120
        # From its first second on, it is time to renew one.
        monkeypatch.setattr("crmsync.handler.claimed_order._spare", lambda: timedelta(seconds=119))
        kept: list[bool] = []

        def lease_ends_soon() -> None:
            Record.objects.update(next_at=sql.now() + timedelta(seconds=1))

        def is_renewed() -> bool:
            within = sql.now() + timedelta(seconds=60)
            return not Record.objects.filter(state=QUEUED, next_at__lt=within).exists()

        def slowly(request: Any) -> Answer:
            """Each of the first calls takes until the lease is renewed."""
            if len(kept) < 3:
                sync.aside(lease_ends_soon)
                deadline = time.monotonic() + 100
                while not (renewed := sync.aside(is_renewed)) and time.monotonic() < deadline:
                    time.sleep(0.1)
                kept.append(renewed)
            return store(request)

        with serving(slowly) as server:
            crm = sync.http_crm(server, store, settings={"concurrency": 1})
            queued = sync.queued(sync.policy(crm), sync.requests("abcdefghij"))
            sync.handled(queued)
        assert kept == [True] * 3
        assert queued.counts() == (10, 0, 0, 1)


def mirrored(handler: DataHandler, work_redis: Redis, crm: Crm) -> list[tuple[str, str]]:
    """Key and reason of each dead record, as the next turn mirrors them."""
    work_redis.delete("crm:dead")  # whose turn it was, until now
    mirror_dead_records(handler.crms.known.values())
    queue = DeadQueue(crm.name)
    assert queue.depth() == 1
    held = jobs.claim(queue.name, 60)
    assert held
    jobs.put(queue.name, [held.data], None)
    jobs.remove_orders([held])
    return [(row["key"], row["reason"]) for row in held.data]


@pytest.mark.parametrize("before", ["", "wx"])
def test_the_dead_queue_holds_no_phone_number_and_nothing_that_was_erased(
    server: Sink, store: Store, work_redis: Redis, before: str
) -> None:
    """It never ends, and the erasure of a person's data waits for what holds the number."""
    crm = sync.http_crm(server, store)
    phone, masked = "13800138000", "138****8000"
    key = before + phone
    store.says[key] = [Answer({"message": f"Duplicate entry '{phone}' of Ann"}, 422)]
    queued = sync.queued(sync.policy(crm), sync.requests([key]))
    with sync.running() as handler:
        sync.turn_until(handler, lambda: queued.record(key).state == DEAD)
        reason = f"Duplicate entry '{masked}' of Ann"
        assert mirrored(handler, work_redis, crm) == [(before + masked, reason)]
        RecoveryEntry.objects.update(reason=MARK)
        assert mirrored(handler, work_redis, crm) == [(before + masked, MARK)]
