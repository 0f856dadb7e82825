"""Maker: one delivery per subscription, each queued once per lease, bounded."""

import json
from datetime import timedelta
from functools import partial

import pytest
import redis
from django.conf import settings
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from msgplatform.core.data import ids, sql
from msgplatform.core.queues import jobs, recovery
from msgplatform.models import Alert, Biz
from notify import orders
from notify.directory import Subscriptions
from notify.intake import intake
from notify.maker import maker as maker_module, splitter
from notify.maker.capacity import ORDERS_IN_TOTAL, ORDERS_PER_SUBSCRIPTION
from notify.maker.maker import Maker
from notify.models import BizMsg, BizReceive, Receive, ReceiveMsg
from tests.support.notify_rows import publish, subscription

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]
Status = ReceiveMsg.Status


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def queue_of(row: BizReceive) -> str:
    return orders.queue_name(row.biz_id, row.receive_id)


def claimed_orders(row: BizReceive) -> list[dict]:
    found = []
    while claimed := jobs.claim(queue_of(row), 30):
        found.append(claimed.data)
    return found


def run(maker: Maker) -> None:
    while maker.turn():
        pass


def test_a_delivery_per_subscription_of_that_system(biz: Biz) -> None:
    other = Biz.objects.create(name="stock")
    first, second = subscription(biz, "one"), subscription(biz, "two")
    subscription(other, "one")
    (message_id,) = publish(biz)
    run(Maker())
    deliveries = ReceiveMsg.objects.filter(msg_id=message_id)
    assert {c.biz_receive_id for c in deliveries} == {first.pk, second.pk}
    assert {c.status for c in deliveries} == {Status.QUEUED}
    assert {ids.bucket_of(c.pk) for c in deliveries} == {ids.bucket_of(message_id)}


def test_the_order_holds_everything_a_sender_needs(biz: Biz) -> None:
    row = subscription(biz)
    (message_id,) = publish(biz, payload='{ "名" : 1.00 }'.encode())
    run(Maker())
    (order,) = claimed_orders(row)
    delivery = ReceiveMsg.objects.get()
    ((item_id, msg_id, attempt, body, event_type, key, due, trace),) = order["items"]
    assert abs(sql.now().timestamp() - due) < 60
    assert (item_id, msg_id, attempt, key) == (delivery.pk, message_id, 1, "")
    assert (order["subscription"], order["claim"]) == (row.pk, delivery.claimed_by)
    assert body.endswith('"data":{ "名" : 1.00 }}'), "the payload's exact bytes"
    assert trace == "", "traces are off"
    assert json.loads(body)["type"] == event_type == "order.paid"


def test_paused_gets_held_deliveries_and_discarded_none(biz: Biz) -> None:
    paused = subscription(biz, "paused", status=BizReceive.Status.PAUSED)
    subscription(biz, "discarded", status=BizReceive.Status.DISCARDED)
    publish(biz)
    run(Maker())
    (delivery,) = ReceiveMsg.objects.all()
    assert (delivery.biz_receive_id, delivery.status) == (paused.pk, Status.HELD)
    assert claimed_orders(paused) == []


def test_resume_releases_what_was_held(biz: Biz) -> None:
    paused = subscription(biz, status=BizReceive.Status.PAUSED)
    publish(biz, 3)
    run(Maker())
    BizReceive.objects.update(status=BizReceive.Status.NORMAL)
    run(Maker())
    assert sum(len(order["items"]) for order in claimed_orders(paused)) == 3


def test_resume_may_skip_what_was_held(biz: Biz) -> None:
    paused = subscription(biz, status=BizReceive.Status.PAUSED)
    publish(biz, 3)
    run(Maker())
    BizReceive.objects.update(status=BizReceive.Status.SKIPPING)
    publish(biz)
    maker = Maker()
    run(maker)
    assert ReceiveMsg.objects.filter(status=Status.SKIPPED).count() == 3
    assert sum(len(order["items"]) for order in claimed_orders(paused)) == 1, "the new one is sent"
    maker._next_settle.at_once()
    run(maker)
    paused.refresh_from_db()
    assert paused.status == BizReceive.Status.NORMAL


def test_resume_may_skip_what_waited_at_the_pause(biz: Biz) -> None:
    row = subscription(biz)
    publish(biz, 3)
    Maker().splitter.split()
    BizReceive.objects.update(status=BizReceive.Status.PAUSED)
    run(Maker())
    BizReceive.objects.update(status=BizReceive.Status.SKIPPING)
    run(Maker())
    assert ReceiveMsg.objects.filter(status=Status.SKIPPED).count() == 3
    assert claimed_orders(row) == []


@pytest.mark.parametrize("waiting", [Status.HELD, Status.PENDING, Status.QUEUED])
def test_discarding_skips_what_waits(biz: Biz, waiting: int) -> None:
    subscription(biz, status=BizReceive.Status.PAUSED)
    publish(biz, 3)
    run(Maker())
    ReceiveMsg.objects.update(status=waiting)
    BizReceive.objects.update(status=BizReceive.Status.DISCARDED)
    run(Maker())
    assert ReceiveMsg.objects.filter(status=Status.SKIPPED).count() == 3


