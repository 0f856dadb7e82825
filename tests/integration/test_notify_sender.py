"""Sender: nobody waits for somebody else's consumer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import LazySettings

from msgplatform.core import queue_names, queues
from msgplatform.models import Biz
from notify.demo.sink_process import SinkProcess
from notify.models import BizReceive, Receive
from notify.order_feed import MAX_SECOND_ORDERS, OrderFeed
from notify.orders import Item, Order
from notify.sender import Sender
from notify.subscriptions import Subscriptions

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def subscribed(biz: Biz, name: str, url: str = "http://127.0.0.1:9/") -> BizReceive:
    return BizReceive.objects.create(biz=biz, receive=Receive.objects.create(name=name, url=url))


def put(row: BizReceive, orders: int, items: int = 100) -> None:
    made = [
        Order(
            row.pk, "c" * 32, time.time() + 120,
            [Item(row.pk * 10**6 + n * 1000 + i, 7, 1, "{}") for i in range(items)],
        )
        for n in range(orders)
    ]  # fmt: skip
    queues.put(queue_names.notify(row.biz_id, row.receive_id), made, ttl=240)


@pytest.fixture
def hanging() -> Iterator[str]:
    """Accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def test_hanging_consumers_leave_room_for_others(
    biz: Biz, hanging: str, tmp_path: Path, settings: LazySettings
) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    with SinkProcess(tmp_path / "seen", []) as sink:
        for n in range(12):
            put(subscribed(biz, f"hanging-{n}", hanging), 1)
        healthy = subscribed(biz, "healthy", sink.url)
        put(healthy, 1)
        sender = Sender(window=64)
        sender.start()
        try:
            deadline = time.monotonic() + 10
            while len(sink.lines()) < 100 and time.monotonic() < deadline:
                sender.turn()
            assert len(sink.lines()) == 100, "well before the hanging ones time out"
        finally:
            sender.drain(time.monotonic())
            sender.stop()


def test_every_subscription_gets_its_first_order(biz: Biz) -> None:
    """However many others hold theirs and do not finish."""
    rows = [subscribed(biz, f"s{n}") for n in range(MAX_SECOND_ORDERS + 20)]
    for row in rows:
        put(row, 3, items=1)
    known = Subscriptions()
    known.refresh()
    feed = OrderFeed("me", known, wake=lambda: None)
    for _ in range(5):
        feed._claim_round()
    taken = feed.take()
    assert {order.order.subscription for order in taken} == {row.pk for row in rows}
    assert len(taken) <= len(rows) + MAX_SECOND_ORDERS + len(rows)


def test_unreadable_orders_are_dropped(biz: Biz) -> None:
    row = subscribed(biz, "one")
    queues.put(queue_names.notify(row.biz_id, row.receive_id), [{"nonsense": 1}], ttl=60)
    put(row, 1, items=1)
    known = Subscriptions()
    known.refresh()
    feed = OrderFeed("me", known, wake=lambda: None)
    feed._claim_round()
    feed._claim_round()
    assert len(feed.take()) == 1
