"""A program is frozen in the middle of its work for longer than its lease: the others go on, and
what it writes when it wakes up changes nothing."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from django.db import connection
from django.db.models.functions import Now

from msgplatform.core import flows
from msgplatform.core.data import sql
from msgplatform.core.queues import jobs, recovery
from msgplatform.core.rates.breaker import State
from msgplatform.models import Biz, MinuteCounter
from msgplatform.models.counters import WHOLE
from notify import orders, presence
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import Attempt, BizMsg, BizReceive, ReceiveMsg
from notify.orders import Result
from notify.presence import LaneState
from tests.program_host import Program, start_program
from tests.support.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
Status = ReceiveMsg.Status
# SQLite has one writer, and nobody can take the file from one that is frozen.
ON_MARIADB = connection.vendor == "mysql"
# Seconds: what is idle in a transaction loses it after 10, results come back after 15.
SOON = 180.0


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"), schedule=[10, 1000])


@contextmanager
def frozen(command: str, place: str) -> Iterator[Program | subprocess.Popen[bytes]]:
    """A real process that freezes itself at this place."""
    environment = {
        **os.environ, "MSGPLATFORM_FAILPOINT": f"{place}:1:STOP", "NOTIFY_BREAKER_KEEP_HOURS": "0",
    }  # fmt: skip
    with Path(os.devnull).open("wb") as log:
        program = [sys.executable, "manage.py", command]
        process = start_program(program, subprocess.DEVNULL, log, environment)
    try:
        status = psutil.Process(process.pid).status
        wait_until(lambda: status() == psutil.STATUS_STOPPED)
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until(condition: Callable[[], bool], turn: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        turn()
        time.sleep(0.05)


def wakes_up_and_ends(process: Program | subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(SOON) == 0


def queued() -> list[ReceiveMsg]:
    maker = Maker()
    while maker.turn():
        pass
    return list(ReceiveMsg.objects.filter(status=Status.QUEUED).order_by("id"))


def results(deliveries: list[ReceiveMsg]) -> None:
    """Put on the marker's queue: all were delivered."""
    made = [
        Result(c.pk, c.biz_receive_id, c.claimed_by, outcome="delivered", attempt=1)
        for c in deliveries
    ]
    jobs.put(orders.MARKER_QUEUE, [made], ttl=None)


def counted(name: str) -> int:
    return sum(MinuteCounter.objects.filter(WHOLE, name=name).values_list("value", flat=True))


def test_a_frozen_marker_holds_nobody_up_and_changes_nothing_when_it_wakes_up(
    row: BizReceive,
) -> None:
    if not ON_MARIADB:
        return
    publish(row.biz, 20)
    deliveries = queued()
    results(deliveries[:10])
    delivered = ReceiveMsg.objects.filter(status=Status.DELIVERED)
    with frozen("run_marker", "marker_before_commit") as process:
        results(deliveries[10:])
        marker = Marker()
        wait_until(lambda: delivered.count() == 10, marker.turn)

        def turn() -> None:
            recovery.recover(flows.has_only_copies)
            marker.turn()

        wait_until(lambda: delivered.count() == 20, turn)
        wakes_up_and_ends(process)
    assert counted("delivered") == 20
    assert Attempt.objects.count() == 20


def test_a_frozen_maker_holds_nobody_up_and_makes_no_delivery_twice(row: BizReceive) -> None:
    if not ON_MARIADB:
        return
    publish(row.biz, 20)
    with frozen("run_maker", "maker_split_before_commit") as process:
        publish(row.biz, 20)
        maker = Maker()
        split = BizMsg.objects.filter(state=BizMsg.State.DISTRIBUTED)
        wait_until(lambda: split.count() == 40, maker.turn)
        wakes_up_and_ends(process)
    assert ReceiveMsg.objects.count() == 40
    assert counted("accepted") == 40


def test_a_frozen_maker_skips_nothing_that_is_held_since(row: BizReceive) -> None:
    """The operator skips what waits, and pauses the subscription again."""
    say(row, BizReceive.Status.PAUSED)
    publish(row.biz, 3)
    Maker().turn()
    say(row, BizReceive.Status.SKIPPING)
    with frozen("run_maker", "maker_before_held") as process:
        maker = Maker()
        subscriptions = BizReceive.objects.filter(status=BizReceive.Status.NORMAL)
        wait_until(subscriptions.exists, maker.turn)
        say(row, BizReceive.Status.PAUSED)
        publish(row.biz, 3)
        Maker().turn()
        wakes_up_and_ends(process)
    assert statuses() == {Status.SKIPPED: 3, Status.HELD: 3}
    assert BizReceive.objects.get().status == BizReceive.Status.PAUSED


def test_what_a_frozen_maker_holds_is_skipped_too(row: BizReceive) -> None:
    """It has stored them as held, and not committed; the operator skips what is held."""
    if not ON_MARIADB:
        return
    say(row, BizReceive.Status.PAUSED)
    publish(row.biz, 3)
    with frozen("run_maker", "maker_split_before_commit") as process:
        say(row, BizReceive.Status.SKIPPING)
        Maker().turn()
        wakes_up_and_ends(process)
    maker = Maker()
    subscriptions = BizReceive.objects.filter(status=BizReceive.Status.NORMAL)
    wait_until(subscriptions.exists, maker.turn)
    assert statuses() == {Status.SKIPPED: 3}


def test_a_frozen_maker_gives_up_nothing_of_a_subscriber_that_came_back(row: BizReceive) -> None:
    publish(row.biz, 3)
    Maker().splitter.split()
    ReceiveMsg.objects.update(next_at=Now() - timedelta(seconds=5000))
    since = sql.now() - timedelta(seconds=4000)
    BizReceive.objects.update(failing_since=since, failures=9)
    presence.report({row.pk: LaneState(sender="s", breaker=State.OPEN, retry_in=60)})
    with frozen("run_maker", "maker_before_expiry") as process:
        BizReceive.objects.update(failing_since=None, failures=0)
        wakes_up_and_ends(process)
    assert Status.EXHAUSTED not in statuses()


def say(row: BizReceive, status: int) -> None:
    BizReceive.objects.filter(pk=row.pk).update(status=status)


def statuses() -> Counter[int]:
    return Counter(ReceiveMsg.objects.values_list("status", flat=True))