def test_a_message_without_subscriptions_is_split_into_nothing(biz: Biz) -> None:
    publish(biz, 3)
    run(Maker())
    assert BizMsg.objects.filter(state=BizMsg.State.DISTRIBUTED).count() == 3
    assert ReceiveMsg.objects.count() == 0


def test_splitting_again_adds_nothing(biz: Biz) -> None:
    subscription(biz)
    publish(biz, 5)
    maker = Maker()
    run(maker)
    BizMsg.objects.update(state=BizMsg.State.ACCEPTED)
    run(maker)
    assert ReceiveMsg.objects.count() == 5


def test_more_deliveries_than_reserved_ids(biz: Biz) -> None:
    """The split rolls back and is repeated with enough, so that no id is made twice."""
    for n in range(40):
        subscription(biz, f"s{n}")
    publish(biz, 100)
    run(Maker())
    assert ReceiveMsg.objects.count() == 4000


@pytest.mark.parametrize(
    ("event_types", "channels", "wanted"),
    [
        ([], [], {"order.paid/", "order.paid/eu", "order.sent/us", "stock.empty/eu"}),
        (["order.*"], [], {"order.paid/", "order.paid/eu", "order.sent/us"}),
        (["order.paid", "stock.*"], [], {"order.paid/", "order.paid/eu", "stock.empty/eu"}),
        (["*.paid"], ["eu"], {"order.paid/eu"}),
        ([], ["eu", "us"], {"order.paid/eu", "order.sent/us", "stock.empty/eu"}),
        (["order"], [], set()),
        (["Order.*"], [], set()),
    ],
)
def test_only_what_a_subscription_wants(
    biz: Biz, event_types: list[str], channels: list[str], wanted: set[str]
) -> None:
    subscription(biz, event_types=event_types, channels=channels)
    subscription(biz, "everything")
    kinds = [("order.paid", ""), ("order.paid", "eu"), ("order.sent", "us"), ("stock.empty", "eu")]
    intake.publish_many([intake.Event(biz.pk, kind, b"1", None, where) for kind, where in kinds])
    run(Maker())
    deliveries = ReceiveMsg.objects.filter(biz_receive__receive__name="warehouse")
    found = {f"{c.msg.event_type}/{c.msg.channel}" for c in deliveries.select_related("msg")}
    assert found == wanted
    assert ReceiveMsg.objects.count() == len(wanted) + len(kinds)


def test_a_subscription_counts_from_the_moment_it_is_there(biz: Biz) -> None:
    """No cache between: what is published after the subscription was saved reaches it."""
    maker = Maker()
    run(maker)
    subscription(biz)
    publish(biz)
    run(maker)
    assert ReceiveMsg.objects.count() == 1


def test_a_queued_delivery_comes_back_when_its_lease_is_over(biz: Biz) -> None:
    row = subscription(biz)
    publish(biz)
    maker = Maker()
    run(maker)
    (first,) = claimed_orders(row)
    run(maker)
    assert claimed_orders(row) == [], "not before the lease is over"
    ReceiveMsg.objects.update(next_at=Now())
    run(maker)
    (second,) = claimed_orders(row)
    assert second["claim"] != first["claim"]
    assert [item[:5] for item in second["items"]] == [item[:5] for item in first["items"]], (
        "an attempt that nobody made is not counted"
    )


def test_old_results_keep_leases_from_being_reclaimed(biz: Biz, work_redis: redis.Redis) -> None:
    """After an outage the marker queue is drained first: the outcome may be in there."""
    row = subscription(biz)
    publish(biz)
    maker = Maker()
    run(maker)
    claimed_orders(row)
    ReceiveMsg.objects.update(next_at=Now())
    jobs.put(orders.MARKER_QUEUE, [[]], ttl=None)
    job = work_redis.lindex("rq:queue:notify-marker", 0).decode()
    work_redis.hset(f"rq:job:{job}", "put_at", "1767225600.0")
    run(maker)
    assert claimed_orders(row) == []
    marker_job = jobs.claim(orders.MARKER_QUEUE, 30)
    assert marker_job
    jobs.remove_orders([marker_job])
    run(maker)
    assert len(claimed_orders(row)) == 1


def test_the_queue_of_a_dead_subscriber_stays_bounded(biz: Biz) -> None:
    row = subscription(biz)
    healthy = subscription(biz, "healthy")
    limit = ORDERS_PER_SUBSCRIPTION * orders.MAX_ITEMS
    publish(biz, limit + 200)
    maker = Maker()
    run(maker)
    assert jobs.depths([queue_of(row)])[queue_of(row)] == ORDERS_PER_SUBSCRIPTION
    waiting = ReceiveMsg.objects.filter(biz_receive_id=row.pk, status=Status.PENDING)
    assert waiting.count() == 200
    for claimed in iter(lambda: jobs.claim(queue_of(healthy), 30), None):
        jobs.remove_orders([claimed])
    run(maker)
    assert not ReceiveMsg.objects.filter(
        biz_receive_id=healthy.pk, status=Status.PENDING
    ).exists(), "the other one goes on"


