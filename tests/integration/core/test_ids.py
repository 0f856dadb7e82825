"""Ids on a real database: nobody makes one twice, whoever is killed, stopped, forked or late."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from django.db import connection, transaction
from django.db.models.functions import Now

from msgplatform.core.cells import Cell
from msgplatform.core.data import engines, id_nodes, ids, sql
from msgplatform.core.errors import Unavailable
from msgplatform.jobs.models import BulkJob
from msgplatform.models import IdNode
from notify.maker import fanout
from tests.support.children import child, run

pytestmark = pytest.mark.django_db(transaction=True)

FAR = timedelta(days=1)
# Seconds since 1970 that no database reaches while these tests exist: a clock that is behind the
# database is not believed. Ticks end in 2094.
IN_2065 = 3_000_000_000.0


def nodes_of(made: Sequence[int]) -> set[int]:
    return {(id >> ids.NODE_SHIFT) & 127 for id in made}


def leave_free(*free: int) -> None:
    """Every node but these is held by somebody else for a day."""
    busy = sql.now() + FAR
    IdNode.objects.bulk_create(
        IdNode(node=node, holder="x" * 32, lease_until=busy, last_tick=1)
        for node in range(128)
        if node not in free
    )


def by_sql(block: ids.Block, parents: Sequence[int]) -> list[int]:
    """Ids that the database makes for these messages, by the expression that the maker runs."""
    messages = " UNION ALL ".join(["SELECT %s AS id"] * len(parents))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {fanout.id_sql()} FROM ({messages}) m CROSS JOIN (SELECT 1 AS id) s",
            [block.base, block.node, *parents],
        )
        return sorted(id for (id,) in cursor.fetchall())


TWO_WAYS = """
from django.db import connection
from msgplatform.core.data import ids
from notify.maker import fanout

def by_python(parents):
    return ids.reserve(len(parents)).ids(parents)

def by_sql(parents):
    block = ids.reserve(len(parents))
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH RECURSIVE m(id) AS (SELECT %s UNION ALL SELECT id + 1 FROM m WHERE id < %s)"
            f" SELECT m.id, {fanout.id_sql()} FROM m CROSS JOIN (SELECT 1 AS id) s",
            [parents[0], parents[-1], block.base, block.node],
        )
        return [id for _, id in sorted(cursor.fetchall())]

wait()
made = []
for turn in range(100):
    parents = list(range(turn, turn + 500))
    made += (by_python if turn % 2 else by_sql)(parents)
