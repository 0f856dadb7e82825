"""Notify under fire: every role killed with work in flight, Redis emptied, nothing lost.

Duplicates are bounded: a kill may repeat what was sent and not yet marked at that moment, which is
taken from the consumers' files and the database while everything else stands still.
"""

import json
import os
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from demo.notify.traffic import Accepted, publish_all
from demo.sink_process import SinkProcess
from notify import orders
from tests.cluster import DAEMONS, PATIENT_LEASE_SECONDS, WEB, Cluster
from tests.flows.conftest import CRASH_KINDS
from tests.flows.traffic import SINKS, SYSTEMS, assert_marked, cast, duplicates, missing

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
MESSAGES = 20_000 if FULL else 1_500  # at least: publishing lasts until the last kill
# After them so many copies are kept on their way.
PLENTY = 1_500
KILLS_A_ROLE = 5 if FULL else 2
# Before the flush: messages queued, and results that are not yet marked.
QUEUED_AT_FLUSH = 1000

ESTABLISHED, CLOSE_WAIT = "01", "08"  # states in /proc/net/tcp

# A dead sender's messages would wait for it, and longer than the test waits for them.
LONG_LEASE_SECONDS = 3600
LONGEST_GAP_SECONDS = 60
FROZEN_BACKLOG = 600  # nearly all of it in the hands of the sender that is frozen
LONG_BACKLOG = 6_000  # a kill leaves a thousand in the hands of the dead
BACKLOG = """
import json
from msgplatform.models import Biz
from notify.intake import intake
from notify.models import BizReceive, Receive
biz = Biz.objects.create(name="healthy")
receive = Receive.objects.create(name="healthy", url={url!r})
BizReceive.objects.create(biz=biz, receive=receive, in_flight_limit=10)
made = [intake.Event(biz.pk, "load.test", b"{{}}") for _ in range({count})]
print(json.dumps([str(v.id) for at in range(0, {count}, 500)
                  for v in intake.publish_many(made[at:at + 500])]))
"""
ONE_MORE = """
import json
from msgplatform.models import Biz
from notify.intake import intake
event = intake.Event(Biz.objects.get(name="healthy").pk, "load.test", b"{}")
print(json.dumps([str(v.id) for v in intake.publish_many([event])]))
"""
MARKED = """
import json
from notify.models import ReceiveMsg
rows = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.DELIVERED)
print(json.dumps([f"{name} {pk}" for name, pk in
                  rows.values_list("biz_receive__receive__name", "msg_id")]))
"""
QUEUED = """
from notify.models import ReceiveMsg
print(ReceiveMsg.objects.filter(status=ReceiveMsg.Status.QUEUED).count())
"""


