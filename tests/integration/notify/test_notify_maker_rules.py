"""What the maker queues, and when: breakers, rates, order, dead consumers, several makers."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
import redis
import time_machine
from django.conf import settings as django_settings
from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from bench.harness.plans import read_plan
from msgplatform.core import connections
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql
from msgplatform.core.queues import jobs
from msgplatform.core.rates.breaker import State
from msgplatform.models import Alert, Biz, FailureGroup, MinuteCounter
from notify import orders, presence
from notify.directory import from_row
from notify.intake import intake
from notify.maker import capacity, dispatcher, ending, enqueue, expiry, maker as maker_module
from notify.maker.capacity import BEYOND_TOTAL_BYTES, ORDERS_IN_TOTAL
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import BizMsg, BizReceive, Receive, ReceiveMsg, first_due, with_deliveries
from notify.monitor.counters import CatalogueSubjects
from notify.presence import LaneState
from tests.servers import Servers
from tests.support.children import run as run_children
from tests.support.notify_rows import publish, resend, subscription
from tests.support.notify_turns import old_maker

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]
Status = ReceiveMsg.Status
HOUR = timedelta(hours=1)


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def queue_of(row: BizReceive) -> str:
    return orders.queue_name(row.biz_id, row.receive_id)


def items(row: BizReceive) -> list[list[int]]:
    """The delivery ids of each order that waits; they are taken out."""
    found = []
    while claimed := jobs.claim(queue_of(row), 30):
        found.append([item[0] for item in claimed.data["items"]])
        jobs.remove_orders([claimed])
    return found


def run(worker: Worker) -> None:
    while worker.turn():
        pass


def say(row: BizReceive, **fields: object) -> None:
    """As the sender that owns the queue reports it."""
    presence.report({row.pk: LaneState(sender="s", **fields)})  # type: ignore[arg-type]


def deliveries(row: BizReceive, status: int) -> int:
    return ReceiveMsg.objects.filter(biz_receive_id=row.pk, status=status).count()


# -- breakers ------------------------------------------------------------------------------------
def test_behind_an_open_breaker_only_the_probe_is_queued(biz: Biz) -> None:
    row, healthy = subscription(biz), subscription(biz, "healthy")
    say(row, breaker=State.OPEN, retry_in=60)
    publish(biz, 5)
    maker = Maker()
    run(maker)
    assert items(row) == []
    assert [len(order) for order in items(healthy)] == [5]
    say(row, breaker=State.OPEN, retry_in=0)
    run(maker)
    probe = jobs.claim(queue_of(row), 30)
    assert probe
    oldest = ReceiveMsg.objects.filter(biz_receive_id=row.pk).order_by("next_at", "id")
    assert len(probe.data["items"]) == 1
    assert oldest.filter(status=Status.QUEUED).count() == 1
    run(maker)
    assert deliveries(row, Status.QUEUED) == 1, "not another one while the probe is in hand"
    jobs.remove_orders([probe])
    say(row)
    run(maker)
    assert [len(order) for order in items(row)] == [4]


def test_expired_leases_wait_behind_an_open_breaker_too(biz: Biz) -> None:
    row = subscription(biz)
    publish(biz, 5)
    maker = Maker()
    run(maker)
    assert [len(order) for order in items(row)] == [5]
    ReceiveMsg.objects.update(next_at=Now())
    say(row, breaker=State.OPEN, retry_in=60)
    run(maker)
    assert items(row) == []
    say(row, breaker=State.HALF_OPEN, retry_in=0)
    run(maker)
    assert [len(order) for order in items(row)] == [1]


def test_nothing_known_of_the_senders_is_no_reason_to_wait(
    biz: Biz, work_redis: redis.Redis
) -> None:
    row = subscription(biz)
    work_redis.set("notify:live", "not a hash")
    publish(biz, 3)
    run(Maker())
    assert [len(order) for order in items(row)] == [3]


# -- no more than is sent in time ----------------------------------------------------------------
def test_a_slow_consumer_gets_small_orders(biz: Biz, settings: Settings) -> None:
    settings.NOTIFY_LEASE_SECONDS = 120
    limited, measured = subscription(biz, "limited", rate_limit=2.0), subscription(biz, "measured")
    say(measured, per_second=4.0)
    publish(biz, 128)
    run(Maker())
    assert [len(order) for order in items(limited)] == [15] * 4
    assert [len(order) for order in items(measured)] == [30] * 4


def test_beyond_the_total_a_first_order_is_small(biz: Biz) -> None:
    row = subscription(biz)
    elsewhere: list[tuple[str, dict[str, Any]]] = [
        (f"notify-{biz.pk}-{10**6 + n % 64}", {}) for n in range(ORDERS_IN_TOTAL)
    ]
    for n in range(64):
        receive = Receive.objects.create(id=10**6 + n, name=f"r{n}", url="http://127.0.0.1:9/")
        BizReceive.objects.create(biz=biz, receive=receive, status=BizReceive.Status.PAUSED)
    jobs.put_all(elsewhere, ttl=60)
    publish(biz, 20, payload=b'"' + b"x" * 10_000 + b'"')
    maker = Maker()
    while maker.splitter.split()[0]:
        pass
    run(maker)
    (made,) = items(row)
    assert len(made) == BEYOND_TOTAL_BYTES // (10_002 + orders.ITEM_BYTES)


def test_large_payloads_go_out_whole_to_every_subscriber(biz: Biz) -> None:
    one, two = subscription(biz, "one"), subscription(biz, "two", rate_limit=0.1)
    text = "€" * 60_000
    publish(biz, 3, payload=f'"{text}"'.encode())
    run(Maker())
    for row, expected in ((one, 3), (two, 3)):
        bodies = []
        while claimed := jobs.claim(queue_of(row), 30):
            bodies += [item[3] for item in claimed.data["items"]]
        assert [body.endswith(f'"data":"{text}"}}') for body in bodies] == [True] * expected


# -- order ---------------------------------------------------------------------------------------
def test_deliveries_are_queued_in_the_order_of_their_time_then_their_id(biz: Biz) -> None:
    row = subscription(biz)
    publish(biz, 6)
    Maker().splitter.split()
    ids = list(ReceiveMsg.objects.order_by("id").values_list("id", flat=True))
    now = sql.now()
    for place, minutes in enumerate([3, 9, 9, 1, 5, 7]):
        status = Status.QUEUED if place in (1, 4) else Status.PENDING
        at = now - timedelta(minutes=minutes)
        ReceiveMsg.objects.filter(id=ids[place]).update(next_at=at, status=status)
    run(Maker())
    (made,) = items(row)
    assert made == [ids[place] for place in (1, 2, 5, 4, 0, 3)]


def test_a_new_delivery_does_not_overtake_one_that_waits(biz: Biz) -> None:
    """The queue is full while the first ones wait; then they go before the new ones."""
    row = subscription(biz, rate_limit=0.01)
    first = publish(biz, 2)
    maker = Maker()
    run(maker)
    later = publish(biz, 1)
    sent = []
    for _ in range(3):
        run(maker)
        sent += [order for (order,) in items(row)]
        ReceiveMsg.objects.filter(id__in=sent).update(status=Status.DELIVERED)
    by_message = dict(ReceiveMsg.objects.values_list("id", "msg_id"))
    assert [by_message[delivery] for delivery in sent] == sorted(first) + later


def test_nor_when_a_turn_ends_before_its_backlog_does(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "TURN_DELIVERIES", 1)
    row = subscription(biz)
    publish(biz, orders.MAX_ITEMS + 100)
    maker = Maker()
    while maker.splitter.split()[0]:
        pass
    (later,) = publish(biz)
    maker.turn()
    assert ReceiveMsg.objects.get(msg_id=later).status == Status.PENDING
    run(maker)
    assert [len(order) for order in items(row)] == [orders.MAX_ITEMS, 101]


def test_events_of_different_kinds_stay_in_their_order(biz: Biz) -> None:
    row, picky = subscription(biz), subscription(biz, "picky", event_types=["order.paid"])
    kinds = ["order.made", "order.paid"] * 5
    verdicts = intake.publish_many([intake.Event(biz.pk, kind, b"1") for kind in kinds])
    run(Maker())
    by_delivery = dict(ReceiveMsg.objects.values_list("id", "msg_id"))
    (everything,), (paid,) = items(row), items(picky)
    assert [by_delivery[delivery] for delivery in everything] == [
        verdict.id for verdict in verdicts
    ]
    assert [by_delivery[delivery] for delivery in paid] == [
        verdict.id for verdict in verdicts[1::2]
    ]


# -- what cannot be sent -------------------------------------------------------------------------
def test_a_delivery_whose_message_is_gone_is_poison(biz: Biz) -> None:
    row = subscription(biz)
    gone, *there = publish(biz, 3)
    Maker().splitter.split()
    BizMsg.objects.filter(id=gone).delete()
    run(Maker())
    assert [len(order) for order in items(row)] == [2]
    assert ReceiveMsg.objects.get(msg_id=gone).status == Status.POISON
    assert Alert.objects.get(kind="notify.poison").key == f"notify.gone:{row.pk}"
    ReceiveMsg.objects.filter(msg_id__in=there).update(next_at=Now())
    BizMsg.objects.all().delete()
    run(Maker())
    assert items(row) == [], "no order without items"
    assert deliveries(row, Status.POISON) == 3
    counters = MinuteCounter.objects.filter(name="poison", biz_id=biz.pk)
    for rows in (counters.filter(subject=row.pk), counters.filter(subject__lt=0)):
        assert sum(rows.values_list("value", flat=True)) == 3


@pytest.mark.parametrize("size", [10, 20_000], ids=["small", "large"])
def test_a_payload_that_is_not_utf8_is_poison_and_stops_nothing(biz: Biz, size: int) -> None:
    """Intake takes none; somebody has written it into the table."""
    row = subscription(biz)
    broken, *others = publish(biz, 3)
    BizMsg.objects.filter(id=broken).update(payload=b'"' + b"\xff" * size + b'"')
    run(Maker())
    run(Maker())
    sent = [delivery for order in items(row) for delivery in order]
    assert sorted(ReceiveMsg.objects.filter(id__in=sent).values_list("msg_id", flat=True)) == others
    poison = ReceiveMsg.objects.get(status=Status.POISON)
    assert (poison.msg_id, poison.error) == (broken, "payload is not UTF-8")
    alert = Alert.objects.get(kind="notify.poison")
    assert alert.key == f"notify.unreadable:{row.pk}"
    assert not BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).exists()


def test_nothing_is_queued_while_results_are_many_or_old(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be sent twice if Redis were lost, and fill it: nothing else bounds them."""
    row = subscription(biz)
    publish(biz, 2)
    jobs.put(orders.MARKER_QUEUE, [[]] * 20, ttl=None)
    run(Maker())
    assert [len(order) for order in items(row)] == [2], "neither many nor old"
    publish(biz, 2)
    monkeypatch.setattr(capacity, "MAX_RESULT_SECONDS", 0.0)
    run(Maker())
    assert items(row) == []
    monkeypatch.undo()
    jobs.put(orders.MARKER_QUEUE, [[]] * capacity.MAX_RESULT_BATCHES, ttl=None)
    run(Maker())
    assert items(row) == []
    while claimed := jobs.claim(orders.MARKER_QUEUE, 30):
        jobs.remove_orders([claimed])
    run(Maker())
    assert [len(order) for order in items(row)] == [2]


