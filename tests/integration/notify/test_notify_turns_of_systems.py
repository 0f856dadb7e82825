"""A system with much work does not delay another one: turns in the maker and in the sender."""

from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from bench.harness.plans import read_plan
from msgplatform.core.queues import jobs
from msgplatform.models import Biz
from notify import orders
from notify.directory import Subscriptions
from notify.maker import dispatcher, enqueue, splitter
from notify.maker.maker import Maker
from notify.models import BizMsg, BizReceive, ReceiveMsg
from notify.sender import claimer, in_flight
from notify.sender.claimer import OrderClaimer
from tests.support.notify_rows import publish, subscription

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]


@pytest.fixture
def busy() -> Biz:
    return Biz.objects.create(name="busy")


@pytest.fixture
def quiet() -> Biz:
    return Biz.objects.create(name="quiet")


def subscriptions(biz: Biz, count: int) -> list[BizReceive]:
    return [subscription(biz, f"s{n}") for n in range(count)]


def split_of(biz: Biz) -> int:
    return BizMsg.objects.filter(biz=biz, state=BizMsg.State.DISTRIBUTED).count()


def order_of(row: BizReceive) -> int:
    return jobs.depths([orders.queue_name(row.biz_id, row.receive_id)]).popitem()[1]


# -- splitting -----------------------------------------------------------------------------------
def test_a_million_messages_do_not_hold_up_the_next_system(busy: Biz, quiet: Biz) -> None:
    subscription(busy), subscription(quiet)
    for _ in range(5):
        publish(busy, 1000)
    publish(quiet, 3)
    maker = Maker()
    split, _queued = maker.splitter.split()
    assert split_of(quiet) == 3
    assert split == splitter.BATCH, "what the other has not used is used"


def test_messages_for_many_subscriptions_do_not_either(
    busy: Biz, quiet: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitter, "MAX_DELIVERIES", 500)
    subscriptions(busy, 50)
    row = subscription(quiet)
    publish(busy, 100)
    publish(quiet, 20)
    Maker().splitter.split()
    assert split_of(quiet) == 20
    assert 0 < split_of(busy) <= 10
    assert list(ReceiveMsg.objects.filter(biz_receive=row).order_by("id").values_list("msg_id"))


def test_a_message_for_more_subscriptions_than_one_step_takes_others_with_it(
    busy: Biz, quiet: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitter, "MAX_DELIVERIES", 40)
    subscriptions(busy, 50)
    subscription(quiet)
    publish(busy, 5)
    publish(quiet, 4)
    maker = Maker()
    maker.splitter.split()
    assert (split_of(busy), split_of(quiet)) == (1, 4)
    publish(quiet, 4)  # nor do they hold up each other when the number of recipients is known
    maker.splitter.split()
    assert (split_of(busy), split_of(quiet)) == (2, 8)
    assert ReceiveMsg.objects.count() == 2 * 50 + 8


def test_several_systems_with_such_messages_do_not_hold_up_the_next(
    busy: Biz, quiet: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitter, "MAX_DELIVERIES", 20)
    other = Biz.objects.create(name="other")
    for biz in (busy, other):
        subscriptions(biz, 30)
        publish(biz, 3)
    row = subscription(quiet)
    publish(quiet, 4)
    maker = Maker()
    maker.splitter.split()
    assert (split_of(busy), split_of(other), split_of(quiet)) == (1, 0, 4)
    while maker.splitter.split()[0]:
        pass
    assert (split_of(busy), split_of(other)) == (3, 3)
    assert ReceiveMsg.objects.count() == 2 * 3 * 30 + 4
    for each in (row, *BizReceive.objects.filter(biz=other)):
        ids = ReceiveMsg.objects.filter(biz_receive=each).order_by("id").values_list("msg_id")
        assert list(ids) == sorted(ids)


def test_a_split_queues_a_part_for_very_many_subscriptions(
    busy: Biz, quiet: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitter, "_MAX_ORDERS", 3)
    subscriptions(busy, 8)
    row = subscription(quiet)
    publish(busy, 1)
    publish(quiet, 1)
    maker = Maker()
    maker.turn()
    queued = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.QUEUED)
    assert queued.filter(biz=busy).count() == 3
    assert queued.filter(biz_receive=row).count() == 1
    maker.turn()
    assert queued.filter(biz=busy).count() == 8


def test_each_subscription_gets_its_messages_in_their_order(busy: Biz, quiet: Biz) -> None:
    rows = [subscription(busy, "one"), subscription(busy, "two"), subscription(quiet)]
    for _ in range(3):
        publish(busy, 300), publish(quiet, 2)
    maker = Maker()
    while maker.splitter.split()[0]:
        pass
    for row in rows:
        of_row = ReceiveMsg.objects.filter(biz_receive=row).order_by("id")
        message_ids = list(of_row.values_list("msg_id", flat=True))
        assert message_ids == sorted(
            BizMsg.objects.filter(biz=row.biz).values_list("id", flat=True)
        )