@dataclass
class Fire:
    """Kills and the flush, with what each of them may repeat; `over` is set after the last."""

    cluster: Cluster
    sinks: dict[str, SinkProcess]
    over: threading.Event = field(default_factory=threading.Event)
    published: int = MESSAGES
    log: list[str] = field(default_factory=list)
    bound: int = 0
    counted: Counter[str] = field(default_factory=Counter)

    def goes_on(self) -> bool:
        """Whether one more message is published: waits until few are on their way; not after the
        last kill."""
        if self.published % 50 == 0:
            copies = self.published * sum(map(len, SYSTEMS.values())) / len(SYSTEMS)
            while copies - self._delivered() > PLENTY and not self.over.wait(0.05):
                pass
        self.published += 1
        return not self.over.is_set()

    def kill(self, role: str) -> None:
        self.await_progress()
        self.cluster.kill(role)
        with self.cluster.standing_still():
            if role == "run_sender":  # what it has sent arrives, also after its death
                self.cluster.wait_until(lambda: not self._is_connected(), "the last requests")
            self._count(f"kill {role}")
        self.cluster.start(role)

    def flush(self) -> None:
        """With many messages queued, and results that nobody has marked."""
        marker = orders.MARKER_QUEUE
        self.cluster.pause_until(
            "run_marker",
            lambda: (
                self.cluster.redis.llen(f"rq:queue:{marker}") > 0
                and self.cluster.script(QUEUED) >= QUEUED_AT_FLUSH
            ),
            "results to wait, and messages to be queued",
        )
        with self.cluster.standing_still():
            results = self.cluster.redis.llen(f"rq:queue:{marker}")
            queued = self.cluster.script(QUEUED)
            self.cluster.redis.flushall()
            self._count(f"flush with {queued} queued and {results} result batches")
        assert queued >= QUEUED_AT_FLUSH
        assert results > 0

    def _count(self, what: str) -> None:
        """Deliveries since the last count that are not marked: each may come once more."""
        marked = set(self.cluster.script(MARKED))
        arrived = Counter(
            f"{name} {pk}" for name, sink in self.sinks.items() for pk in sink.lines()
        )
        unmarked = sum(1 for copy in arrived - self.counted if copy not in marked)
        self.counted = arrived
        self.bound += unmarked
        self.log.append(f"{what}: {unmarked} sent and not marked")

    def _is_connected(self) -> bool:
        """True if a consumer has a connection that is open, or not read to its end."""
        ports = {f"{sink.port:04X}" for sink in self.sinks.values()}
        rows = map(str.split, Path("/proc/net/tcp").read_text().splitlines())
        return any(row[1][-4:] in ports and row[3] in (ESTABLISHED, CLOSE_WAIT) for row in rows)

    def await_progress(self) -> None:
        """Between two kills something is delivered: each happens with work in flight."""
        before = self._delivered()
        self.cluster.wait_until(lambda: self._delivered() > before, "deliveries between kills")

    def _delivered(self) -> int:
        return sum(len(sink.lines()) for sink in self.sinks.values())


@pytest.mark.parametrize("cluster", CRASH_KINDS, indirect=True)
def test_nothing_is_lost_when_anything_is_killed_or_flushed(cluster: Cluster) -> None:
    with cast(cluster, SINKS, SYSTEMS) as (tokens, sinks):
        accepted: list[Accepted] = []
        fire = Fire(cluster, sinks)
        publishing = threading.Thread(
            target=lambda: accepted.extend(
                publish_all(cluster.base_url, tokens, MESSAGES, has_more=fire.goes_on)
            )
        )
        publishing.start()
        try:
            burn(fire)
        finally:
            fire.over.set()
            publishing.join()
        assert len({message.id for message in accepted}) == len(accepted) >= MESSAGES
        cluster.wait_until(lambda: not missing(accepted, sinks), "every copy to arrive")
        assert_marked(cluster)
        print("\n".join([*fire.log, f"duplicates {duplicates(sinks)} of at most {fire.bound}"]))
        assert duplicates(sinks) <= fire.bound
        _assert_nothing_left(cluster)


@pytest.mark.parametrize("cluster", ["server"], indirect=True)
def test_a_healthy_consumer_hardly_notices_that_its_sender_is_killed(cluster: Cluster) -> None:
    """What the dead had in hand comes again in seconds; what waited behind it goes on at once."""
    cluster.environment["NOTIFY_LEASE_SECONDS"] = str(LONG_LEASE_SECONDS)
    cluster.kill("run_sender")
    cluster.restart("run_maker")
    with SinkProcess(cluster.folder / "healthy.seen", ["--delay", "0.1"]) as sink:
        accepted = set(cluster.script(BACKLOG.format(url=sink.url, count=LONG_BACKLOG)))
        cluster.start("run_sender")  # only now: the backlog is whole, however long it takes
        fire = Fire(cluster, {"healthy": sink})
        for _ in range(3):
            fire.kill("run_sender")
        fire.await_progress()
        assert len(sink.ids()) < LONG_BACKLOG / 2, "the backlog was too short to say anything"
        # Starting a process takes long on a busy machine; what counts is what it waits for then.
        times, starts = sink.times(), started(cluster, "run_sender")
        longest = max(
            after - max(before, *(start for start in starts if start < after))
            for before, after in pairwise(times)
        )
        cluster.wait_until(lambda: sink.ids() >= accepted, "every message to arrive")
        repeated = len(sink.lines()) - len(sink.ids())
        print(f"longest gap {longest:.1f} s, duplicates {repeated} of at most {fire.bound}")
    assert longest < LONGEST_GAP_SECONDS
    assert repeated <= fire.bound