def alert_is_open(row: BizReceive) -> bool:
    return Alert.objects.filter(open_key=f"notify.subscription:{row.pk}").exists()


def test_deliveries_of_an_unreadable_subscription_wait(biz: Biz) -> None:
    row = subscription(biz)
    secret = row.receive.secret
    Receive.objects.update(secret="not a secret")
    publish(biz, 2)
    maker = Maker()
    run(maker)
    assert (items(row), deliveries(row, Status.PENDING)) == ([], 2)
    assert alert_is_open(row)
    Receive.objects.update(secret=secret)
    maker.subscriptions.refresh(at_once=True)
    assert not alert_is_open(row)
    run(maker)
    assert [len(order) for order in items(row)] == [2]


def test_an_alert_of_a_process_that_is_gone_ends_when_the_subscription_is_corrected(
    biz: Biz,
) -> None:
    row = subscription(biz)
    secret = row.receive.secret
    Receive.objects.update(secret="not a secret")
    Maker().subscriptions.refresh()
    assert alert_is_open(row)
    Receive.objects.update(secret=secret)
    Maker().subscriptions.refresh()
    assert not alert_is_open(row)


@pytest.mark.parametrize("status", [BizReceive.Status.PAUSED, BizReceive.Status.DISABLED])
def test_a_pause_holds_what_is_split_and_what_waits(biz: Biz, status: int) -> None:
    """Also when the maker has not heard of it: the split sees the row."""
    row = subscription(biz)
    publish(biz, 2)
    maker = Maker()
    maker.splitter.split()
    maker.subscriptions.refresh(at_once=True)
    BizReceive.objects.update(status=status)
    publish(biz, 3)
    run(maker)
    assert items(row) == []
    assert deliveries(row, Status.HELD) == 5


