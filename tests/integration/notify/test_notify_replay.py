"""Bulk actions: send again what failed, replay since a time, make missing deliveries."""

import signal
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from msgplatform.core.data import ids, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import bulk_pages
from msgplatform.core.flows.bulk_pages import Counted
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Biz
from notify.actions import actions, periods
from notify.maker import ending
from notify.maker.maker import Maker
from notify.models import BizReceive, ReceiveMsg
from tests.support.archive_support import Status, archive, message
from tests.support.children import child
from tests.support.notify_rows import publish, resend, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"))


def days_ago(days: float) -> str:
    return (sql.now() - timedelta(days=days)).isoformat()


def finish(action: str, limit: int = 3, **given: object) -> int:
    """Step by step to the end, each step twice, as after a kill; how many were done in all."""
    filter = {name: str(value) for name, value in given.items()}
    cursor, done = "", 0
    for _ in range(1000):
        step = actions.ACTIONS[action].step(filter, cursor, limit)
        repeated = actions.ACTIONS[action].step(filter, cursor or step.cursor, limit)
        done += step.done + repeated.done
        cursor = step.cursor
        if not cursor:
            return done
    raise AssertionError("it does not end")


def states() -> dict[int, tuple[int, int]]:
    rows = ReceiveMsg.objects.values_list("msg_id", "status", "generation")
    return {message_id: (status, generation) for message_id, status, generation in rows}


# -- resend -------------------------------------------------------------------------------------
def test_resend_takes_only_what_is_meant(row: BizReceive) -> None:
    other = subscription(Biz.objects.create(name="stock"), "shop")
    exhausted = [message(row, Status.EXHAUSTED, days=n) for n in (5, 4, 3, 2, 1)]
    paid = message(row, Status.EXHAUSTED, days=2, event_type="order.late")
    elsewhere = message(other, Status.EXHAUSTED, days=2)
    skipped = message(row, Status.SKIPPED, days=2)
    poison = message(row, Status.POISON, days=2)
    message(row, Status.DELIVERED, days=2)
    cases: list[tuple[dict, list[int]]] = [
        ({}, [*exhausted, paid, elsewhere]),
        ({"subscription": row.pk}, [*exhausted, paid]),
        ({"subscription": "stock/shop"}, [elsewhere]),
        ({"biz": "stock"}, [elsewhere]),
        ({"event_type": "order.late"}, [paid]),
        ({"status": "skipped"}, [skipped]),
        ({"status": "poison", "biz": "orders"}, [poison]),
        ({"since": days_ago(3.5), "until": days_ago(1.5), "biz": "orders"},
         [*exhausted[2:4], paid]),
    ]  # fmt: skip
    for given, expected in cases:
        before = states()
        assert actions.ACTIONS["resend"].count(given).count == len(expected), given
        assert finish("resend", **given) == len(expected), given
        changed = {pk for pk, now in states().items() if now != before[pk]}
        assert changed == set(expected)
        assert all(states()[pk] == (Status.PENDING, before[pk][1] + 1) for pk in expected)
        for pk in expected:
            ReceiveMsg.objects.filter(msg_id=pk).update(status=before[pk][0])


def test_resend_of_a_selection(row: BizReceive) -> None:
    kinds = [Status.EXHAUSTED, Status.POISON, Status.SKIPPED, Status.DELIVERED, Status.QUEUED]
    for status in kinds:
        message(row, status, days=1)
    deliveries = dict(ReceiveMsg.objects.values_list("status", "id"))
    listed = " ".join(map(str, deliveries.values()))
    assert actions.ACTIONS["resend"].count({"ids": listed}).count == 3
    assert finish("resend", 2, ids=listed) == 3
    assert finish("resend", 2, ids=listed) == 0
    assert resend([deliveries[Status.DELIVERED], deliveries[Status.QUEUED]]) == 1
    with pytest.raises(InvalidInput):
        actions.ACTIONS["resend"].count({"ids": ",".join(map(str, range(501)))})


def test_pages_go_on_past_what_is_not_meant(row: BizReceive) -> None:
    """Many that share one time, most of another type: no page is read twice, none is left out."""
    wanted = [
        message(row, Status.EXHAUSTED, days=1, event_type="a.b" if n % 10 == 0 else "c.d")
        for n in range(100)
    ][::10]
    ReceiveMsg.objects.update(next_at=sql.now())
    assert finish("resend", 3, event_type="a.b") == 10
    assert {pk for pk, (status, _) in states().items() if status == Status.PENDING} == set(wanted)


