"""New work wakes the program that does it, once the work is durable."""

from collections.abc import Callable

import pytest

from crmsync.orders import Entry, MainQueue, Order
from crmsync.signals import HANDLER
from gateway.signals import SENDER as SMS_SENDER
from msgplatform.core.daemons.wake_signal import WakeSignal
from msgplatform.models import Biz
from notify.feed.signals import DISPATCHER
from notify.signals import MAKER
from tests.support import feed_rows, notify_rows, sms_rows
from tests.support.listening import Hearing, listen
from tests.support.sms_rows import shop

__all__ = ["listen", "shop"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_message_wakes_the_maker(listen: Callable[[WakeSignal], Hearing]) -> None:
    biz = Biz.objects.create(name="shop")
    hearing = listen(MAKER)
    notify_rows.publish(biz)
    hearing.wait()


def test_a_post_wakes_a_dispatcher(listen: Callable[[WakeSignal], Hearing]) -> None:
    biz = Biz.objects.create(name="shop")
    hearing = listen(DISPATCHER)
    feed_rows.post(biz, "ann")
    hearing.wait()


def test_a_short_message_wakes_a_sender(
    shop: sms_rows.Caller, listen: Callable[[WakeSignal], Hearing]
) -> None:
    hearing = listen(SMS_SENDER)
    sms_rows.send(shop.biz)
    hearing.wait()


def test_an_order_wakes_a_handler(listen: Callable[[WakeSignal], Hearing]) -> None:
    hearing = listen(HANDLER)
    MainQueue("sales").put([Order(1, 1, "a" * 32, 0.0, list[Entry]())])
    hearing.wait()