def test_a_pause_holds_what_is_queued_when_its_lease_is_over(biz: Biz) -> None:
    """Before that its result may come; no sender takes an order of a paused subscription."""
    row = subscription(biz)
    publish(biz, 2)
    run(Maker())
    BizReceive.objects.update(status=BizReceive.Status.PAUSED)
    run(Maker())
    assert deliveries(row, Status.QUEUED) == 2
    ReceiveMsg.objects.update(next_at=Now())
    run(Maker())
    assert deliveries(row, Status.HELD) == 2
    assert not ReceiveMsg.objects.exclude(claimed_by="").exists()


def test_a_pause_does_not_change_the_time_of_a_retry(biz: Biz) -> None:
    row = subscription(biz)
    publish(biz, 2)
    Maker().splitter.split()
    failed, due = ReceiveMsg.objects.order_by("id")
    at = sql.now() + 2 * HOUR
    ReceiveMsg.objects.filter(pk=failed.pk).update(send_times=1, next_at=at)
    BizReceive.objects.update(status=BizReceive.Status.PAUSED)
    run(Maker())
    assert deliveries(row, Status.HELD) == 2
    BizReceive.objects.update(status=BizReceive.Status.NORMAL)
    run(Maker())
    failed.refresh_from_db()
    assert (failed.status, failed.next_at) == (Status.PENDING, at)
    assert items(row) == [[due.pk]]