def test_what_is_exhausted_again_is_not_sent_for_ever(row: BizReceive) -> None:
    for _ in range(5):
        message(row, Status.EXHAUSTED, days=1)
    cursor, done = "", 0
    for _ in range(10):
        step = actions.ACTIONS["resend"].step({}, cursor, 2)
        done += step.done
        ReceiveMsg.objects.filter(status=Status.PENDING).update(status=Status.EXHAUSTED)
        cursor = step.cursor
        if not cursor:
            break
    assert (done, cursor) == (5, "")


# -- replay --------------------------------------------------------------------------------------
def test_replay_sends_delivered_ones_again(row: BizReceive) -> None:
    other = subscription(row.biz, "other")
    ended = [Status.DELIVERED, Status.EXHAUSTED, Status.SKIPPED] * 4
    final = [message(row, status, days=2) for status in ended]
    message(row, Status.DELIVERED, days=4)
    message(row, Status.QUEUED, days=2)
    message(row, Status.PENDING, days=2)
    message(other, Status.DELIVERED, days=2)
    given = {"subscription": str(row.pk), "since": days_ago(3)}
    assert actions.ACTIONS["replay"].count(given) == Counted(12)
    assert finish("replay", 5, **given) == 12
    again = {pk for pk, (_, generation) in states().items() if generation == 1}
    assert again == set(final)
    assert ReceiveMsg.objects.get(msg_id=final[0]).send_times == 0
    assert ReceiveMsg.objects.get(msg_id=final[0]).attempts.count() == 1


@pytest.mark.parametrize("missing", ["subscription", "since"])
def test_replay_needs_to_know_what(row: BizReceive, missing: str) -> None:
    given = {"subscription": str(row.pk), "since": "2026-01-01"}
    del given[missing]
    with pytest.raises(InvalidInput) as caught:
        actions.ACTIONS["replay"].count(given)
    assert caught.value.field == missing


def test_replay_of_what_never_succeeded(row: BizReceive) -> None:
    other = subscription(row.biz, "other")
    failed = [
        message(row, status, days=2) for status in (Status.EXHAUSTED, Status.POISON, Status.SKIPPED)
    ]
    failed.append(message(other, Status.EXHAUSTED, days=2))
    waits = message(row, Status.PENDING, days=2)  # one attempt was made
    ReceiveMsg.objects.filter(msg_id=waits).update(next_at=sql.now() + timedelta(hours=20))
    fresh = message(row, Status.PENDING, days=2)
    ReceiveMsg.objects.filter(msg_id=fresh).update(send_times=0)
    message(row, Status.DELIVERED, days=2)
    message(row, Status.HELD, days=2)
    with pytest.raises(InvalidInput):
        actions.ACTIONS["replay_failed"].count({"since": days_ago(3)})
    assert finish("replay_failed", 2, biz="orders", since=days_ago(3)) == 5
    again = {pk for pk, (_, generation) in states().items() if generation}
    assert again == {*failed, waits}
    assert ReceiveMsg.objects.get(msg_id=waits).next_at <= sql.now()


def test_what_an_erasure_ended_is_not_sent_again(row: BizReceive) -> None:
    erased, skipped, _archived = (message(row, Status.SKIPPED, days=n) for n in (2, 2, 60))
    ReceiveMsg.objects.exclude(msg_id=skipped).update(error=ending.ERASED)
    archive()
    since, pk = days_ago(100), ReceiveMsg.objects.get(msg_id=erased).pk
    cases: list[tuple[str, dict[str, Any], int]] = [
        ("replay_failed", {"biz": "orders", "since": since}, 1),
        ("replay", {"subscription": str(row.pk), "since": since}, 1),
        ("resend", {"status": "skipped"}, 1),
        ("resend", {"ids": str(pk)}, 0),
    ]
    for action, given, expected in cases:
        assert actions.ACTIONS[action].count(given).count == expected, action
        assert finish(action, **given) == expected
        ReceiveMsg.objects.filter(msg_id=skipped).update(status=Status.SKIPPED)
    assert resend([pk]) == 0
    assert states() == {erased: (Status.SKIPPED, 0), skipped: (Status.SKIPPED, 3)}


def test_all_deliveries_of_one_message_go_together(row: BizReceive) -> None:
    """More deliveries than a page has: the position is a message, so none is left out."""
    for _ in range(3):
        message(row, *[Status.EXHAUSTED] * 7, days=1)
    assert finish("replay_failed", 3, biz="orders", since=days_ago(3)) == 21