say(made)
"""


def test_100_000_ids_of_two_processes_by_sql_and_by_python() -> None:
    with child(TWO_WAYS) as one, child(TWO_WAYS) as other:
        one.ready()
        other.ready()
        started = datetime.now(UTC)
        one.go()
        other.go()
        made = [one.heard(), other.heard()]
        ended = datetime.now(UTC)
    everything = made[0] + made[1]
    assert len(set(everything)) == len(everything) == 100_000
    wanted = [place % 256 for turn in range(100) for place in range(turn, turn + 500)]
    for mine in made:
        assert mine == sorted(mine)
        assert [ids.bucket_of(id) for id in mine] == wanted
        assert len(nodes_of(mine)) == 1
        assert started <= ids.datetime_of(mine[0])
        # 50,000 ticks are 0.4 s: ids may run that far ahead of the clock when made faster.
        assert ids.datetime_of(mine[-1]) <= ended + timedelta(seconds=1)
    assert nodes_of(made[0]) != nodes_of(made[1])


def test_sql_may_count_rows_from_0_or_from_1() -> None:
    """`base + ROW_NUMBER()` stays inside the block like `base + ROW_NUMBER() - 1`."""
    allocator = ids.Allocator()
    made = []
    for take_off in [0, 1] * 10:
        block = allocator.reserve(5)
        made += [block.base + row - take_off for row in range(1, 6)]
    assert len(set(made)) == 100


def test_the_database_makes_the_same_ids_as_python() -> None:
    block = ids.Allocator().reserve(4)
    parents = [0, 3, 256 + 7, (1 << 62) + 255]
    assert by_sql(block, parents) == block.ids(parents)


@pytest.mark.parametrize("cell", [Cell(5, 16), Cell(255, 256)])
def test_in_a_cell_the_database_makes_the_same_ids(cell: Cell, settings: Any) -> None:
    """Also for messages from before, whose low bits name no cell."""
    settings.CELL = cell
    parents = [(7 << 15) + number for number in (0, 3, 200, 255)]
    block = ids.Block(1 << 40, 3, len(parents))
    made = by_sql(block, parents)
    assert made == block.ids(parents)
    assert {cell.number_of(each) for each in made} == {cell.number}


def test_an_allocator_in_use_writes_seldom_and_an_idle_one_never(
    django_assert_num_queries: Any,
) -> None:
    clock = [IN_2065]
    allocator = ids.Allocator(clock=lambda: clock[0])
    allocator.reserve(1)
    with django_assert_num_queries(0):
        for _ in range(49):
            clock[0] += 0.1
            allocator.new(1)
    with django_assert_num_queries(1):
        clock[0] += 0.2
        allocator.new(1)


def test_a_reserve_that_is_kept_lasts_for_minutes_without_the_database() -> None:
    clock = [IN_2065]
    allocator = ids.Allocator(clock=lambda: clock[0])
    first = allocator.reserve(1)
    node = IdNode.objects.get(node=first.node)
    allocator.keep_ahead()
    try:
        deadline = time.monotonic() + 60
        while node.last_tick < first.base + 290 * ids.TICKS_PER_SECOND:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            node.refresh_from_db()
    finally:
        allocator.release()
    assert IdNode.objects.get(node=first.node).holder == ""


def test_it_is_kept_from_the_first_id_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper does not sleep until its next look: a process may be young when the database goes
    away."""
    monkeypatch.setattr(ids, "_LOOK_SECONDS", 3600.0)
    early, late = ids.Allocator(), ids.Allocator()
    early.keep_ahead(at_once=True)
    late.keep_ahead()
    ahead = ids.first_id_at(datetime.now(UTC) + timedelta(seconds=200)) >> ids.TICK_SHIFT
    kept = IdNode.objects.exclude(holder="").filter(last_tick__gt=ahead)

    def until_kept(count: int) -> None:
        deadline = time.monotonic() + 60
        while kept.count() < count:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    try:
        until_kept(1)
        time.sleep(0.5)
        assert kept.count() == 1, "a process that makes no ids takes no node"
        late.reserve(1)
        until_kept(2)
    finally:
        early.release()
        late.release()