def test_what_is_queued_is_not_held_while_its_result_may_wait_for_the_marker(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = subscription(biz)
    publish(biz, 2)
    run(Maker())
    BizReceive.objects.update(status=BizReceive.Status.PAUSED)
    ReceiveMsg.objects.update(next_at=Now())
    monkeypatch.setattr(orders, "are_results_late", lambda: True)
    run(Maker())
    assert deliveries(row, Status.QUEUED) == 2
    monkeypatch.undo()
    run(Maker())
    assert deliveries(row, Status.HELD) == 2


def test_thousands_that_are_disabled_at_once_hold_up_no_turn(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [subscription(biz, f"dead-{number}") for number in range(3)]
    publish(biz, 2)
    Maker().splitter.split()
    BizReceive.objects.update(status=BizReceive.Status.DISABLED)
    monkeypatch.setattr(maker_module, "_SETTLE_SECONDS", 0.0)
    assert [maker_module.settle() for _ in range(4)] == [2, 2, 2, 0]
    assert all(deliveries(row, Status.HELD) == 2 for row in rows)


def test_without_a_stopped_subscription_a_look_at_held_ones_costs_one_search(biz: Biz) -> None:
    subscription(biz)
    publish(biz, 2)
    maker = Maker()
    maker.splitter.split()
    with CaptureQueriesContext(connection) as queries:
        assert maker.settle_held() == 0
    assert len([q for q in queries if "receive_msg" in q["sql"]]) == 1


# -- dead consumers ------------------------------------------------------------------------------
def dead(row: BizReceive, since: timedelta, open_for: float = 0.0) -> None:
    """Failing for so long; its latest try failed `open_for` seconds ago."""
    BizReceive.objects.filter(pk=row.pk).update(failing_since=sql.now() - since, failures=9)
    say(row, breaker=State.OPEN, retry_in=60, open_for=open_for)


@pytest.fixture
def by_schedule_alone(settings: Settings) -> None:
    """A short schedule ends what it would end without the hour that everything waits."""
    settings.NOTIFY_BREAKER_KEEP_HOURS = 0


@pytest.mark.parametrize("options", [{"schedule": [5, 10]}, {"attempts_limit": 1}])
def test_an_outage_of_seconds_ends_nothing_that_nobody_tried(
    biz: Biz, options: dict[str, Any]
) -> None:
    row = subscription(biz, rate_limit=5.0, **options)
    say(row, breaker=State.OPEN, retry_in=60)
    publish(biz, 1000)
    run(Maker())
    ReceiveMsg.objects.update(next_at=Now() - timedelta(seconds=60))
    dead(row, timedelta(seconds=20), open_for=1)
    run(old_maker())
    dead(row, timedelta(seconds=59), open_for=1)
    run(old_maker())
    assert deliveries(row, Status.EXHAUSTED) == 0
    ReceiveMsg.objects.update(next_at=Now() - HOUR - timedelta(seconds=60))
    dead(row, 2 * HOUR, open_for=1)
    run(old_maker())
    assert deliveries(row, Status.EXHAUSTED) == 1000


@pytest.fixture
def due_for_hours(biz: Biz) -> BizReceive:
    """A dead subscription, and three deliveries that have waited for long enough to end."""
    row = subscription(biz, schedule=[1])
    publish(biz, 3)
    Maker().splitter.split()
    ReceiveMsg.objects.update(next_at=Now() - 5 * HOUR)
    dead(row, 6 * HOUR, open_for=1)
    return row


def count_ended(maker: Maker) -> int:
    """The number of deliveries that the maker has ended after a look."""
    maker._next_expire.at_once()
    run(maker)
    return ReceiveMsg.objects.filter(status=Status.EXHAUSTED).count()


def test_a_standstill_of_the_platform_ends_nothing(due_for_hours: BizReceive) -> None:
    """For an hour a maker that has begun leaves everything to the probes."""
    maker, hour = old_maker(), HOUR.total_seconds()
    maker.continuity.since = time.monotonic()
    assert count_ended(maker) == 0
    maker.continuity.since -= hour / 2
    assert count_ended(maker) == 0
    maker.continuity.since -= hour / 2
    assert count_ended(maker) == 3


@pytest.mark.parametrize("clock", [0, 1], ids=["it was frozen", "its machine was suspended"])
def test_nothing_ends_soon_after_a_maker_took_no_turn(
    due_for_hours: BizReceive, clock: int
) -> None:
    maker = old_maker()
    times = list(maker.continuity._turned_at)
    times[clock] -= 2 * expiry.MAX_GAP_SECONDS
    maker.continuity._turned_at = (times[0], times[1])
    assert count_ended(maker) == 0
    maker.continuity.since -= HOUR.total_seconds()
    assert count_ended(maker) == 3


def test_a_turn_that_raises_is_none(
    due_for_hours: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is unavailable."""
    maker = old_maker()
    before = maker.continuity._turned_at
    away = OperationalError(2002, "Can't connect to server")
    monkeypatch.setattr(maker.dispatcher, "due", Mock(side_effect=away))
    with pytest.raises(OperationalError):
        maker.turn()
    monkeypatch.undo()
    assert maker.continuity._turned_at == before
    maker.turn()
    assert maker.continuity._turned_at > before


def test_nothing_ends_while_the_marker_is_behind_and_soon_after(due_for_hours: BizReceive) -> None:
    """No probe goes then. A moment is no gap: a busy marker is behind often."""
    jobs.put(orders.MARKER_QUEUE, [[]] * capacity.MAX_RESULT_BATCHES, ttl=None)
    maker = old_maker()
    before = maker.continuity._turned_at
    assert count_ended(maker) == 0
    assert maker.continuity._turned_at == before
    while claimed := jobs.claim(orders.MARKER_QUEUE, 30):
        jobs.remove_orders([claimed])
    maker.continuity._turned_at = (before[0] - 2 * expiry.MAX_GAP_SECONDS, before[1])
    assert count_ended(maker) == 0
    maker.continuity.since -= HOUR.total_seconds()
    assert count_ended(maker) == 3


def test_nothing_ends_before_senders_have_probed_for_an_hour(due_for_hours: BizReceive) -> None:
    """They were away, and have come back."""
    maker = old_maker()
    maker.continuity.open_since = {}
    assert count_ended(maker) == 0
    maker.continuity.open_since[due_for_hours.pk] -= HOUR.total_seconds()
    assert count_ended(maker) == 3


def test_a_breaker_that_is_no_longer_reported_counts_anew() -> None:
    continuity = expiry.Continuity()
    continuity.open_since = {1: -math.inf, 2: -math.inf}
    continuity.note_open([1])
    continuity.note_open([1, 2])
    assert continuity.is_long_open(1) is False, "the maker is young"
    continuity.since = -math.inf
    assert (continuity.is_long_open(1), continuity.is_long_open(2)) == (True, False)
    monotonic, unix = continuity._reported_at
    continuity._reported_at = (monotonic - 2 * expiry.MAX_GAP_SECONDS, unix)
    continuity.note_open([1])
    assert continuity.is_long_open(1) is False, "nobody reported meanwhile"


def test_what_is_sent_again_behind_an_open_breaker_waits_too(biz: Biz) -> None:
    row = subscription(biz, schedule=[1])
    publish(biz, 3)
    Maker().splitter.split()
    ReceiveMsg.objects.update(next_at=Now() - 2 * HOUR)
    dead(row, 3 * HOUR)
    run(old_maker())
    ended = list(ReceiveMsg.objects.filter(status=Status.EXHAUSTED).values_list("id", flat=True))
    assert len(ended) == 3
    assert resend(ended) == 3
    ReceiveMsg.objects.update(next_at=Now() - timedelta(seconds=30))
    run(old_maker())
    assert deliveries(row, Status.PENDING) == 3


def test_expiry_counts_the_deliveries_that_it_ends(biz: Biz) -> None:
    """Another program takes one of the page between the look and the change."""
    row = subscription(biz, schedule=[1])
    publish(biz, 3)
    Maker().splitter.split()
    first, second, third = ReceiveMsg.objects.order_by("id").values_list("id", flat=True)
    ReceiveMsg.objects.filter(id=first).update(status=Status.DELIVERED)
    now = sql.now()
    with transaction.atomic():
        ended = ending.end([first, second, third], {Status.PENDING}, now, Status.EXHAUSTED, "x")
    assert ended == [second, third]
    assert deliveries(row, Status.EXHAUSTED) == 2


@pytest.mark.usefixtures("by_schedule_alone")
def test_without_a_try_since_it_was_due_nothing_is_exhausted(biz: Biz) -> None:
    """One attempt is allowed: a short outage must not end what came after the failed try."""
    row = subscription(biz, schedule=[])
    publish(biz, 3)
    Maker().splitter.split()
    ReceiveMsg.objects.update(next_at=Now() - timedelta(seconds=5))
    dead(row, timedelta(seconds=30), open_for=20)
    run(Maker())
    assert deliveries(row, Status.EXHAUSTED) == 0
    dead(row, timedelta(seconds=30), open_for=0)
    run(Maker())
    assert deliveries(row, Status.EXHAUSTED) == 3


@pytest.mark.usefixtures("by_schedule_alone")
def test_what_waited_for_a_whole_schedule_behind_a_breaker_is_exhausted(biz: Biz) -> None:
    row = subscription(biz, schedule=[60, 60])
    publish(biz, expiry.PAGE + 20)
    Maker().splitter.split()
    young = list(ReceiveMsg.objects.order_by("-id").values_list("id", flat=True)[:7])
    ReceiveMsg.objects.exclude(id__in=young).update(next_at=Now() - timedelta(seconds=121))
    ReceiveMsg.objects.filter(id__in=young).update(next_at=Now() - timedelta(seconds=100))
    leased = ReceiveMsg.objects.order_by("id").values_list("id", flat=True)[:3]
    ReceiveMsg.objects.filter(id__in=list(leased)).update(status=Status.QUEUED, claimed_by="x")
    dead(row, timedelta(seconds=125))
    run(Maker())
    assert deliveries(row, Status.EXHAUSTED) == expiry.PAGE + 13
    assert not ReceiveMsg.objects.filter(claimed_by="x").exists()
    assert set(ReceiveMsg.objects.filter(status=Status.PENDING).values_list("id", flat=True)) == (
        set(young)
    )
    ended = ReceiveMsg.objects.filter(status=Status.EXHAUSTED)
    assert set(ended.values_list("error", "send_times")) == {(expiry.ERROR, 0)}
    counted = MinuteCounter.objects.filter(subject=row.pk, name="exhausted")
    assert sum(counted.values_list("value", flat=True)) == expiry.PAGE + 13


def test_a_success_that_waits_for_the_marker_is_no_failure(
    biz: Biz, work_redis: redis.Redis, settings: Settings
) -> None:
    """Its lease is over, and its result is on the marker's queue: it is delivered, not lost."""
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    row = subscription(biz, schedule=[1])
    publish(biz, 2)
    run(Maker())
    (claimed,) = jobs.claim_all([queue_of(row)], 30, orders.Order)[0]
    order = claimed.data
    done = [orders.Result(i.id, row.pk, order.claim, 1, "delivered", 200) for i in order.items]
    jobs.put(orders.MARKER_QUEUE, [done], None)
    jobs.remove_orders([claimed])
    (job,) = work_redis.lrange(f"rq:queue:{orders.MARKER_QUEUE}", 0, -1)
    work_redis.hset(f"rq:job:{job.decode()}", "put_at", sql.now().timestamp() - 30)
    ReceiveMsg.objects.update(next_at=Now() - 3 * HOUR)
    dead(row, 4 * HOUR)
    run(old_maker())
    assert deliveries(row, Status.QUEUED) == 2
    run(Marker())
    assert deliveries(row, Status.DELIVERED) == 2
    counted = MinuteCounter.objects.filter(subject=row.pk, name__in=["exhausted", "delivered"])
    assert dict(counted.values_list("name", "value")) == {"delivered": 2}
    assert not FailureGroup.objects.filter(count__gt=0).exists()


@pytest.mark.usefixtures("by_schedule_alone")
def test_a_probe_that_failed_ends_when_it_has_waited_as_long_again(biz: Biz) -> None:
    row = subscription(biz, schedule=[60, 60])
    publish(biz, 1)
    Maker().splitter.split()
    ReceiveMsg.objects.update(send_times=1, next_at=Now() - timedelta(seconds=100))
    dead(row, HOUR)
    run(Maker())
    assert deliveries(row, Status.EXHAUSTED) == 0
    ReceiveMsg.objects.update(next_at=Now() - timedelta(seconds=121))
    run(Maker())
    assert deliveries(row, Status.EXHAUSTED) == 1


def test_thousands_behind_open_breakers_hold_up_no_turn(biz: Biz) -> None:
    for number in range(3):
        subscription(biz, f"dead-{number}", schedule=[1])
    publish(biz, 2)
    Maker().splitter.split()
    ReceiveMsg.objects.update(next_at=Now() - 2 * HOUR)
    BizReceive.objects.update(failing_since=Now() - 3 * HOUR)

    def expire() -> int:
        waiting = with_deliveries(BizReceive.objects.all(), [Status.PENDING])
        behind_breaker = [(from_row(row), 0.0) for row in waiting]
        return expiry.expire(behind_breaker, CatalogueSubjects(), seconds=0.0)

    assert [expire() for _ in range(4)] == [2, 2, 2, 0]


@pytest.mark.usefixtures("by_schedule_alone")
@pytest.mark.parametrize("reason", ["a success lately", "breaker closed", "nothing known"])
def test_who_is_not_known_to_be_dead_keeps_its_deliveries(biz: Biz, reason: str) -> None:
    row = subscription(biz, schedule=[60, 60], rate_limit=0.01)
    publish(biz, 3)
    Maker().splitter.split()
    ReceiveMsg.objects.update(next_at=Now() - HOUR)
    dead(row, timedelta(seconds=100 if reason == "a success lately" else 1000))
    if reason == "breaker closed":
        say(row)
    if reason == "nothing known":
        connections.work_redis().delete("notify:live")
    run(Maker())
    assert deliveries(row, Status.EXHAUSTED) == 0


def test_a_success_that_the_maker_has_not_heard_of_saves_the_deliveries(biz: Biz) -> None:
    row = subscription(biz, schedule=[60, 60])
    publish(biz, 3)
    Maker().splitter.split()
    ReceiveMsg.objects.update(next_at=Now() - HOUR)
    dead(row, HOUR)
    maker = old_maker()
    maker.subscriptions.refresh(at_once=True)
    BizReceive.objects.update(failing_since=None)
    run(maker)
    assert deliveries(row, Status.EXHAUSTED) == 0


# -- clocks, processes ---------------------------------------------------------------------------
@pytest.mark.usefixtures("ids_of_its_own")
@pytest.mark.parametrize("hours", [-2, 2])
def test_what_is_due_is_the_database_s_question(biz: Biz, hours: int) -> None:
    row = subscription(biz)
    publish(biz, 2)
    Maker().splitter.split()
    later = ReceiveMsg.objects.order_by("id").last()
    assert later
    ReceiveMsg.objects.filter(id=later.pk).update(next_at=Now() + HOUR)
    with time_machine.travel(sql.now() + hours * HOUR):
        run(Maker())
    assert [len(order) for order in items(row)] == [1]


def test_splitting_goes_on_without_redis(biz: Biz, servers: Servers) -> None:
    row = subscription(biz)
    publish(biz, 2)
    maker = Maker()
    maker._next_recover = Every(3600.0)
    maker._next_recover.restart()
    servers.work.kill()
    try:
        with pytest.raises(redis.exceptions.RedisError):
            maker.turn()
    finally:
        servers.work.start()
    assert deliveries(row, Status.PENDING) == 2
    run(maker)
    assert [len(order) for order in items(row)] == [2]


def test_makers_pass_over_what_another_one_is_splitting(biz: Biz) -> None:
    """Where the database can do it; on SQLite there is one writer at a time."""
    subscription(biz)
    publish(biz, 10)
    if not connection.features.has_select_for_update_skip_locked:
        assert Maker().splitter.split()[0] == 10
        return
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT id FROM biz_msg WHERE state = 0 ORDER BY id LIMIT 4 FOR UPDATE")
            assert Maker().splitter.split()[0] == 6
            cursor.execute("ROLLBACK")
    finally:
        other.close()
    assert Maker().splitter.split()[0] == 4


TOGETHER = """
from notify.maker.maker import Maker

def work(number):
    maker, turns = Maker(), 0
    while maker.turn():
        turns += 1
    return turns

together(work, 3)
"""


def test_three_makers_at_once_make_and_queue_every_delivery_once(biz: Biz) -> None:
    rows = [subscription(biz, f"s{n}") for n in range(3)]
    for _ in range(4):
        publish(biz, 400)
    answers = run_children(TOGETHER)
    assert all(isinstance(answer, int) for answer in answers), answers
    assert ReceiveMsg.objects.count() == 1600 * 3
    maker = Maker()
    seen: list[int] = []
    for _ in range(10):
        run(maker)
        seen += [delivery for row in rows for order in items(row) for delivery in order]
    assert len(seen) == len(set(seen)) == 1600 * 3


# -- what it costs -------------------------------------------------------------------------------
@pytest.fixture
def rows_read() -> Callable[[], int]:
    """A function that says how many rows MariaDB has read for this connection so far."""

    def count() -> int:
        if connection.vendor != "mysql":
            return 0
        with connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            return sum(int(value) for _, value in cursor.fetchall())

    return count


def test_looking_for_due_deliveries_does_not_read_the_backlog(biz: Biz, rows_read) -> None:  # type: ignore[no-untyped-def]
    rows = [subscription(biz, f"s{n}") for n in range(3)]
    for _ in range(3):
        publish(biz, 500)
    maker = Maker()
    while maker.splitter.split()[0]:
        pass
    ReceiveMsg.objects.filter(biz_receive_id=rows[0].pk).update(status=Status.QUEUED)
    ReceiveMsg.objects.filter(biz_receive_id=rows[1].pk).update(status=Status.HELD)
    BizReceive.objects.filter(pk=rows[1].pk).update(status=BizReceive.Status.PAUSED)
    ReceiveMsg.objects.update(next_at=Now() + HOUR)
    before = rows_read()
    assert maker.dispatcher.due() == []
    assert maker.settle_held() == 0
    assert rows_read() - before < 100


def test_the_first_due_delivery_is_the_first_of_the_index(biz: Biz) -> None:
    """Its order begins with the index's columns, or MySQL sorts the whole backlog."""
    subscription(biz, "one"), subscription(biz, "two")
    publish(biz, 500)
    while Maker().splitter.split()[0]:
        pass
    asked = BizReceive.objects.values_list("id", first_due(Status.PENDING))
    with CaptureQueriesContext(connection) as queries:
        assert all(first for _, first in asked)
    statement = queries[0]["sql"]
    (index,) = ReceiveMsg._meta.indexes
    columns = [ReceiveMsg._meta.get_field(name).column for name in index.fields]
    assert list(first_due(Status.PENDING).query.order_by) == columns
    with connection.cursor() as cursor:
        plan = read_plan(cursor, statement)
    if connection.vendor == "mysql":
        (step,) = (step for step in plan if step["key"] == index.name)
        assert "Using index" in step["Extra"]
        assert "filesort" not in str(plan)
    else:
        assert any(f"USING COVERING INDEX {index.name}" in step["detail"] for step in plan)
        assert "TEMP B-TREE" not in str(plan)


def test_splitting_does_not_read_the_system_s_other_messages(biz: Biz, rows_read) -> None:  # type: ignore[no-untyped-def]
    subscription(biz, "one"), subscription(biz, "two")
    for _ in range(4):
        publish(biz, 500)
    maker = Maker()
    while maker.splitter.split()[0]:
        pass
    publish(biz, 10)
    before = rows_read()
    with CaptureQueriesContext(connection) as queries:
        assert maker.splitter.split()[0] == 10
    assert rows_read() - before < 500
    (insert,) = (q["sql"] for q in queries if "INSERT INTO receive_msg" in q["sql"])
    with connection.cursor() as cursor:
        plan = read_plan(cursor, insert)
    if connection.vendor == "mysql":
        (of_messages,) = (step for step in plan if step["table"] == "m")
        assert (of_messages["type"], of_messages["key"]) == ("range", "PRIMARY")
    else:
        assert any("m USING INDEX sqlite_autoindex" in step["detail"] for step in plan)


def test_a_delivery_that_is_queued_by_the_split_is_written_once(biz: Biz) -> None:
    row = subscription(biz)
    publish(biz, 5)
    with CaptureQueriesContext(connection) as queries:
        run(Maker())
    assert not [q for q in queries if q["sql"].startswith("UPDATE") and "receive_msg" in q["sql"]]
    (order,) = items(row)
    delivery = ReceiveMsg.objects.filter(id__in=order).first()
    assert delivery
    lease = timedelta(seconds=django_settings.NOTIFY_LEASE_SECONDS)
    assert sql.now() + lease / 2 < delivery.next_at <= sql.now() + lease


def test_messages_are_read_once_for_all_their_subscribers(biz: Biz) -> None:
    for n in range(5):
        subscription(biz, f"s{n}")
    publish(biz, 20)
    maker = Maker()
    maker.splitter.split()
    with CaptureQueriesContext(connection) as queries:
        run(maker)
    assert len([q for q in queries if re.search(r"\bpayload\b", q["sql"])]) == 1


def test_a_split_that_found_deliveries_queues_them_once(biz: Biz) -> None:
    """Split again after an operator's reset: what is there keeps its claim."""
    row = subscription(biz)
    publish(biz, 3)
    maker = Maker()
    run(maker)
    (first,) = items(row)
    BizMsg.objects.update(state=BizMsg.State.ACCEPTED)
    publish(biz, 1)
    run(maker)
    (second,) = items(row)
    assert len(second) == 1
    assert not set(first) & set(second)


def test_a_resent_delivery_says_its_attempt(biz: Biz) -> None:
    row = subscription(biz)
    publish(biz, 2)
    maker = Maker()
    run(maker)
    items(row)
    ReceiveMsg.objects.update(status=Status.PENDING, send_times=F("send_times") + 3, next_at=Now())
    run(maker)
    claimed = jobs.claim(queue_of(row), 30)
    assert claimed
    assert {item[2] for item in claimed.data["items"]} == {4}


def test_times_are_written_alike_by_both_databases(biz: Biz) -> None:
    (message_id,) = publish(biz)
    BizMsg.objects.update(created_at="2026-11-21T10:20:30Z")
    with transaction.atomic():
        (message,) = enqueue.lock_accepted({biz.pk: 5})
    assert message.id == message_id
    assert message.created_at == "2026-11-21T10:20:30.000000Z"


def test_a_lost_answer_to_a_commit_loses_no_delivery(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The COMMIT happened, its answer did not come: what is repeated are other messages."""
    from notify.maker.splitter import Splitter

    subscription(biz)
    publish(biz, 1200)
    real = Splitter.split_once
    lost: list[Any] = []

    def split_once(self: Splitter, *arguments: object) -> object:
        plan = real(self, *arguments)  # type: ignore[arg-type]
        if not lost:
            lost.append(True)
            raise OperationalError(2013, "Lost connection to server during query")
        return plan

    monkeypatch.setattr(Splitter, "split_once", split_once)
    maker = Maker()
    maker.subscriptions.refresh()
    while maker.splitter.split()[0]:
        pass
    assert lost
    assert not BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).exists()
    assert ReceiveMsg.objects.count() == 1200
