import json
import random
import time
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from crmsync import copies, orders
from crmsync.models import Operation, Policy, Record, RecoveryEntry
from crmsync.recovery import operation_finder
from msgplatform.core.connections import work_redis
from msgplatform.core.data import ids, sql
from tests.integration.crmsync import sync_support
from tests.integration.crmsync.recovery_steps import (
    confirmed,
    dead,
    longer_ago,
    record,
    request,
    send_what_is_due,
)
from tests.integration.crmsync.sync_support import Customers, Store, new_operation, requests
from tests.support.json_stub import asked, serving

pytestmark = pytest.mark.django_db(transaction=True)
_State = Record.State


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
    return sync_support.policy(customers.crm())


def recover(*given: str) -> dict[str, Any]:
    """The summary of a run, in which only what is not 0 or empty is left."""
    out = StringIO()
    call_command("sync_recover", *given, "--json", stdout=out, stderr=StringIO())
    return {name: value for name, value in json.loads(out.getvalue()).items() if value}


def lose(*operations: Operation) -> None:
    """The database is restored from a backup that does not have these; Redis has."""
    for operation in operations:
        copies.keep(operation)
        Record.objects.filter(operation_id=operation.pk).delete()
        operation.delete()


def states() -> dict[str, Record.State]:
    return {r.key: _State(r.state) for r in Record.objects.order_by("key")}


def test_what_was_sent_since_a_time_is_sent_again(policy: Policy, customers: Customers) -> None:
    old = confirmed(policy, "old")
    begin = sql.now() - timedelta(hours=3)
    Operation.objects.update(start_at=int(begin.timestamp() * 1000))
    for key in "abc":
        confirmed(policy, key)
    longer_ago()

    assert recover("--since", "2h") == {"operations": 3, "sent": 3}

    assert states() == {
        "old": _State.CONFIRMED, "a": _State.WAITING, "b": _State.WAITING, "c": _State.WAITING,
    }  # fmt: skip
    send_what_is_due(policy)
    assert customers.rows() == {key: (f"name {key}", 1) for key in "abc"}
    counts = Operation.objects.exclude(pk=old.operation_id).values_list("confirmed", "result")
    assert list(counts) == [(1, 1)] * 3
    old.refresh_from_db()
    assert old.sent_version == 1


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_was_stored_since_the_backup_is_not_made_twice(settings: Any, is_lost: bool) -> None:
    """The CRM's call may not be repeated, and the backup does not have the record, or not its id:
    it is looked up first."""
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    store = Store()
    store.leads["a"] = {"id": "a", "name": "name a", "v": 1}
    with serving(store) as server:
        policy = sync_support.policy(sync_support.http_crm(server, store))
        one = request("a")
        operation = new_operation(policy, [one])
        record(operation, one, _State.WAITING)
        pk = operation.pk
        if is_lost:
            lose(operation)
        longer_ago()

        assert recover("--operation", str(pk))["sent"] == 1

        send_what_is_due(policy)
        assert [each.method for each in asked(server)] == ["GET"]
    row = Record.objects.get()
    assert (row.state, row.remote_id, row.error_class) == (_State.CONFIRMED, "r-a", "")


def test_without_a_call_that_reads_it_is_sent(settings: Any) -> None:
    """Otherwise each record would be dead, for want of a look-up."""
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    store = Store()
    with serving(store) as server:
        crm = sync_support.http_crm(server, store, settings={"read": None})
        policy = sync_support.policy(crm)
        operation = new_operation(policy, [request("a")])
        pk = operation.pk
        lose(operation)
        longer_ago()

        assert recover("--operation", str(pk))["sent"] == 1

        send_what_is_due(policy)
        assert [each.method for each in asked(server)] == ["POST"]
    assert Record.objects.get().state == _State.CONFIRMED


def test_pages_of_operations(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_finder, "PAGE", 2)
    monkeypatch.setattr("crmsync.copies.PAGE", 2)
    kept = [confirmed(policy, f"kept-{number}") for number in range(5)]
    lost = [new_operation(policy, [request(f"lost-{number}")]) for number in range(5)]
    same_time = lost[0].start_at
    for operation in lost:
        operation.start_at = same_time
    lose(*lost)
    longer_ago()

    assert recover("--since", "1h") == {
        "operations": 10, "operations_from_redis": 5, "sent": 10, "recreated": 5,
    }  # fmt: skip
    assert set(states().values()) == {_State.WAITING}
    assert len(states()) == len(kept) + len(lost)