def test_a_thread_that_waits_for_the_database_holds_up_nobody_who_has_ids() -> None:
    clock = [IN_2065]
    allocator = ids.Allocator(clock=lambda: clock[0], ahead=10)
    allocator.reserve(1)
    with allocator._one_asks(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(allocator.reserve, 1).result(60).count == 1
        clock[0] += 20
        with pytest.raises(Unavailable, match="does not answer"):
            pool.submit(allocator.reserve, 1).result(60)


def test_inside_a_transaction_it_refuses_always() -> None:
    allocator = ids.Allocator()
    allocator.reserve(1)
    with transaction.atomic(), pytest.raises(RuntimeError, match=r"before transaction\.atomic"):
        allocator.reserve(1)


def test_a_rollback_around_takes_nothing_back() -> None:
    leave_free(5)
    allocator = ids.Allocator()
    before = allocator.reserve(10)
    ceiling = IdNode.objects.get(node=5).last_tick
    with transaction.atomic():
        BulkJob.objects.create(flow="notify", cursor=str(before.ids([1])[0]))
        transaction.set_rollback(True)
    assert not BulkJob.objects.exists()
    assert IdNode.objects.get(node=5).last_tick == ceiling >= before.base + 9
    assert allocator.reserve(1).base > before.base + 9


@pytest.mark.django_db
def test_inside_a_test_case_it_works() -> None:
    """Django's TestCase wraps every test in a transaction; that is nobody's mistake."""
    assert ids.Allocator().new(7) & 255 == 7


def test_a_clock_that_was_set_back() -> None:
    leave_free(9)
    clock = [IN_2065]
    allocator = ids.Allocator(clock=lambda: clock[0])
    made = [allocator.new(1)]
    clock[0] -= 86_400
    made += [allocator.new(1) for _ in range(100)]
    allocator.release()
    # Whoever takes the node over goes on from there, with a clock that is right.
    heir = ids.Allocator()
    made += [heir.new(1) for _ in range(100)]
    assert nodes_of(made) == {9}
    assert made == sorted(set(made))


def test_a_clock_that_is_far_behind_makes_no_id_that_is_past_retention() -> None:
    before = sql.now()
    allocator = ids.Allocator(clock=lambda: time.time() - 40 * 86_400)
    first = allocator.new(0)
    begun = time.monotonic()
    time.sleep(0.02)
    passed = timedelta(seconds=time.monotonic() - begun)
    made = [ids.datetime_of(id) for id in (first, allocator.new(0))]
    assert made[0] > before - timedelta(minutes=2)
    tick = timedelta(milliseconds=1 / 128)  # what is less is left out
    assert made[1] - made[0] >= passed - 2 * tick, "it goes on with the time"


def test_leases_are_by_the_database_s_clock() -> None:
    leave_free(3)
    allocator = ids.Allocator(clock=lambda: IN_2065)
    before = sql.now()
    allocator.reserve(1)
    after = sql.now()
    lease_until = IdNode.objects.get(node=3).lease_until
    assert lease_until
    length, step = timedelta(seconds=id_nodes.LEASE_SECONDS), engines.of().clock_step
    assert before + length - step <= lease_until <= after + length + step


def test_a_stalled_holder_and_its_heir_never_make_the_same_id() -> None:
    """The lease is over and the node has a new holder; the old one wakes up and goes on."""
    leave_free(4)
    clock = [IN_2065]
    stalled = ids.Allocator(clock=lambda: clock[0], lease=0.0)
    made = [stalled.new(0) for _ in range(10)]
    heir = ids.Allocator(clock=lambda: clock[0])
    made += [heir.new(0) for _ in range(10)]
    made += [stalled.new(0) for _ in range(10)]  # still below its own ceiling
    assert nodes_of(made) == {4}
    assert len(set(made)) == 30
    clock[0] += 10  # now it has to ask, and learns that the node is not its own
    with pytest.raises(Unavailable, match="All 128 id nodes of the database are in use"):
        stalled.new(0)
    assert heir.new(0) not in made
    IdNode.objects.filter(node=77).update(lease_until=None)
    assert nodes_of([stalled.new(0)]) == {77}


def test_an_extension_that_is_carried_out_late_takes_nothing_back() -> None:
    """Its client gave up, and a later one was carried out before it."""
    leave_free(5)
    clock = [IN_2065]
    allocator = ids.Allocator(clock=lambda: clock[0])
    allocator.reserve(1)
    later = IdNode.objects.get(node=5).last_tick + 10**9
    IdNode.objects.filter(node=5).update(last_tick=later)
    clock[0] += 3600.0  # it has to extend its hold
    allocator.reserve(1)
    assert IdNode.objects.get(node=5).last_tick == later


MAKER = """
from msgplatform.core.data import ids
allocator = ids.Allocator()
say([allocator.new(1) for _ in range(1000)])
while True:
    last = allocator.reserve(500)
    say(last.base + last.count)
"""


def test_a_holder_killed_with_sigkill() -> None:
    leave_free(8)
    with child(MAKER) as killed:
        made = killed.heard()
        last = max(killed.heard() for _ in range(20))
        killed.kill()
        assert killed.process.stdout
        # What it still said before it died counts too.
        last = max([last, *(int(line) for line in killed.process.stdout if line.endswith(b"\n"))])
    allocator = ids.Allocator()
    with pytest.raises(Unavailable):
        allocator.reserve(1)
    heir, deadline = None, time.monotonic() + 60
    while heir is None:
        assert time.monotonic() < deadline
        IdNode.objects.filter(node=8).update(lease_until=Now())  # a minute later
        # The server may still do what the killed one asked for last, and renew its lease.
        with suppress(Unavailable):
            heir = allocator.reserve(1)
    assert heir.node == 8
    assert nodes_of(made) == {8}
    assert heir.base > last


ENDS = """
from msgplatform.core.data import ids
block = ids.reserve(3)
say([block.node, block.base])
"""


def test_a_process_that_ends_gives_its_node_back() -> None:
    node, base = run(ENDS)
    row = IdNode.objects.get(node=node)
    assert (row.holder, row.lease_until) == ("", None)
    assert base + 2 <= row.last_tick <= base + 3


TWELVE = """
from msgplatform.core.data import ids
together(lambda number: ids.reserve(100).node, int(sys.argv[1]))
"""


def test_12_processes_at_once_get_12_different_nodes() -> None:
    nodes = run(TWELVE, 12)
    assert len(set(nodes)) == 12
    assert set(nodes) <= set(range(128))


def test_14_processes_at_once_compete_for_the_last_12_nodes() -> None:
    free = range(20, 32)
    leave_free(*free)
    answers = run(TWELVE, 14)
    assert sorted(a for a in answers if isinstance(a, int)) == list(free)
    refused = [a for a in answers if not isinstance(a, int)]
    assert [a["error"] for a in refused] == ["Unavailable"] * 2
    assert "stop processes" in refused[0]["text"]


FORKS = """
from django.db import connections
from msgplatform.core.data import ids
mine = [ids.new(1) for _ in range(100)]
connections.close_all()  # as every forking server must

def work(number):
    return [ids.new(1) for _ in range(100)]

together(work, 2)
say(mine + [ids.new(1) for _ in range(100)])
"""


def test_a_forked_child_takes_a_node_of_its_own() -> None:
    with child(FORKS) as process:
        families = [*process.heard(), process.heard()]
    everything = [id for made in families for id in made]
    assert len(set(everything)) == 400
    assert len({frozenset(nodes_of(made)) for made in families}) == 3


def test_many_threads_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_WAIT_SECONDS", 60.0)  # a busy database may answer the first late
    allocator = ids.Allocator()

    def work(_: int) -> list[int]:
        try:
            return [id for n in range(200) for id in allocator.reserve(n % 5 + 1).ids([9])]
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        made = [id for part in pool.map(work, range(8)) for id in part]
    assert len(set(made)) == len(made) == 1600
    assert len(nodes_of(made)) == 1


def test_nodes_never_used_come_first_then_the_one_with_the_lowest_tick() -> None:
    now = round((time.time() - ids.EPOCH.timestamp()) * ids.TICKS_PER_SECOND)
    leave_free(1, 2, 3, 4)
    IdNode.objects.bulk_create(
        [
            IdNode(node=1, last_tick=now - 5_000, lease_until=None),
            IdNode(node=2, last_tick=now - 90_000, lease_until=sql.now() - FAR, holder="dead"),
            IdNode(node=3, last_tick=now + 10**9, lease_until=None),
        ]
    )
    taken = [ids.Allocator().reserve(1) for _ in range(4)]
    assert [block.node for block in taken] == [4, 2, 1, 3]
    assert taken[3].base > now + 10**9


def test_a_row_that_vanished_is_a_lost_node() -> None:
    """Somebody restored or emptied the table: go on with another node, not with this one."""
    clock = [IN_2065]
    allocator = ids.Allocator(clock=lambda: clock[0])
    first = allocator.reserve(1)
    IdNode.objects.all().delete()
    leave_free(50)
    clock[0] += 10
    second = allocator.reserve(1)
    assert second.node == 50
    assert second.base > first.base


def test_flushing_redis_changes_nothing(work_redis: redis.Redis) -> None:
    allocator = ids.Allocator()
    made = [allocator.new(1) for _ in range(100)]
    work_redis.flushall()
    made += [allocator.new(1) for _ in range(100)]
    assert len(set(made)) == 200
    assert len(nodes_of(made)) == 1


def test_a_large_block_is_reserved_before_it_is_used() -> None:
    leave_free(6)
    block = ids.Allocator().reserve(2_000_000)  # more than is kept in reserve
    assert IdNode.objects.get(node=6).last_tick > block.base + 2_000_000
