"""Isolation: bad consumers take nothing from good ones, in one sender process.

Two hundred healthy subscriptions at half of the measured capacity, with and without one that
answers after five seconds and one that refuses connections, each with the same share of the
traffic. Latency is the consumer's time of arrival minus the time at which intake had answered.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.sink_process import SinkProcess
from tests.cluster import Cluster
from tests.support.http_sinks import refusing_port

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
HEALTHY = 200
SECONDS = 60 if FULL else 4
CAPACITY_SECONDS = 2.0 if FULL else 0.7  # of publishing without a bound
ROUNDS = 5
MIN_DELIVERIES = 10_000 if FULL else 1_000  # from which the capacity is measured
# Beside the factor of two: what a busy machine adds to either run. Consumers that were in the way
# would add 1.5 s, the timeout of the bad ones.
NOISE_SECONDS = 0.25 if FULL else 0.6

CAST = """
import json
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
def subscribe(name, url):
    receive = Receive.objects.create(name=name, url=url)
    biz = Biz.objects.create(name=name)
    BizReceive.objects.create(biz=biz, receive=receive, timeout=1.5)
    return biz.pk
healthy = [subscribe(f"healthy-{{n}}", {healthy!r}) for n in range({count})]
bad = [subscribe("slow", {slow!r}), subscribe("refusing", {refusing!r})]
print(json.dumps([healthy, bad]))
"""
# One publisher for all: intake's own commit, without the cost of HTTP, so that what is measured is
# the delivery. Prints when each message was accepted.
PUBLISH = """
import json, time
from notify.intake import intake
systems, rate, seconds, min_count = {systems!r}, {rate!r}, {seconds!r}, {min_count!r}
accepted, sent, begun = {{}}, 0, time.time()
while time.time() < begun + seconds or sent < min_count:
    due = int((time.time() - begun) * rate) - sent
    events = [intake.Event(systems[(sent + n) % len(systems)], "load.test", b"{{}}")
              for n in range(min(due, 500))]
    for verdict in intake.publish_many(events) if events else ():
        accepted[str(verdict.id)] = time.time()
    sent += len(events)
    time.sleep(0.02)