def test_records_and_operations_are_made_again_from_redis(
    policy: Policy, customers: Customers
) -> None:
    made = requests(["a", "b", "c"])
    made[2] = orders.Request("c", 1, deleted=True)
    operation = new_operation(policy, made)
    data, start_at = bytes(operation.data), operation.start_at
    for one in made:
        record(operation, one, _State.QUEUED)
    pk = operation.pk
    lose(operation)

    assert recover("--operation", str(pk)) == {
        "operations": 1, "operations_from_redis": 1, "sent": 3, "recreated": 3,
    }  # fmt: skip

    again = Operation.objects.get(pk=pk)
    assert (bytes(again.data), again.start_at, again.records) == (data, start_at, 3)
    assert (again.policy_id, again.end_at) == (policy.pk, None)
    assert Record.objects.get(key="c").deleted
    send_what_is_due(policy)
    assert customers.rows() == {"a": ("name a", 1), "b": ("name b", 1)}
    again.refresh_from_db()
    assert (again.confirmed, again.result) == (3, 1)


def test_the_newest_version_wins(policy: Policy, customers: Customers) -> None:
    """Versions 2 and 3 of a, 2 of b and 1 of c are lost, while the backup has version 1 of a and
    3 of b."""
    a, b = confirmed(policy, "a"), confirmed(policy, "b", version=3)
    lost = [
        new_operation(policy, [request("a", 3), request("b", 2)]),
        new_operation(policy, [request("a", 2), request("c", 1)]),
    ]
    lose(*lost)
    longer_ago()

    summary = recover("--since", "1h")

    assert summary["operations"] == 4
    a.refresh_from_db()
    b.refresh_from_db()
    assert (a.version, a.state, a.sent_version) == (3, _State.WAITING, 0)
    assert (b.version, b.state) == (3, _State.WAITING)
    send_what_is_due(policy)
    assert {key: version for key, (_, version) in customers.rows().items()} == {
        "a": 3, "b": 3, "c": 1,
    }  # fmt: skip
    assert not Operation.objects.filter(end_at=None).exists()
    for operation in Operation.objects.all():
        assert operation.confirmed + operation.replaced == operation.records


def test_each_record_is_sent_once_by_one_replay(policy: Policy) -> None:
    """Its operations follow each other, and it is confirmed again in between."""
    new_operation(policy, [request("a")])
    second = confirmed(policy, "a", version=2)
    longer_ago()

    assert recover("--since", "1h") == {"operations": 2, "sent": 1, "left_changed": 1}

    second.refresh_from_db()
    assert second.version == 2


@pytest.mark.parametrize("state", [_State.DEAD, _State.QUEUED, None])
def test_of_two_operations_of_one_version_the_later_wins(policy: Policy, state: int | None) -> None:
    """A correction has the version of what it replaces. The backup is older than it."""
    one = request("a")
    refused = new_operation(policy, [one])
    if state is not None:
        record(refused, one, state)
    corrected = orders.Request("a", 1, {"name": "short"}, row_digest=orders.digest(one))
    operation = new_operation(policy, [corrected])
    pk = operation.pk
    lose(operation)
    longer_ago()

    recover("--since", "1h")

    row = Record.objects.get()
    assert (row.operation_id, row.version, row.digest) == (pk, 1, orders.digest(one))
    assert row.state == (_State.QUEUED if state == _State.QUEUED else _State.WAITING)


def test_what_is_on_its_way_is_left(policy: Policy) -> None:
    one = request("a")
    operation = new_operation(policy, [one])
    flying = record(operation, one, _State.QUEUED)
    before = (flying.next_at, flying.claimed_by)
    longer_ago()

    assert recover("--since", "1h") == {"operations": 1, "left_in_flight": 1}

    flying.refresh_from_db()
    assert (flying.next_at, flying.claimed_by) == before


