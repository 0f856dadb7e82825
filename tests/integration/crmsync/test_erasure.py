from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now

from crmsync import copies, erasure, orders
from crmsync.models import Item, Operation, Policy, Record, RecoveryEntry
from crmsync.orders import Request
from crmsync.poller import due
from crmsync.poller.decisions import Round, StoredRound
from crmsync.poller.reading.increment import Watermark
from crmsync.poller.requests import RowRequest
from crmsync.poller.store import store
from crmsync.recovery import replay as replays
from crmsync.recovery.actions import edit_and_retry
from crmsync.recovery.operation_finder import OperationFinder
from msgplatform.core.connections import work_redis
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import LeaseLost
from msgplatform.core.person.identity import Person
from tests.integration.crmsync import sync_support
from tests.integration.crmsync.recovery_steps import confirmed, dead, longer_ago, record
from tests.integration.crmsync.sync_support import Customers, new_operation, requests

pytestmark = pytest.mark.django_db(transaction=True)
_State = Record.State
SECRET = "13800001234"


@pytest.fixture(autouse=True)
def empty_redis() -> Iterator[None]:
    work_redis().flushdb()
    yield
    work_redis().flushdb()


@pytest.fixture
def customers(tmp_path: Path) -> Customers:
    return Customers(tmp_path)


@pytest.fixture
def policy(customers: Customers) -> Policy:
    return sync_support.policy(customers.crm(), key_prefix="h-")


def read_rows(policy: Policy, holder: str = "me", **versions: int) -> StoredRound:
    """A round in which the poller `holder` read these rows, with SECRET in each, and was stopped
    before it queued them."""
    Policy.objects.filter(pk=policy.pk).update(
        claimed_by="me", lease_until=Now() + timedelta(seconds=60)
    )
    made = [
        RowRequest(key, one, orders.digest(one))
        for key, version in versions.items()
        for one in [Request(f"h-{key}", version, {"name": f"{key} {version} {SECRET}"})]
    ]
    found = Policy.objects.select_related("source", "crm").get(pk=policy.pk)
    return store(
        Round(
            found, holder, policy.crm_id, ids.new(0), 0, made,
            Watermark("2026-11-26 08:00:00", 1),
        )
    )  # fmt: skip


def operation(stored: StoredRound) -> Operation:
    assert stored.operation
    return stored.operation


def confirm(policy: Policy) -> None:
    Record.objects.filter(policy_id=policy.pk).update(
        state=_State.CONFIRMED, claimed_by="", next_at=None, sending_operation=0
    )


def record_of(policy: Policy, key: str) -> Record:
    return Record.objects.get(policy_id=policy.pk, key=key)


def texts() -> list[str]:
    """Everything that operations and their copies hold."""
    data = [bytes(row.data).decode() for row in Operation.objects.order_by("id")]
    kept = copies.read([each for page in copies.since(0) for each in page])
    return data + [copy.data.decode() for copy in kept.values()]


def test_each_version_of_one_person_is_cut_out_and_nothing_else(policy: Policy) -> None:
    rounds = []
    for version in (1, 2, 3):
        rounds.append(read_rows(policy, a=version, b=version))
        copies.keep(operation(rounds[-1]))
        if version != 1:  # the second was read while the first was on its way
            confirm(policy)
    alone = read_rows(policy, b=4)

    result = erasure.erase([record_of(policy, "a").pk])

    assert result.requests == 3
    assert result.operations == {operation(each).pk for each in rounds}
    for number, each in enumerate(rounds, 1):
        row = Operation.objects.get(pk=operation(each).pk)
        assert copies.read([row.pk])[row.pk].data == bytes(row.data)
        first, second = orders.load(bytes(row.data))
        assert (first.key, first.version, first.fields, first.erased) == ("h-a", number, {}, True)
        assert second.fields == {"name": f"b {number} {SECRET}"}
    assert f"b 4 {SECRET}" in bytes(Operation.objects.get(pk=operation(alone).pk).data).decode()
    assert not [text for text in texts() if f" {SECRET}" in text and '"a ' in text]
    assert erasure.erase([record_of(policy, "a").pk]).requests == 0


def test_a_repetition_writes_no_copy_that_a_poller_brings_back(policy: Policy) -> None:
    stopped = operation(read_rows(policy, a=1))
    erasure.erase([record_of(policy, "a").pk])

    copies.keep(stopped)  # the poller goes on, with what it has in memory

    assert copies.read([stopped.pk])[stopped.pk].data == bytes(
        Operation.objects.get(pk=stopped.pk).data
    )
    assert not [text for text in texts() if SECRET in text]


def test_operations_of_an_earlier_release_and_those_that_only_redis_has(policy: Policy) -> None:
    old = [
        new_operation(policy, [Request("h-a", n, {"name": SECRET}), *requests(["h-b"], n)])
        for n in (1, 2)
    ]
    record(old[1], Request("a", 2, {"name": SECRET}), _State.CONFIRMED)
    lost = new_operation(policy, [Request("h-a", 3, {"name": SECRET})])
    copies.keep(lost)
    Operation.objects.filter(pk=lost.pk).delete()
    of_another = new_operation(sync_support.hive("other"), [Request("h-a", 1, {"name": SECRET})])

    assert erasure.erase([record_of(policy, "a").pk]).requests == 3
    assert [t for t in texts() if SECRET in t] == [bytes(of_another.data).decode()]