json.dump(accepted, open({file!r}, "w"))
print(json.dumps(len(accepted)))
"""


@pytest.fixture
def stage(cluster: Cluster) -> Iterator[tuple[Cluster, SinkProcess, list[int], list[int]]]:
    with (
        SinkProcess(cluster.folder / "healthy.seen", []) as healthy,
        SinkProcess(cluster.folder / "slow.seen", ["--delay", "5"]) as slow,
    ):
        refusing = f"http://127.0.0.1:{refusing_port()}/"
        rows = cluster.script(
            CAST.format(healthy=healthy.url, slow=slow.url, refusing=refusing, count=HEALTHY)
        )
        yield cluster, healthy, *rows


def publish(
    cluster: Cluster, systems: list[int], rate: float, seconds: float, min_count: int = 0
) -> dict[str, float]:
    """The publisher goes on for so many seconds, and until it has published at least so many: a
    busy machine may stop it for most of the time."""
    file = cluster.folder / "accepted.json"
    cluster.script(
        PUBLISH.format(
            systems=systems,
            rate=rate,
            seconds=seconds,
            min_count=min_count or len(systems),
            file=str(file),
        )
    )
    return dict(json.loads(Path(file).read_text()))


def latencies(cluster: Cluster, sink: SinkProcess, accepted: dict[str, float]) -> list[float]:
    """Of every message in `accepted`; all of them must arrive."""
    cluster.wait_until(lambda: accepted.keys() <= sink.ids(), "all healthy deliveries")
    first: dict[str, float] = {}
    for message, moment in zip(sink.lines(), sink.times(), strict=True):
        first.setdefault(message, moment)
    return sorted(first[message] - at for message, at in accepted.items())


def capacity(cluster: Cluster, sink: SinkProcess, healthy: list[int]) -> float:
    """Deliveries a second when more is published than can be delivered."""
    accepted = publish(cluster, healthy, 100_000, CAPACITY_SECONDS, MIN_DELIVERIES)
    latencies(cluster, sink, accepted)
    arrived = sorted(sink.times())
    tenth = len(arrived) // 10
    return (len(arrived) - 2 * tenth) / (arrived[-tenth - 1] - arrived[tenth])


def p95(values: list[float]) -> float:
    return values[int(len(values) * 0.95)]


def of_healthy(
    cluster: Cluster, accepted: dict[str, float], systems: list[int]
) -> dict[str, float]:
    """Messages of healthy systems: publishing goes round, so the rest can be told by its row."""
    rows = cluster.script(
        "import json; from notify.models import BizMsg; "
        f"print(json.dumps([str(pk) for pk in BizMsg.objects.filter(biz_id__in={systems!r})"
        ".values_list('id', flat=True)]))"
    )
    wanted = set(rows)
    return {message: at for message, at in accepted.items() if message in wanted}


@pytest.mark.parametrize("cluster", ["server"], indirect=True)
def test_bad_consumers_delay_nobody(
    stage: tuple[Cluster, SinkProcess, list[int], list[int]],
) -> None:
    cluster, sink, healthy, _ = stage
    rate = capacity(cluster, sink, healthy) / 2
    _assert_isolated("breaker on", stage, rate)
    cluster.environment["NOTIFY_BREAKER_ENABLED"] = "no"
    cluster.stop("run_sender")
    cluster.start("run_sender")
    _assert_isolated("breaker off", stage, rate)


def _assert_isolated(
    what: str, stage: tuple[Cluster, SinkProcess, list[int], list[int]], rate: float
) -> None:
    """Side by side, and once more when the machine itself was disturbed: what delays the healthy
    because of the bad ones does so in every round."""
    cluster, sink, healthy, bad = stage
    for _ in range(ROUNDS):
        without = p95(latencies(cluster, sink, publish(cluster, healthy, rate, SECONDS)))
        together = publish(cluster, healthy + bad, rate, SECONDS)
        good = of_healthy(cluster, together, healthy)
        beside = p95(latencies(cluster, sink, good))
        print(f"{what}: {rate:.0f} a second, p95 {without:.3f} s without, {beside:.3f} s with them")
        if beside <= 2 * without + NOISE_SECONDS:
            return
    raise AssertionError(f"{what}: the bad ones delayed the healthy in each of {ROUNDS} rounds")


# -- systems -------------------------------------------------------------------------------------
HANDED_OVER = 200_000 if FULL else 8_000  # more than two transactions
FEW = 5
SYSTEMS = """
import json
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
def subscribe(name, url):
    receive = Receive.objects.create(name=name, url=url)
    biz = Biz.objects.create(name=name)
    BizReceive.objects.create(biz=biz, receive=receive)
    return biz.pk
print(json.dumps([subscribe("busy", {url!r}), subscribe("quiet", {url!r})]))
"""
HAND_OVER = """
import json
from notify.intake import intake
def publish(biz, count):
    event = intake.Event(biz, "load.test", b"{{}}")
    for start in range(0, count, 1000):
        intake.publish_many([event] * min(1000, count - start))
publish({busy}, {many})
publish({quiet}, {few})
print(json.dumps(True))
"""
# Ids of deliveries are made when their message is split.
SPLIT_BEFORE = """
import json
from django.db.models import Max
from notify.models import BizMsg, ReceiveMsg
of_quiet = ReceiveMsg.objects.filter(biz_id={quiet})
last = of_quiet.aggregate(last=Max("id"))["last"] or 0
before = ReceiveMsg.objects.filter(biz_id={busy}, id__lt=last).count()
print(json.dumps([of_quiet.count(), before, BizMsg.objects.filter(state=0).count()]))
"""


@pytest.mark.parametrize("cluster", ["server"], indirect=True)
def test_a_system_that_hands_over_very_many_delays_no_other(cluster: Cluster) -> None:
    """What matters is the order: it does not depend on how busy the machine is."""
    with SinkProcess(cluster.folder / "seen", []) as sink:
        busy, quiet = cluster.script(SYSTEMS.format(url=sink.url))
        cluster.stop("run_maker")
        cluster.script(HAND_OVER.format(busy=busy, quiet=quiet, many=HANDED_OVER, few=FEW))
        cluster.start("run_maker")

        def split() -> list[int]:
            return list(cluster.script(SPLIT_BEFORE.format(busy=busy, quiet=quiet)))

        cluster.wait_until(lambda: split()[2] == 0, "every message split")
        of_quiet, before, _ = split()
    assert of_quiet == FEW
    assert before <= 2_000, "of the other system no more than a transaction or two"