def test_what_is_on_its_way_goes_on_with_the_newer_version(
    policy: Policy, customers: Customers
) -> None:
    on_its_way = sync_support.queued(policy, requests(["a"]))
    newer = new_operation(policy, [request("a", 2)])
    pk = newer.pk
    lose(newer)

    assert recover("--since", "1h") == {
        "operations": 2,
        "operations_from_redis": 1,
        "left_in_flight": 2,
    }

    sync_support.handled(on_its_way)
    assert on_its_way.states() == {"a": _State.WAITING}
    assert sum(on_its_way.counts()[:3]) == 1  # either way, but once
    send_what_is_due(policy)
    assert customers.rows() == {"a": ("name a", 2)}
    assert Operation.objects.get(pk=pk).result == 1


def test_dismissed_records_stay(policy: Policy) -> None:
    gone, _entry = dead(policy, "a")
    Record.objects.update(state=_State.DISMISSED)
    longer_ago()

    assert recover("--operation", str(gone.operation_id)) == {"operations": 1, "left_dismissed": 1}


def test_dead_records_leave_the_recovery_log(policy: Policy) -> None:
    gone, entry = dead(policy, "a")
    longer_ago()

    assert recover("--operation", str(gone.operation_id)) == {"operations": 1, "sent": 1}

    entry.refresh_from_db()
    assert entry.state == RecoveryEntry.State.RETRIED
    assert states() == {"a": _State.WAITING}


def test_an_operation_that_the_poller_did_not_find(policy: Policy, customers: Customers) -> None:
    gone, _entry = dead(policy, "a", error="fault")
    operation = Operation.objects.get()
    copies.keep(operation)
    Operation.objects.all().delete()
    longer_ago()

    assert recover("--operation", str(gone.operation_id)) == {
        "operations": 1, "operations_from_redis": 1, "sent": 1,
    }  # fmt: skip
    send_what_is_due(policy)
    assert customers.rows() == {"a": ("name a", 1)}
    assert Operation.objects.get().result == 1


def test_a_row_that_the_mapping_refused_is_not_sent_empty(policy: Policy) -> None:
    operation = new_operation(policy, [orders.Request("a", 1)])
    pk = operation.pk
    lose(operation)

    assert recover("--operation", str(pk)) == {"operations": 1, "operations_from_redis": 1}

    assert not states()
    assert Operation.objects.get().replaced == 1


def test_a_dry_run_changes_nothing(policy: Policy) -> None:
    kept = confirmed(policy, "a")
    lost = new_operation(policy, [request("b")])
    lose(lost)
    longer_ago()

    assert recover("--since", "1h", "--dry-run") == {
        "operations": 2, "operations_from_redis": 1, "sent": 2, "recreated": 1, "dry_run": True,
    }  # fmt: skip

    assert states() == {"a": _State.CONFIRMED}
    assert Operation.objects.get().pk == kept.operation_id


def test_only_one_policy(policy: Policy) -> None:
    other = sync_support.policy(sync_support.crm("support"))
    confirmed(policy, "a")
    confirmed(other, "b")
    lose(new_operation(policy, [request("c")]), new_operation(other, [request("d")]))
    longer_ago()

    assert recover("--since", "1h", "--policy", "leads/support") == {
        "operations": 2, "operations_from_redis": 1, "sent": 2, "recreated": 1,
    }  # fmt: skip
    assert states() == {"a": _State.CONFIRMED, "b": _State.WAITING, "d": _State.WAITING}


def test_operations_of_a_policy_that_is_gone(policy: Policy) -> None:
    operation = new_operation(policy, [request("a")])
    lose(operation)
    policy.delete()

    assert recover("--since", "1h") == {
        "operations": 1,
        "operations_from_redis": 1,
        "operations_without_policy": 1,
    }


def test_an_operation_that_is_nowhere(policy: Policy) -> None:
    with pytest.raises(CommandError, match="neither in the database nor in Redis: 12"):
        recover("--operation", "12")
    with pytest.raises(CommandError, match="--policy: there is no such policy"):
        recover("--since", "2h", "--policy", str(policy.pk + 1))