def test_what_another_maker_has_locked_is_passed_over_in_each_system(busy: Biz, quiet: Biz) -> None:
    subscription(busy), subscription(quiet)
    publish(busy, 10), publish(quiet, 10)
    if not connection.features.has_select_for_update_skip_locked:
        assert Maker().splitter.split()[0] == 20
        return
    with transaction.atomic():
        assert len(enqueue.lock_accepted({busy.pk: 4, quiet.pk: 3})) == 7
        other = connection.copy()
        try:
            with other.cursor() as cursor:
                cursor.execute("SELECT biz_id FROM biz_msg FOR UPDATE SKIP LOCKED")
                free = [biz_id for (biz_id,) in cursor.fetchall()]
                cursor.execute("ROLLBACK")
        finally:
            other.close()
    assert (free.count(busy.pk), free.count(quiet.pk)) == (6, 7)


def test_who_waits_is_found_by_index_dives(busy: Biz, quiet: Biz) -> None:
    for _ in range(4):
        publish(busy, 1000)
    publish(quiet, 1)
    assert enqueue.waiting_systems(10) == [busy.pk, quiet.pk]
    before = rows_read()
    enqueue.waiting_systems(10)
    assert rows_read() - before < 50
    with connection.cursor() as cursor:
        plan = str(read_plan(cursor, _statement(lambda: enqueue.waiting_systems(10))))
    assert "biz_msg_to_split_of_biz" in plan
    assert "filesort" not in plan
    assert "TEMP B-TREE" not in plan


def rows_read() -> int:
    """Rows that MariaDB has read for this connection so far."""
    if connection.vendor != "mysql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _, value in cursor.fetchall())


def _statement(ask: Any) -> str:
    with CaptureQueriesContext(connection) as queries:
        ask()
    return str(queries[0]["sql"])


# -- queueing ------------------------------------------------------------------------------------
def test_a_backlog_of_many_subscriptions_is_queued_in_turns(
    busy: Biz, quiet: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn ends early, and what came last was due last; still it is among the first."""
    many = subscriptions(busy, 120)
    row = subscription(quiet)
    publish(busy, 2), publish(quiet, 2)
    maker = Maker()
    while maker.splitter.split()[0]:
        pass
    ReceiveMsg.objects.update(next_at=Now() - timedelta(seconds=50))
    ReceiveMsg.objects.filter(biz_receive=row).update(next_at=Now() - timedelta(seconds=1))
    monkeypatch.setattr(dispatcher, "TURN_DELIVERIES", 1)
    # Each look at this clock takes a second: the time is over after the first of four statements.
    monkeypatch.setattr(dispatcher, "time", SimpleNamespace(monotonic=count().__next__))
    monkeypatch.setattr(dispatcher, "TURN_SECONDS", 2.5)
    maker.subscriptions.refresh()
    maker.turn()
    assert order_of(row) == 1
    assert 0 < sum(map(order_of, many)) < len(many)


# -- claiming ------------------------------------------------------------------------------------
def put_orders(rows: list[BizReceive], items: int) -> None:
    made = []
    for row in rows:
        some = [orders.Item(n, n, 1, '{"n":1}') for n in range(items)]
        order = orders.Order(row.pk, "claim", 2**31, some)
        made.append((orders.queue_name(row.biz_id, row.receive_id), order))
    jobs.put_all(made, 600)


def test_a_sender_has_room_for_the_orders_of_another_system(
    busy: Biz, quiet: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "MAX_ITEMS", 1000)
    many = subscriptions(busy, 30)
    put_orders(many, 100)
    known = Subscriptions()
    known.refresh()
    one = OrderClaimer("one", known, wake=lambda: None)
    assert 0 < one.claim() < 30
    row = subscription(quiet)
    known.refresh(at_once=True)
    put_orders([row], 100)
    assert one.claim() == 1
    assert one.take()[-1].order.subscription == row.pk


def test_the_first_order_of_each_system_is_claimed_first(busy: Biz, quiet: Biz) -> None:
    many = subscriptions(busy, 30)
    row = subscription(quiet)
    put_orders(many, 1), put_orders([row], 1)
    known = Subscriptions()
    known.refresh()
    one = OrderClaimer("one", known, wake=lambda: None)
    assert one.claim() == 31
    assert row.pk in [claimed.order.subscription for claimed in one.take()[:2]]


def test_nearly_full_memory_is_filled_in_few_scripts(
    busy: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script for each order took seconds for a round, and other systems waited for it."""
    many = subscriptions(busy, 130)
    put_orders(many, 5)
    known = Subscriptions()
    known.refresh()
    one = OrderClaimer("one", known, wake=lambda: None)
    monkeypatch.setattr(claimer, "ROUND_ORDERS", 50)
    assert one.claim() == 50, "the size of an order is known now"
    monkeypatch.setattr(claimer, "ROUND_ORDERS", 160)
    monkeypatch.setattr(in_flight, "MAX_ITEMS", 700)  # 525 for all
    calls: list[int] = []
    claim_all = jobs.claim_all

    def counting(names: Any, *args: Any) -> Any:
        calls.append(len(names))
        return claim_all(names, *args)

    monkeypatch.setattr(jobs, "claim_all", counting)
    assert 50 <= one.claim() <= 60
    assert len(calls) < 10
