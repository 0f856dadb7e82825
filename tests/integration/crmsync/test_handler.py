"""The handler: what each outcome makes of a record, with real CRMs on sockets and in tables."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crmsync import erasure
from crmsync.messages.timeline import first_tries
from crmsync.models import ExceptionEntry, Item, Operation, Record, RecoveryEntry
from crmsync.monitor import counters
from crmsync.orders import Request, RetryQueue
from crmsync.recovery import actions
from msgplatform.core.data import sql
from msgplatform.models import MinuteCounter
from tests.integration.crmsync import sync_support as sync
from tests.integration.crmsync.sync_support import BATCHES, Customers, Store
from tests.support.http_sinks import Sink, refusing_port
from tests.support.json_stub import Answer, asked, serving

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]
WAITING, QUEUED, RETRY, CONFIRMED, DEAD, DISMISSED, _HELD = Record.State
AT_ONCE = [0, 0]  # waits: the test queues what is tried again


@pytest.fixture(autouse=True)
def _loopback(settings: Any) -> None:
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
def creating() -> Store:
    """A store in which a call that is repeated makes a second lead."""
    return Store()


@pytest.fixture
def creating_server(creating: Store) -> Iterator[Sink]:
    with serving(creating) as sink:
        yield sink


def items(record: Record) -> list[str]:
    return list(
        Item.objects.filter(record_id=record.pk).order_by("id").values_list("outcome", flat=True)
    )


def counted(policy_id: int) -> dict[str, int]:
    rows = MinuteCounter.objects.filter(flow=counters.FLOW, subject=policy_id)
    total: dict[str, int] = {}
    for name, value in rows.values_list("name", "value"):
        total[name] = total.get(name, 0) + value
    return total


class TestConfirmed:
    def test_an_order_becomes_rows_of_the_crm_and_confirmed_records(
        self, customers: Customers
    ) -> None:
        policy = sync.policy(customers.crm())
        queued = sync.queued(policy, sync.requests("abc"))
        sync.handled(queued)
        assert customers.rows() == {key: (f"name {key}", 1) for key in "abc"}
        assert queued.states() == dict.fromkeys("abc", CONFIRMED)
        assert queued.counts() == (3, 0, 0, 1)
        record = queued.record("a")
        # Nothing failed: the operation tells it, without an item for each record.
        assert not Item.objects.exists()
        queued.operation.refresh_from_db()
        item = first_tries(queued.operation, 10)[-1]
        assert (record.sent_version, record.remote_id, record.next_at) == (1, "a", None)
        assert record.sent_digest == record.digest
        assert (record.claimed_by, record.sending_operation) == ("", 0)
        assert (item.outcome, item.attempt, item.version) == ("ok", 1, 1)
        found = counted(policy.pk)
        assert (found["confirmed"], found["calls"]) == (3, 1)

    def test_the_retry_queue_is_worked_off_too(self, customers: Customers) -> None:
        policy = sync.policy(customers.crm())
        first = sync.queued(policy, sync.requests("ab"))
        second = sync.queued(policy, sync.requests("cd"), RetryQueue)
        sync.handled(first, second)
        assert set(customers.rows()) == set("abcd")
        assert depths(policy.crm.name) == (0, 0)

    def test_a_deletion(self, customers: Customers) -> None:
        policy = sync.policy(customers.crm())
        sync.handled(sync.queued(policy, sync.requests("a")))
        gone = sync.queued(sync.policy(policy.crm, "others"), [Request("a", 2, {}, True)])
        sync.handled(gone)
        assert customers.rows() == {}
        assert gone.record("a").state == CONFIRMED


def depths(crm: str) -> tuple[int, int]:
    return sync.MainQueue(crm).depth(), RetryQueue(crm).depth()


class TestRetry:
    def test_the_third_failure_is_the_end(self, server: Sink, store: Store) -> None:
        policy = sync.policy(sync.http_crm(server, store, retry_seconds=AT_ONCE))
        store.always = Answer({"message": "busy"}, 503)
        queued = sync.queued(policy, sync.requests("a"))
        sync.handled(queued)
        record = queued.record("a")
        assert (record.state, record.attempt, record.error_class) == (RETRY, 1, "retry")
        assert queued.counts() == (0, 0, 0, None)
        for state in (RETRY, DEAD):
            queued.order = sync.again(queued)
            sync.handled(queued)
            assert queued.record("a").state == state
        assert (queued.record("a").attempt, queued.record("a").next_at) == (3, None)
        assert queued.counts() == (0, 0, 1, 0)
        assert items(record) == ["retry"] * 3
        entry = RecoveryEntry.objects.get()
        assert (entry.record_id, entry.reason, entry.attempts) == (record.pk, "HTTP 503: busy", 3)
        assert (entry.error_class, entry.state) == ("retry", RecoveryEntry.State.OPEN)
        assert msgspec.json.decode(bytes(entry.request), type=Request) == sync.requests("a")[0]
        calls = ExceptionEntry.objects.values_list("kind", "records", "operation_id")
        assert list(calls) == [("unavailable", 1, queued.operation.pk)] * 3
        assert counted(policy.pk)["failed:retry"] == 3
        assert counted(policy.pk)["dead"] == 1

    def test_what_is_confirmed_later_is_solved_in_the_recovery_log(
        self, server: Sink, store: Store
    ) -> None:
        policy = sync.policy(sync.http_crm(server, store, retry_seconds=[]))
        store.says["a"] = [Answer({}, 503)] * 2
        queued = sync.queued(policy, sync.requests("a"))
        sync.handled(queued)
        for _ in range(2):  # it dies twice: still one entry
            assert queued.record("a").state == DEAD
            assert RecoveryEntry.objects.get().state == RecoveryEntry.State.OPEN
            Record.objects.update(state=WAITING, attempt=0)
            queued.order = sync.again(queued)
            sync.handled(queued)
        assert queued.record("a").state == CONFIRMED
        entry = RecoveryEntry.objects.get()
        assert entry.state == RecoveryEntry.State.SOLVED
        assert entry.handled_at is not None

    def test_it_waits_as_the_crm_is_set_up_and_longer_if_it_asks(
        self, server: Sink, store: Store
    ) -> None:
        policy = sync.policy(sync.http_crm(server, store, retry_seconds=[10, 60]))
        store.says = {"a": [Answer({}, 503)], "b": [Answer({}, 503, Retry_After="90")]}
        queued = sync.queued(policy, sync.requests("ab"))
        before = sql.now()
        sync.handled(queued)
        for key, seconds in (("a", 10), ("b", 90)):
            wait = queued.record(key).next_at - before
            assert timedelta(seconds=seconds) <= wait < timedelta(seconds=seconds + 60)

    def test_nobody_listens(self) -> None:
        crm = sync.crm("gone", "http", settings={"url": f"http://127.0.0.1:{refusing_port()}/"})
        queued = sync.queued(sync.policy(crm), sync.requests("a"))
        sync.handled(queued)
        assert queued.record("a").state == RETRY
        assert ExceptionEntry.objects.get().kind == "network"


class TestInvalid:
    def test_dead_at_once_with_field_and_reason(self, server: Sink, store: Store) -> None:
        policy = sync.policy(sync.http_crm(server, store))
        store.says["b"] = [Answer({"field": "phone", "message": "no number"}, 422)]
        queued = sync.queued(policy, sync.requests("abc"))
        sync.handled(queued)
        assert queued.states() == {"a": CONFIRMED, "b": DEAD, "c": CONFIRMED}
        assert queued.counts() == (2, 0, 1, 0)
        entry = RecoveryEntry.objects.get()
        assert (entry.error_class, entry.field, entry.reason) == ("invalid", "phone", "no number")
        assert (entry.key, entry.version, entry.attempts) == ("b", 1, 1)
        assert not ExceptionEntry.objects.exists()

    def test_a_refused_batch_is_halved_until_the_bad_one_is_alone(
        self, server: Sink, store: Store
    ) -> None:
        policy = sync.policy(sync.http_crm(server, store, settings=BATCHES))
        store.says["d"] = [Answer({"message": "row d"}, 400) for _ in range(4)]
        queued = sync.queued(policy, sync.requests("abcdefgh"))
        sync.handled(queued)
        assert queued.states() == {**dict.fromkeys("abcefgh", CONFIRMED), "d": DEAD}
        assert sorted(store.changed) == list("abcefgh")  # each once
        assert store.calls == 7  # 8, 4 and 4, 2 and 2, 1 and 1
        assert RecoveryEntry.objects.get().reason == "row d"


class TestUnknown:
    def test_what_was_stored_is_not_sent_again(
        self, creating_server: Sink, creating: Store
    ) -> None:
        policy = sync.policy(sync.http_crm(creating_server, creating, retry_seconds=AT_ONCE))
        creating.says["a"] = [sync.stored(Answer({"message": "oops"}, 500))]
        queued = sync.queued(policy, sync.requests("a"))
        sync.handled(queued)
        record = queued.record("a")
        assert (record.state, record.attempt, record.error_class) == (RETRY, 1, "unknown")
        queued.order = sync.again(queued)
        sync.handled(queued)
        assert (queued.record("a").state, queued.record("a").remote_id) == (CONFIRMED, "r-a")
        assert creating.changed == ["a"]

    def test_what_was_not_stored_is_sent_once(self, creating_server: Sink, creating: Store) -> None:
        policy = sync.policy(sync.http_crm(creating_server, creating, retry_seconds=AT_ONCE))
        creating.says["a"] = [Answer(drop=True)]
        queued = sync.queued(policy, sync.requests("ab"))
        sync.handled(queued)
        assert queued.states() == {"a": RETRY, "b": CONFIRMED}
        queued.order = sync.again(queued)
        sync.handled(queued)
        assert queued.record("a").state == CONFIRMED
        assert sorted(creating.changed) == ["a", "b"]

    def test_what_the_crm_holds_under_an_unknown_id_is_never_made_twice(
        self, creating_server: Sink, creating: Store
    ) -> None:
        """Not when people try it again either: the CRM keeps other values than those it got."""
        read = {"url": creating_server.url("/leads/{key}"), "record": "lead"}
        crm = sync.http_crm(
            creating_server, creating, retry_seconds=AT_ONCE, settings={"read": read}
        )
        creating.says["a"] = [sync.stored(Answer({"message": "oops"}, 502))]
        queued = sync.queued(sync.policy(crm), sync.requests("a"))
        sync.handled(queued)
        creating.leads["a"]["name"] = "Name A"
        for _ in range(2):
            queued.order = sync.again(queued)
            sync.handled(queued)
            record, entry = queued.record("a"), RecoveryEntry.objects.latest("id")
            assert (record.state, record.error_class) == (DEAD, "unknown")
            assert (entry.state, entry.error_class) == (RecoveryEntry.State.OPEN, "conflict")
            assert actions.retry([entry.pk], "ann") == 1
        assert [request.method for request in asked(creating_server)] == ["POST", "GET", "GET"]

    def test_what_the_crm_holds_with_other_values_is_changed(
        self, creating_server: Sink, creating: Store
    ) -> None:
        policy = sync.policy(sync.http_crm(creating_server, creating))
        creating.leads["a"] = {"id": "a", "name": "an older one", "v": 0}
        queued = sync.queued(policy, sync.requests("a"), check=True)
        sync.handled(queued)
        assert creating.leads["a"] == {"id": "a", "name": "name a", "v": 1}
        assert queued.record("a").remote_id == "r-a"

    def test_a_newer_version_is_looked_up_too(self, creating_server: Sink, creating: Store) -> None:
        policy = sync.policy(sync.http_crm(creating_server, creating))
        queued = sync.on_its_way(policy, sync.requests("a"))

        def newer_meanwhile(request: Any) -> Answer:
            if not creating.changed:
                sync.aside(lambda: sync.newer(queued, "a"))
                creating.says["a"] = [sync.stored(Answer({}, 500))]
            return creating(request)

        creating_server.behaviour = serving(newer_meanwhile).behaviour
        sync.MainQueue(policy.crm.name).put([queued.order])
        sync.handled(queued)
        record = queued.record("a")
        assert (record.state, record.attempt, record.error_class) == (WAITING, 0, "unknown")
        assert queued.counts() == (0, 1, 0, 1)
        queued.order = sync.again(queued)
        sync.handled(queued)
        assert creating.leads["a"]["name"] == "newer"
        assert queued.record("a").sent_version == 2

    def test_each_is_looked_up_before_it_is_sent(
        self, creating_server: Sink, creating: Store
    ) -> None:
        """Also when some of a call need not be sent, and others of the order were never sent."""
        policy = sync.policy(sync.http_crm(creating_server, creating))
        creating.leads["a"] = {"id": "a", "name": "name a", "v": 1}
        queued = sync.on_its_way(policy, sync.requests("abcdefghxyz"), check=True)
        for entry in queued.order.entries:
            entry.check = entry.request.key in "abcdefgh"
        sync.MainQueue(policy.crm.name).put([queued.order])
        sync.handled(queued)
        first: dict[str, str] = {}
        for request in asked(creating_server):
            key = request.path[-1] if request.method == "GET" else request.body["id"]
            first.setdefault(key, request.method)
        assert first == dict.fromkeys("abcdefgh", "GET") | dict.fromkeys("xyz", "POST")
        assert sorted(creating.changed) == list("bcdefghxyz")


class TestConflict:
    def test_the_other_record_is_changed(self, creating_server: Sink, creating: Store) -> None:
        policy = sync.policy(sync.http_crm(creating_server, creating), on_conflict="update")
        creating.says["a"] = [Answer({"rid": "r-9"}, 409)]
        queued = sync.queued(policy, sync.requests("ab"))
        sync.handled(queued)
        assert queued.states() == {"a": CONFIRMED, "b": CONFIRMED}
        assert queued.record("a").remote_id == "r-9"
        assert creating_server.requests[-1].line.startswith("PATCH /leads/r-9")

    @pytest.mark.parametrize("answers", [[{"rid": "r-9"}, {"rid": "r-8"}], [{}]])
    def test_dead_when_that_is_no_way(
        self, creating_server: Sink, creating: Store, answers: list[Any]
    ) -> None:
        policy = sync.policy(sync.http_crm(creating_server, creating), on_conflict="update")
        creating.says["a"] = [Answer(body, 409) for body in answers]
        queued = sync.queued(policy, sync.requests("a"))
        sync.handled(queued)
        assert queued.record("a").state == DEAD
        assert RecoveryEntry.objects.get().error_class == "conflict"
        assert creating.calls == len(answers)

    def test_a_record_that_two_share_is_deleted_with_the_last_of_them(
        self, creating_server: Sink, creating: Store
    ) -> None:
        delete = {"method": "DELETE", "url": creating_server.url("/leads/{remote_id}")}
        crm = sync.http_crm(creating_server, creating, settings={"delete": delete})
        policy = sync.policy(crm)
        creating.says["b"] = [Answer({"rid": "r-a"}, 409)]
        queued = sync.queued(policy, sync.requests("ab"))
        sync.handled(queued)
        assert [record.remote_id for record in queued.records()] == ["r-a", "r-a"]
        for key, gone in (("a", []), ("b", ["r-a"])):
            sync.deleted(queued, key)
            queued.order = sync.again(queued)
            sync.handled(queued)
            assert queued.record(key).state == CONFIRMED
            assert creating.deleted == gone


class TestNewerVersions:
    def test_one_that_came_before_sending_is_not_sent(self, customers: Customers) -> None:
        policy = sync.policy(customers.crm())
        queued = sync.on_its_way(policy, sync.requests("ab"))
        operation = sync.newer(queued, "a")
        sync.MainQueue(policy.crm.name).put([queued.order])
        sync.handled(queued)
        assert set(customers.rows()) == {"b"}
        record = queued.record("a")
        assert (record.state, record.attempt, record.sending_operation) == (WAITING, 0, 0)
        assert record.next_at <= sql.now()
        assert queued.counts() == (1, 1, 0, 1)
        sync.again(queued)
        sync.handled(queued)
        with sync.running() as handler:
            sync.turn_until(handler, lambda: queued.record("a").state == CONFIRMED)
        assert customers.rows()["a"] == ("newer", 2)
        assert Operation.objects.get(pk=operation.pk).confirmed == 1

    @pytest.mark.parametrize(
        ("said", "counts"), [(None, (1, 0, 0, 1)), (Answer({}, 422), (0, 1, 0, 1))]
    )
    def test_one_that_came_during_the_call_is_due_now(
        self, server: Sink, store: Store, said: Answer | None, counts: tuple[int, ...]
    ) -> None:
        policy = sync.policy(sync.http_crm(server, store))
        queued = sync.on_its_way(policy, sync.requests("a"))

        def newer_meanwhile(request: Any) -> Answer:
            sync.aside(lambda: sync.newer(queued, "a"))
            return said or store(request)

        server.behaviour = serving(newer_meanwhile).behaviour
        sync.MainQueue(policy.crm.name).put([queued.order])
        sync.handled(queued)
        record = queued.record("a")
        assert (record.state, record.attempt) == (WAITING, 0)
        assert record.sent_version == (0 if said else 1)
        assert queued.counts() == counts
        assert not RecoveryEntry.objects.exists()


class TestLeases:
    def test_what_carries_another_claim_is_not_sent(self, customers: Customers) -> None:
        policy = sync.policy(customers.crm())
        queued = sync.queued(policy, sync.requests("ab"))
        Record.objects.filter(key="a").update(claimed_by="f" * 32)
        sync.handled(queued)
        assert set(customers.rows()) == {"b"}
        assert queued.record("a").claimed_by == "f" * 32
        assert queued.counts() == (1, 0, 0, None)

    def test_what_is_erased_while_its_order_is_delivered_is_not_sent(
        self, server: Sink, store: Store
    ) -> None:
        policy = sync.policy(sync.http_crm(server, store, settings={"batch_size": 1}))
        queued = sync.on_its_way(policy, sync.requests("abc"))

        def erased_meanwhile(request: Any) -> Answer:
            if not store.changed:
                sync.aside(lambda: erasure.erase([queued.record("b").pk]))
            return store(request)

        server.behaviour = serving(erased_meanwhile).behaviour
        sync.MainQueue(policy.crm.name).put([queued.order])
        sync.handled(queued)
        assert store.changed == ["a", "c"]
        assert queued.states() == {"a": CONFIRMED, "b": DISMISSED, "c": CONFIRMED}
        assert queued.counts() == (2, 1, 0, 1)

    def test_a_lease_that_is_nearly_over_is_renewed_before_anything_is_sent(
        self, server: Sink, store: Store
    ) -> None:
        policy = sync.policy(sync.http_crm(server, store))
        queued = sync.on_its_way(policy, sync.requests("a"), lease=3)
        leases = []

        def look(request: Any) -> Answer:
            leases.append(sync.aside(lambda: queued.record("a").next_at - sql.now()))
            return store(request)

        server.behaviour = serving(look).behaviour
        sync.MainQueue(policy.crm.name).put([queued.order])
        sync.handled(queued)
        assert leases[0] > timedelta(seconds=90)

    def test_the_same_order_twice_does_no_harm(
        self, creating_server: Sink, creating: Store
    ) -> None:
        policy = sync.policy(sync.http_crm(creating_server, creating))
        queued = sync.queued(policy, sync.requests("ab"))
        sync.handled(queued)
        sync.MainQueue(policy.crm.name).put([queued.order])
        with sync.running() as handler:
            sync.turn_until(handler, lambda: depths(policy.crm.name) == (0, 0))
        assert sorted(creating.changed) == ["a", "b"]
        assert queued.counts() == (2, 0, 0, 1)
        assert Item.objects.count() == 0
