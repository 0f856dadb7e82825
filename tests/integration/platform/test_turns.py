"""What a turn of each program costs, as docs/durability.md says."""

import itertools
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis.connection
from django.db import connection

from gateway.forwarder.forwarder import Forwarder
from gateway.models import SmsGateway
from gateway.pump.pump import Pump
from msgplatform.core.queues import jobs
from msgplatform.env import BASE_DIR
from msgplatform.models import Biz
from notify import orders
from notify.directory import Subscriptions
from notify.feed.dispatcher.dispatcher import Dispatcher
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import BizReceive, ReceiveMsg
from notify.orders import Result
from notify.sender.claimer import OrderClaimer
from tests.support import feed_rows, sms_rows
from tests.support.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
shop = sms_rows.shop
MANY = 200


class Calls:
    """Of the thread that made it; a pipeline or a script is one call, as is a transaction's end."""

    def __init__(self) -> None:
        self.statements = self.redis = 0
        self._thread = threading.get_ident()

    def statement(self, execute: Any, *arguments: Any) -> Any:
        self.statements += 1
        return execute(*arguments)

    def call(self) -> None:
        self.redis += threading.get_ident() == self._thread


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    @contextmanager
    def count() -> Iterator[Calls]:
        calls = Calls()
        send = redis.connection.AbstractConnection.send_packed_command

        def counting(*arguments: Any, **options: Any) -> Any:
            calls.call()
            return send(*arguments, **options)

        with monkeypatch.context() as patched, connection.execute_wrapper(calls.statement):
            patched.setattr(redis.connection.AbstractConnection, "send_packed_command", counting)
            yield calls

    return count


def documented() -> dict[str, tuple[int, int, int, int]]:
    """Program → statements and calls of an idle turn, and of one with much to do."""
    text = (BASE_DIR / "docs" / "durability.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    return {name: (int(a), int(b), int(c), int(d)) for name, a, b, c, d in rows}


def check(program: str, worker: Any, work: Callable[[], object], counted: Any) -> None:
    """The least of some rounds: settings, alerts and the like are looked at now and then, on a busy
    machine perhaps in many turns. What each turn needs is in all of them."""
    # SQLite needs some more: a statement for what MariaDB does with a lock.
    spare = 0 if connection.vendor == "mysql" else 3
    most = [number + spare for number in documented()[program]]
    least = [math.inf] * len(most)
    for _ in range(12):
        for _ in range(4):
            worker.turn()
        idle = turn(worker, counted)
        work()
        busy: tuple[int, int] | None = None
        deadline = time.monotonic() + 120
        while busy in (None, idle):
            # Under load it waits until more has come.
            assert time.monotonic() < deadline, "it found no work"
            busy = turn(worker, counted)
        assert busy
        least = [min(pair) for pair in zip(least, (*idle, *busy), strict=True)]
        if all(found <= allowed for found, allowed in zip(least, most, strict=True)):
            return
    pytest.fail(f"{program} needs {least}, and {most} are documented")


def turn(worker: Any, counted: Any) -> tuple[int, int]:
    with counted() as calls:
        worker.turn()
    return calls.statements, calls.redis


def test_maker(counted: Any) -> None:
    biz = Biz.objects.create(name="orders")
    subscription(biz)
    check("maker", Maker(), lambda: publish(biz, MANY), counted)


def test_marker(counted: Any) -> None:
    biz = Biz.objects.create(name="orders")
    row: BizReceive = subscription(biz)

    def work() -> None:
        publish(biz, MANY)
        maker = Maker()
        while maker.turn():
            pass
        results = [
            Result(one.pk, row.pk, one.claimed_by, outcome="delivered", attempt=1, http_status=200)
            for one in ReceiveMsg.objects.filter(status=ReceiveMsg.Status.QUEUED)
        ]
        jobs.put(orders.MARKER_QUEUE, [results], ttl=None)

    check("marker", Marker(), work, counted)


class Claimer:
    """The claiming thread of a sender, by hand."""

    def __init__(self) -> None:
        self.subscriptions = Subscriptions()
        self._claimer = OrderClaimer("me", self.subscriptions, lambda: None)

    def turn(self) -> None:
        self._claimer.round()


def test_sender(counted: Any) -> None:
    biz = Biz.objects.create(name="orders")
    claimer = Claimer()
    numbers = itertools.count()

    def work() -> None:
        subscription(
            biz, f"consumer{next(numbers)}"
        )  # a queue of its own, for nobody sends what was claimed
        claimer.subscriptions.refresh(at_once=True)
        publish(biz, MANY)
        maker = Maker()
        while maker.turn():
            pass

    check("sender", claimer, work, counted)


def test_dispatcher(counted: Any) -> None:
    biz = Biz.objects.create(name="social")
    readers = [f"u{n}" for n in range(20)]
    feed_rows.related(biz, *[("ann", "befriend", reader) for reader in readers])
    feed_rows.visited(biz, *readers)
    check(
        "dispatcher", Dispatcher(),
        lambda: [feed_rows.post(biz, "ann") for _ in range(100)], counted,
    )  # fmt: skip


def ended(shop: sms_rows.Caller) -> None:
    for _ in range(MANY):
        sms_rows.send(shop.biz)
    gateway = SmsGateway.objects.get()
    for seqnos in sms_rows.submit(gateway.pk).values():
        for seqno in seqnos:
            sms_rows.respond(seqno)
            sms_rows.report(seqno)


def test_forwarder(shop: sms_rows.Caller, counted: Any) -> None:
    check("forwarder", Forwarder(), lambda: ended(shop), counted)


def test_pump(shop: sms_rows.Caller, counted: Any) -> None:
    def work() -> None:
        ended(shop)
        forwarder = Forwarder()
        while forwarder.turn():
            pass

    check("pump", Pump(), work, counted)