def test_a_page_reads_the_deliveries_that_it_sends_alone(row: BizReceive) -> None:
    """A message may have a thousand deliveries of which few failed."""
    kinds = [Status.EXHAUSTED] * 9 + [Status.DELIVERED] * 40
    first, *_others = (message(row, *kinds, days=1) for _ in range(3))
    with CaptureQueriesContext(connection) as queries:
        page = periods.ReplayFailed({"biz": row.biz_id}, sql.now()).page("", 5)
    assert (len(page.ids), page.position) == (9, str(first))
    with connection.cursor() as cursor:
        for query in queries.captured_queries:
            if "receive_msg" in query["sql"]:
                cursor.execute(query["sql"])
                assert len(cursor.fetchall()) <= 9, query["sql"]


# -- backfill ------------------------------------------------------------------------------------
def test_resplit_makes_the_missing_deliveries_only(row: BizReceive) -> None:
    done = [message(row, Status.DELIVERED, days=2, event_type=f"order.n{n % 2}") for n in range(8)]
    early = message(row, Status.DELIVERED, days=5)
    newer = subscription(row.biz, "newer", event_types=["order.n1"])
    paused = subscription(row.biz, "paused", status=BizReceive.Status.PAUSED)
    subscription(row.biz, "discarded", status=BizReceive.Status.DISCARDED)
    given = {"biz": "orders", "since": days_ago(3)}
    assert actions.ACTIONS["backfill"].count(given).count == 8
    assert finish("backfill", 3, **given) == 4 + 8
    assert finish("backfill", 3, **given) == 0
    deliveries = ReceiveMsg.objects.filter(biz_receive=newer)
    assert {c.msg_id for c in deliveries} == set(done[1::2])
    for delivery in deliveries:
        assert delivery.status == Status.PENDING
        assert delivery.created_at == delivery.msg.created_at
        assert ids.bucket_of(delivery.pk) == ids.bucket_of(delivery.msg_id)
    assert set(ReceiveMsg.objects.filter(biz_receive=paused).values_list("status", flat=True)) == {
        Status.HELD
    }
    assert not ReceiveMsg.objects.filter(msg_id=early).exclude(biz_receive=row).exists()
    maker = Maker()
    while maker.turn():
        pass
    assert set(deliveries.values_list("status", flat=True)) == {Status.QUEUED}


def test_resplit_of_a_message_that_had_no_delivery(row: BizReceive) -> None:
    """It was published before anybody wanted it."""
    pks = [message(row, days=1) for _ in range(3)]
    given: dict[str, Any] = {
        "biz": "orders",
        "since": days_ago(3),
        "subscription": str(row.pk),
    }
    assert finish("backfill", **given) == 3
    assert set(states()) == set(pks)


def test_what_is_not_split_yet_is_the_maker_s(row: BizReceive) -> None:
    publish(row.biz, 3)
    assert finish("backfill", biz="orders", since=days_ago(3)) == 0
    maker = Maker()
    while maker.turn():
        pass
    assert ReceiveMsg.objects.count() == 3