def test_orders_are_cut_by_bytes(biz: Biz) -> None:
    row = subscription(biz)
    publish(biz, 10, payload=b'"' + b"x" * 250_000 + b'"')
    run(Maker())
    made = claimed_orders(row)
    assert sum(len(order["items"]) for order in made) == 10
    assert all(
        sum(len(item[3]) for item in order["items"]) <= orders.MAX_BYTES + 300 for order in made
    )
    assert len(made) == 3


def test_an_idle_turn_writes_nothing(  # type: ignore[no-untyped-def]
    biz: Biz, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries
) -> None:
    # The second turn does nothing of what is done every few seconds, however late it comes.
    for name in ("RECOVER_EVERY_SECONDS", "SETTLE_EVERY_SECONDS", "EXPIRE_UNFETCHED_EVERY_SECONDS"):
        monkeypatch.setattr(maker_module, name, 3600.0)
    monkeypatch.setattr(maker_module, "Subscriptions", partial(Subscriptions, 3600.0))
    subscription(biz)
    maker = Maker()
    maker.turn()
    with django_assert_num_queries(2):  # anything to split? who has due deliveries?
        assert maker.turn() is False


def test_retries_wait_for_their_time(biz: Biz) -> None:
    row = subscription(biz)
    publish(biz)
    maker = Maker()
    run(maker)
    claimed_orders(row)
    ReceiveMsg.objects.update(
        status=Status.PENDING, send_times=F("send_times") + 1, next_at=Now() + timedelta(hours=1)
    )
    run(maker)
    assert claimed_orders(row) == []
    ReceiveMsg.objects.update(next_at=Now())
    run(maker)
    ((item,),) = [order["items"] for order in claimed_orders(row)]
    assert item[2] == 2


def test_dead_subscribers_do_not_use_up_the_room_of_others(biz: Biz) -> None:
    for n in range(ORDERS_IN_TOTAL // ORDERS_PER_SUBSCRIPTION + 3):
        subscription(biz, f"dead-{n}")
    for _ in range(4):
        publish(biz, orders.MAX_ITEMS // 10)
    maker = Maker()
    run(maker)
    other = Biz.objects.create(name="healthy")
    healthy = subscription(other, "healthy")
    publish(other, 5)
    maker.subscriptions.refresh(at_once=True)
    run(maker)
    assert sum(len(order["items"]) for order in claimed_orders(healthy)) == 5


def test_orders_whose_time_is_over_do_not_fill_a_queue(biz: Biz, work_redis: redis.Redis) -> None:
    row = subscription(biz)
    publish(biz, 3)
    maker = Maker()
    run(maker)
    for key in work_redis.keys("rq:job:*"):
        work_redis.delete(key)
    assert recovery.recover(lambda name: False) == 1
    assert jobs.depths([queue_of(row)])[queue_of(row)] == 0


def test_one_unusable_subscription_does_not_stop_the_others(biz: Biz) -> None:
    bad, good = subscription(biz, "bad"), subscription(biz, "good")
    Receive.objects.filter(pk=bad.receive_id).update(secret="not a secret")
    publish(biz)
    run(Maker())
    assert len(claimed_orders(good)) == 1
    assert claimed_orders(bad) == []
    assert Alert.objects.get(kind="notify.subscription").count == 1


def test_a_transaction_makes_a_bounded_number_of_deliveries(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitter, "MAX_DELIVERIES", 100)
    for n in range(30):
        subscription(biz, f"s{n}")
    publish(biz, 50)
    maker = Maker()
    with CaptureQueriesContext(connection) as queries:
        run(maker)
    inserts = [q["sql"] for q in queries if "INSERT INTO receive_msg" in q["sql"]]
    assert 17 <= len(inserts) <= 19, "three messages make 90 deliveries"
    assert len([q for q in queries if q["sql"] == "COMMIT"]) >= len(inserts)
    assert ReceiveMsg.objects.count() == 50 * 30


def test_ids_do_not_run_ahead_of_the_clock(biz: Biz) -> None:
    """A batch that needed many ids must not make every later message reserve as many."""
    for n in range(50):
        subscription(biz, f"s{n}")
    publish(biz, 200)
    maker = Maker()
    run(maker)
    small = Biz.objects.create(name="small")
    subscription(small, "small")
    for _ in range(30):
        publish(small)
        run(maker)
    newest = ReceiveMsg.objects.order_by("-id").first()
    assert newest
    assert ids.datetime_of(newest.pk) - timezone.now() < timedelta(seconds=2)


def test_a_timeout_longer_than_the_lease_is_cut(biz: Biz) -> None:
    """It would never be sent: its lease is always too short."""
    subscription(biz, timeout=3600.0)
    known = Subscriptions()
    known.refresh()
    assert next(iter(known.known.values())).timeout <= settings.NOTIFY_LEASE_SECONDS / 2