@pytest.mark.parametrize("cluster", ["server"], indirect=True)
def test_a_sender_that_stood_still_sends_nothing_that_another_has_sent(cluster: Cluster) -> None:
    """It is taken for dead long before its lease is over."""
    cluster.environment["NOTIFY_LEASE_SECONDS"] = str(LONG_LEASE_SECONDS)
    cluster.environment["NOTIFY_TIMEOUT_SECONDS"] = "2"
    # A sender whose breaker opens gives everything back: the test would prove nothing.
    cluster.environment["NOTIFY_BREAKER_ENABLED"] = "no"
    for name in ("run_sender", "run_maker"):
        cluster.restart(name)
    with SinkProcess(cluster.folder / "healthy.seen", ["--delay", "0.1"]) as sink:
        accepted = set(cluster.script(BACKLOG.format(url=sink.url, count=FROZEN_BACKLOG)))
        cluster.wait_until(sink.ids, "the first deliveries")
        cluster.pause("run_sender")
        cluster.processes["frozen"] = cluster.processes.pop("run_sender")
        cluster.start("run_sender")
        cluster.wait_until(lambda: sink.ids() >= accepted, "what the frozen one had to arrive")
        # Later the new sender repeats none of its own, whose answer a busy machine let come late.
        cluster.wait_until(
            lambda: len(cluster.script(MARKED)) == FROZEN_BACKLOG, "every message to be marked"
        )
        before = len(sink.lines())
        cluster.resume("frozen")
        cluster.stop("run_sender")
        # Only the frozen one can send it, after everything that it has in hand.
        (last,) = cluster.script(ONE_MORE)
        cluster.wait_until(lambda: last in sink.ids(), "the frozen one to go on")
        cluster.stop("frozen")
        assert sum(name in accepted for name in sink.lines()) == before
        assert before - len(accepted) <= FROZEN_BACKLOG / 10, (
            "more than what it had begun came twice"
        )


def started(cluster: Cluster, name: str) -> list[float]:
    """When each life of this process was ready to work, in unix seconds."""
    lines = [json.loads(line) for line in cluster.said(name).splitlines() if '"started"' in line]
    return [datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines]


def burn(fire: Fire) -> None:
    """Every role is killed in any order, and Redis emptied in the middle of it."""
    roles = [WEB, *DAEMONS] * KILLS_A_ROLE
    random.Random(20261120).shuffle(roles)
    for number, role in enumerate(roles):
        fire.kill(role)
        if number == len(roles) // 2:
            fire.flush()


def _assert_nothing_left(cluster: Cluster) -> None:
    """After a crash run and a drain Redis holds the names of queues and what expires by itself."""
    transient = (
        *(b"heartbeats", b"cache", b"queues:owner:", b":1:", b"platform:"),
        *(b"notify:live", b"notify:sender", b"notify:totals", b"web:requests"),
    )

    def left() -> set[bytes]:
        found: list[Any] = cluster.redis.keys("*")
        keys = {key for key in found if not key.startswith(transient)}
        return keys - {b"rq:queues"}

    # Orders of killed senders are dropped when their claim (two leases) is over; a claim that the
    # maker made for an order which was done at that very moment, 90 seconds later.
    try:
        cluster.wait_until(lambda: not left(), "Redis to be clean", 6 * PATIENT_LEASE_SECONDS + 110)
    except AssertionError as error:
        raise AssertionError(f"left in Redis: {sorted(left())}") from error