def test_records_on_their_way_are_not_sent(policy: Policy, customers: Customers) -> None:
    stored = read_rows(policy, a=1, b=1)
    crm = policy.crm
    order = orders.Order(policy.pk, crm.pk, "", stored.lease_until, stored.entries)
    order.claim = record_of(policy, "a").claimed_by
    orders.MainQueue(crm.name).put([order])

    erasure.erase([record_of(policy, "a").pk])

    with sync_support.running() as handler:
        sync_support.turn_until(
            handler, lambda: not Record.objects.filter(claimed_by=order.claim).exists()
        )
    assert list(customers.rows()) == ["h-b"]
    now = Operation.objects.get(pk=operation(stored).pk)
    assert (now.confirmed, now.replaced, now.dead, now.result) == (1, 1, 0, 1)
    one = record_of(policy, "a")
    assert (one.state, one.error_class) == (_State.DISMISSED, "unknown")
    # A newer version is sent as usual, and looked up first.
    [entry] = read_rows(policy, a=2).entries
    assert (entry.record, entry.check) == (one.pk, True)


def test_rows_that_were_read_before_are_read_again(policy: Policy) -> None:
    read_rows(policy, a=1)
    confirm(policy)
    erasure.erase([record_of(policy, "a").pk])
    policy.refresh_from_db()
    assert (policy.claimed_by, policy.lease_until) == ("", None)
    with pytest.raises(LeaseLost):
        read_rows(policy, holder="somebody else", a=2)


def test_sent_again_it_is_dead_and_says_why(policy: Policy, customers: Customers) -> None:
    read_rows(policy, a=1)
    confirm(policy)
    one = record_of(policy, "a")
    erasure.erase([one.pk])
    Record.objects.filter(pk=one.pk).update(state=_State.WAITING, next_at=Now())

    found = due.claim(policy, policy.crm_id, 10)

    assert found.entries == []
    entry = RecoveryEntry.objects.get(record_id=one.pk)
    assert (entry.error_class, entry.reason) == (
        "erased", "The values of this record were erased: there is nothing to send.",
    )  # fmt: skip
    assert record_of(policy, "a").state == _State.DEAD


def test_a_replay_leaves_it_alone_also_one_that_began_before(policy: Policy) -> None:
    stored = operation(read_rows(policy, a=1, b=1))
    copies.keep(stored)
    confirm(policy)
    longer_ago()
    [before] = OperationFinder().by_ids([stored.pk])
    Operation.objects.filter(pk=stored.pk).delete()
    [before_from_redis] = OperationFinder().by_ids([stored.pk])
    assert (before.is_stored, before_from_redis.is_stored) == (True, False)

    erasure.erase([record_of(policy, "a").pk])

    counts = replays.replay(before_from_redis, sql.now(), "somebody")
    assert (counts.sent, counts.left_erased, counts.operations_from_redis) == (1, 1, 1)
    states = {each.key: each.state for each in Record.objects.all()}
    assert states == {"a": _State.CONFIRMED, "b": _State.WAITING}
    assert not [text for text in texts() if f"a 1 {SECRET}" in text]
    [now] = OperationFinder().by_ids([stored.pk])
    assert replays.replay(now, sql.now(), "somebody", dry_run=True).left_erased == 1


def test_a_request_that_only_names_the_person_is_sent_all_the_same(policy: Policy) -> None:
    stored = operation(read_rows(policy, a=1))
    Record.objects.update(
        state=_State.WAITING, claimed_by="", sending_operation=0, next_at=sql.now()
    )

    assert erasure.erase_texts(policy.pk, stored.pk, Person(phones=frozenset({SECRET}))) == 1

    assert not [text for text in texts() if SECRET in text]
    claimed = due.claim(policy, policy.crm_id, 10)
    assert [each.request.key for each in claimed.entries] == ["h-a"]


def test_an_edited_request_and_one_that_died(policy: Policy) -> None:
    Policy.objects.filter(pk=policy.pk).update(key_prefix="")
    one, entry = dead(policy, "a")
    edit_and_retry(entry.pk, {"name": SECRET}, "somebody")
    edited = record_of(policy, "a")
    assert edited.operation_id != one.operation_id
    assert erasure.erase([one.pk]).operations == {one.operation_id, edited.operation_id}
    assert not [text for text in texts() if SECRET in text]


def test_a_deleted_policy_unreadable_data_and_records_that_are_gone(policy: Policy) -> None:
    one = confirmed(policy, "a")
    Operation.objects.filter(pk=one.operation_id).update(data=b"[{broken")
    Item.objects.create(
        id=ids.new(0), operation_id=read_rows(policy, a=2).operation.pk, record_id=one.pk,  # type: ignore[union-attr]
        crm_id=policy.crm_id, version=2, attempt=1, outcome="ok", at=sql.now(),
    )  # fmt: skip
    Policy.objects.filter(pk=policy.pk).delete()

    result = erasure.erase([one.pk, 1, 2])

    assert result.requests == 1
    assert not [text for text in texts() if SECRET in text]
    assert erasure.erase([]).requests == 0
