"""Whoever makes work rings for who does it, once the work is durable."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from crmsync.bells import HANDLER
from crmsync.orders import Entry, Order
from crmsync.queues import MainQueue
from gateway.bells import SENDER as SMS_SENDER
from msgplatform.core.daemons.bell import Bell
from msgplatform.models import Biz
from notify.bells import MAKER
from notify.feed.bells import DISPATCHER
from tests.integration.support import feed_rows, notify_rows, sms_rows
from tests.integration.support.rings import heard
from tests.integration.support.sms_rows import shop

__all__ = ["heard", "shop"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_message_wakes_the_maker(heard: Callable[[Bell], threading.Event]) -> None:
    biz = Biz.objects.create(name="shop")
    ring = heard(MAKER)
    notify_rows.publish(biz)
    assert ring.wait(30)


def test_a_post_wakes_a_dispatcher(heard: Callable[[Bell], threading.Event]) -> None:
    biz = Biz.objects.create(name="shop")
    ring = heard(DISPATCHER)
    feed_rows.post(biz, "ann")
    assert ring.wait(30)


def test_a_short_message_wakes_a_sender(
    shop: sms_rows.Caller, heard: Callable[[Bell], threading.Event]
) -> None:
    ring = heard(SMS_SENDER)
    sms_rows.send(shop.biz)
    assert ring.wait(30)


def test_an_order_wakes_a_handler(heard: Callable[[Bell], threading.Event]) -> None:
    ring = heard(HANDLER)
    MainQueue("sales").put([Order(1, 1, "a" * 32, 0.0, list[Entry]())])
    assert ring.wait(30)