def test_resplit_is_bounded(row: BizReceive, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(6):
        subscription(row.biz, f"more-{n}")
    for _ in range(5):
        message(row, Status.DELIVERED, days=1)
    monkeypatch.setattr(periods, "MAX_DELIVERIES", 10)
    assert finish("backfill", 100, biz="orders", since=days_ago(3)) == 30


def test_resplit_counts_what_is_missing_once(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And anew when there is more than was counted: of a subscription that was made meanwhile."""
    for n in range(3):
        subscription(row.biz, f"more-{n}")
    pks = [message(row, Status.DELIVERED, days=1) for _ in range(8)]
    monkeypatch.setattr(periods, "MAX_DELIVERIES", 3)
    counted: list[int] = []
    real = periods._count_missing

    def count(message_ids: Any, only: Any) -> Any:
        counted.append(len(message_ids))
        lacking = real(message_ids, only)
        if len(counted) == 2:
            subscription(row.biz, "made meanwhile")
        return lacking

    monkeypatch.setattr(periods, "_count_missing", count)
    assert periods.add_missing(pks[:4], periods.Scope()) == 4 * 3
    assert counted == [4]
    assert periods.add_missing(pks[4:], periods.Scope()) == 4 * 4
    assert counted == [4, 4, 4]


def test_resplit_and_archiver_at_once(row: BizReceive) -> None:
    """Whichever comes first: a message is archived without the delivery, or is hot with it."""
    pks = [message(row, Status.DELIVERED, days=9) for _ in range(150)]
    newer = subscription(row.biz, "newer")
    program = f"""
def work(number):
    from notify.archive.archiver import Archiver
    from notify.actions import periods
    if number:
        return periods.add_missing({pks}, periods.Scope())
    archiver = Archiver()
    while archiver.turn():
        pass
    return archiver.heartbeat.done
together(work, 2)
"""
    with child(program) as started:
        archived, made = started.heard()
    assert archived + made == 150
    assert ReceiveMsg.objects.filter(biz_receive=newer).count() == made
    assert ReceiveMsg.objects.filter(biz_receive=row).count() == made


# -- as bulk jobs --------------------------------------------------------------------------------
def test_a_killed_runner_s_job_is_done_once(row: BizReceive) -> None:
    for _ in range(700):
        message(row, Status.DELIVERED, days=1)
    given = {"subscription": str(row.pk), "since": days_ago(2)}
    job = BulkJob.objects.create(flow="notify", action="replay", filter=given, created_by="x")
    program = """
import os, signal
from msgplatform.jobs import bulk
from msgplatform.core import flows
action = flows.get("notify").actions["replay"]
real = action.step
def dying(self, *given):
    step = real(*given)
    if step.done:
        os.kill(os.getpid(), signal.SIGKILL)
    return step
type(action).step = dying
say("on")
runner = bulk.BulkRunner()
while runner.turn():
    pass
"""
    with child(program) as killed:
        assert killed.heard() == "on"
        assert killed.process.wait(timeout=300) == -signal.SIGKILL
    assert ReceiveMsg.objects.filter(status=Status.PENDING).count() == 500
    ReceiveMsg.objects.update(status=Status.DELIVERED)  # and what it sent has arrived again
    BulkJob.objects.update(lease_until=sql.now() - timedelta(seconds=1))
    runner = BulkRunner()
    while runner.turn():
        pass
    job.refresh_from_db()
    assert job.state == BulkJob.State.DONE
    assert set(ReceiveMsg.objects.values_list("generation", flat=True)) == {1}


def test_a_count_is_bounded(row: BizReceive, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(30):
        message(row, Status.EXHAUSTED, days=1)
    monkeypatch.setattr(bulk_pages, "MAX_COUNT", 20)
    monkeypatch.setattr(bulk_pages, "COUNT_PAGE", 7)
    counted = actions.ACTIONS["resend"].count({})
    assert (counted.count, counted.more) == (20, True)


def test_a_page_costs_the_same_wherever_it_is(row: BizReceive) -> None:
    for _ in range(120):
        message(row, Status.DELIVERED, days=1)
    given = {"subscription": str(row.pk), "since": days_ago(2)}
    costs, cursor = [], ""
    while True:
        with CaptureQueriesContext(connection) as captured:
            step = actions.ACTIONS["replay"].step(given, cursor, 30)
        costs.append(len(captured))
        cursor = step.cursor
        if not cursor:
            break
    assert len(costs) == 5
    assert max(costs[1:]) - min(costs[1:]) <= 1


# -- what moves meanwhile ------------------------------------------------------------------------
@pytest.mark.parametrize("table", ["biz_msg", "receive_msg"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_what_the_archiver_moves_between_two_looks_is_sent_again(
    row: BizReceive, table: str, nth: int
) -> None:
    """It moves just before the nth statement that reads this table."""
    wanted = message(row, Status.DELIVERED, days=60)
    given: dict[str, Any] = {"subscription": str(row.pk), "since": days_ago(100)}
    seen, moved = 0, False

    def move(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal seen, moved
        reads = sql.startswith("SELECT") and table in sql.replace("`", '"').split('"')
        seen += reads and not moved
        if reads and seen == nth and not moved:
            moved = True
            archive()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(move):
        counted = actions.ACTIONS["replay"].count(given)
    if not moved:
        archive()
    assert counted == Counted(1)
    assert finish("replay", subscription=row.pk, since=given["since"]) == 1
    assert states()[wanted] == (Status.PENDING, 1)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_named_one_that_moves_between_two_looks_is_sent_again(row: BizReceive, nth: int) -> None:
    """It moves just after the nth statement that reads deliveries, hot or archived ones."""
    wanted = message(row, Status.EXHAUSTED, days=60)
    seen, moved = 0, False

    def move(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal seen, moved
        answer = execute(sql, params, many, context)
        seen += not moved and sql.startswith("SELECT") and "receive_msg" in sql
        if seen == nth and not moved:
            moved = True
            archive()
        return answer

    with connection.execute_wrapper(move):
        assert actions.ACTIONS["resend"].count({"ids": str(wanted)}) == Counted(1)
    assert moved or nth > seen
