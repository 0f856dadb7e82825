"""Sender: a thousand subscriptions with full queues do not make a large process."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from demo.sink_process import SinkProcess
from msgplatform.core.queues import jobs
from msgplatform.models import Biz
from notify import orders, presence
from notify.models import BizReceive, Receive
from notify.orders import Item, Order

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

ROOT = Path(__file__).resolve().parents[3]
SUBSCRIPTIONS = 1000
# For each subscription, in one order; together more than a sender takes at most.
MESSAGES = 60 if os.environ.get("MSGPLATFORM_FULL_LOAD") else 32
PAYLOAD = b'{"text":"%s"}' % ("小".encode() * 163)  # 500 bytes, and not one ASCII text
LIMIT = 200 * 1024 * 1024


def test_a_thousand_subscriptions_fit_into_200_mib(tmp_path: Path) -> None:
    with SinkProcess(tmp_path / "seen", ["--delay", "0.05"]) as sink:
        rows = subscribed(sink.url)
        names = [orders.queue_name(row.biz_id, row.receive_id) for row in rows]
        jobs.put_all(
            [(name, order(row.pk)) for name, row in zip(names, rows, strict=True)], ttl=3600
        )
        peak = in_hand = 0
        with running(tmp_path / "sender.log") as sender:
            deadline = time.monotonic() + 1800
            while left := sum(jobs.depths(names).values()):
                assert sender.is_running(), (tmp_path / "sender.log").read_text()[-2000:]
                assert time.monotonic() < deadline, f"{left} orders are left"
                peak = max(peak, sender.memory_full_info().pss)
                states = presence.read().values()
                in_hand = max(in_hand, sum(state.waiting + state.in_flight for state in states))
                psutil.wait_procs([sender], timeout=0.05)
    assert in_hand >= 20_000, "it was never under the load that this is about"
    assert len(sink.ids()) == SUBSCRIPTIONS * MESSAGES
    assert peak < LIMIT, f"{peak / 1024**2:.0f} MiB"


def subscribed(url: str) -> list[BizReceive]:
    """A subscription each of a thousand consumers, each at an address of its own."""
    biz = Biz.objects.create(name="orders")
    receivers = Receive.objects.bulk_create(
        Receive(name=f"consumer-{n}", url=f"{url}/{n}") for n in range(SUBSCRIPTIONS)
    )
    BizReceive.objects.bulk_create(BizReceive(biz=biz, receive=each) for each in receivers)
    return list(BizReceive.objects.order_by("pk"))


def order(subscription: int) -> Order:
    body = orders.body("order.paid", "2026-11-20T08:15:31.123456Z", PAYLOAD)
    first = subscription * 10_000
    items = [Item(first + n, first + n, 1, body) for n in range(MESSAGES)]
    return Order(subscription, "c" * 32, time.time() + 3600, items)


@contextmanager
def running(log: Path) -> Iterator[psutil.Process]:
    """A sender's process."""
    environment = {**os.environ, "OUTBOUND_ALLOW": "127.0.0.0/8"}
    command = [sys.executable, "manage.py", "run_sender"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()