def test_without_redis_the_database_is_replayed(policy: Policy, settings: Any) -> None:
    confirmed(policy, "a")
    longer_ago()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    out = StringIO()

    with pytest.raises(CommandError, match="Redis could not be read"):
        call_command("sync_recover", "--since", "1h", stdout=out)

    assert "Records sent again: 1," in out.getvalue()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["--since", "soon"], "such as 2h"),
        (["--since", "999999d"], "such as 2h"),
        (["--since", "1h", "--policy", "leads/nobody"], "policy"),
        (["--since", "1h", "--operation", "1"], "not allowed with"),
        ([], "required"),
    ],
)
def test_what_it_does_not_understand(policy: Policy, given: list[str], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        recover(*given)


def test_old_copies_leave_redis(policy: Policy, settings: Any) -> None:
    settings.CRM_OPERATION_DAYS = 1.0
    made = [new_operation(policy, [request(name)]) for name in "abc"]
    for operation, days in zip(made, (2, 0.5, 0), strict=True):
        operation.pk = ids.first_id_at(timezone.now() - timedelta(days=days))
        copies.keep(operation)

    kept_ids = [operation.pk for operation in made[1:]]
    assert [pk for page in copies.since(0) for pk in page] == kept_ids
    assert sorted(copies.read([operation.pk for operation in made])) == kept_ids
    for key in (copies.INDEX, *work_redis().keys(f"{copies.PREFIX}*")):
        assert 86_400 <= work_redis().ttl(key) <= 86_400 + 600


def test_a_copy_that_is_written_anew_leaves_redis_with_its_slot(
    policy: Policy, settings: Any
) -> None:
    """Redis 6.2 cannot keep the time that a key has already."""
    settings.CRM_OPERATION_DAYS = 1.0
    operation = new_operation(policy, [request("a")])
    operation.pk = ids.first_id_at(timezone.now() - timedelta(days=0.5))
    copies.overwrite(operation, bytes(operation.data))

    assert list(copies.read([operation.pk])) == [operation.pk]
    (slot_key,) = work_redis().keys(f"{copies.PREFIX}*")
    assert 43_200 <= work_redis().ttl(slot_key) <= 43_200 + 1_200


def test_copies_do_not_fill_redis(policy: Policy, settings: Any) -> None:
    """The oldest go first, by slots of ten minutes."""
    settings.CRM_COPIES_MB = 1
    made = []
    for hours in (5, 4, 3, 2, 1, 0):
        operation = new_operation(policy, [request("a")])
        operation.data = orders.dump(
            [orders.Request("a", 1, {"name": random.randbytes(150_000).hex()})]
        )
        operation.pk = ids.first_id_at(timezone.now() - timedelta(hours=hours))
        copies.keep(operation)
        made.append(operation.pk)
    kept = copies.read(made)
    assert list(kept) == made[-len(kept) :]
    assert 5 <= len(kept) < 6


def test_the_copies_of_a_slot_are_read_in_pages(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crmsync.copies.PAGE", 2)
    made = [new_operation(policy, [request(str(number))]) for number in range(9)]
    for operation in made:
        copies.keep(operation)
    pages = list(copies.since(made[0].start_at))
    assert [pk for page in pages for pk in page] == [operation.pk for operation in made]
    assert max(map(len, pages)) == 2
    assert list(copies.since(made[0].start_at + 3_600_000)) == []


def test_many_copies_need_little_memory(policy: Policy) -> None:
    """A copy of one request is smaller than its JSON and two keys were."""
    client = work_redis()
    before = int(client.info("memory")["used_memory"])
    for number in range(1000):
        fields = {
            "name": f"name {number}",
            "phone": f"1380{number:07}",
            "email": f"{number}@example.com",
        }
        operation = Operation(
            id=ids.new(0), policy_id=policy.pk, start_at=int(time.time() * 1000), end_at=None,
            result=None, data=orders.dump([orders.Request(str(number), 1, fields)]),
        )  # fmt: skip
        copies.keep(operation)
    used = int(client.info("memory")["used_memory"]) - before
    assert used / 1000 < 250


def test_no_copies_when_they_are_not_wanted(policy: Policy, settings: Any) -> None:
    settings.CRM_OPERATION_DAYS = 0
    copies.keep(new_operation(policy, [request("a")]))
    assert not work_redis().keys("crm:copies*")
