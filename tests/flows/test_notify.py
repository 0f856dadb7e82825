"""Notify end to end: HTTP in, split, queued, delivered to real consumers, marked.

Accounting is by what the client saw accepted and what the consumers' own files say.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from msgplatform.core.heartbeats import TTL_SECONDS
from notify.demo.publisher import Accepted, publish_all
from notify.demo.sink_process import SinkProcess
from tests.cluster import DAEMONS, LEASE_SECONDS, WEB, Cluster

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
MESSAGES = 20_000 if FULL else 1_500

CAST = """
import json
from msgplatform.api import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
tokens = {{}}
for biz_name, urls in {cast!r}.items():
    biz = Biz.objects.create(name=biz_name)
    tokens[biz_name] = keys.create(biz, "test", ["events:write", "events:read"])[1]
    for name, url in urls.items():
        receive, _ = Receive.objects.get_or_create(name=name, defaults={{"url": url}})
        BizReceive.objects.create(biz=biz, receive=receive, schedule={schedule!r})
print(json.dumps(tokens))
"""
OPEN = """
import json
from collections import Counter
from notify.models import BizMsg, ReceiveMsg
open = Counter(ReceiveMsg.objects.exclude(status=ReceiveMsg.Status.DELIVERED)
    .values_list("status", flat=True))
print(json.dumps({"copies": dict(open), "messages": BizMsg.objects.filter(state=0).count()}))
"""
DONE: dict[str, Any] = {"copies": {}, "messages": 0}


@contextlib.contextmanager
def cast(
    cluster: Cluster, sinks: dict[str, list[str]], systems: dict[str, list[str]]
) -> Iterator[tuple[dict[str, str], dict[str, SinkProcess]]]:
    """Consumers as processes, and the rows that connect business systems to them."""
    with contextlib.ExitStack() as stack:
        running = {
            name: stack.enter_context(SinkProcess(cluster.folder / f"{name}.seen", arguments))
            for name, arguments in sinks.items()
        }
        wanted = {
            biz: {name: running[name].url for name in names} for biz, names in systems.items()
        }
        tokens = cluster.script(CAST.format(cast=wanted, schedule=[1, 1, 1, 2, 2, 2, 2, 2]))
        yield tokens, running


SYSTEMS = {"orders": ["one", "two"], "stock": ["two", "three"], "users": ["three"]}
SINKS = {"one": [], "two": ["--delay", "0.01"], "three": ["--fail-every", "25"]}


def missing(accepted: list[Accepted], sinks: dict[str, SinkProcess]) -> dict[str, set[str]]:
    """Copies that a consumer should have and has not written down."""
    expected: dict[str, set[str]] = {name: set() for name in sinks}
    for message in accepted:
        for name in SYSTEMS[message.system]:
            expected[name].add(message.id)
    return {n: ids - sinks[n].ids() for n, ids in expected.items() if ids - sinks[n].ids()}


def duplicates(sinks: dict[str, SinkProcess]) -> int:
    return sum(len(sink.lines()) - len(sink.ids()) for sink in sinks.values())


def assert_marked(cluster: Cluster) -> None:
    """Everything that arrived is written back, too."""
    cluster.wait_until(lambda: cluster.script(OPEN) == DONE, "every copy to be marked")


def test_one_message_goes_the_whole_way(cluster: Cluster) -> None:
    with cast(cluster, {"one": []}, {"orders": ["one"]}) as (tokens, sinks):
        (accepted,) = publish_all(cluster.base_url, tokens, 1, connections=1)
        cluster.wait_until(lambda: sinks["one"].ids() == {accepted.id}, "the delivery")

        def delivered() -> bool:
            shown = cluster.get(f"/api/v1/messages/{accepted.id}", tokens["orders"])
            return [d["status"] for d in shown["deliveries"]] == ["delivered"]

        def answers() -> list[int]:
            (copy,) = cluster.get(f"/api/v1/messages/{accepted.id}", tokens["orders"])["deliveries"]
            return [attempt["http_status"] for attempt in copy["attempts"]]

        cluster.wait_until(delivered, "the mark")
        assert answers() == [200]
        (listed,) = cluster.get("/api/v1/messages", tokens["orders"])["results"]
        assert listed["id"] == accepted.id
        assert isinstance(listed["id"], str)
        assert listed["state"] == "split"
        assert duplicates(sinks) == 0


def test_nothing_is_lost_when_anything_is_killed_or_flushed(cluster: Cluster) -> None:
    """Each role is killed with work in flight, and the work Redis is emptied in the middle."""
    with cast(cluster, SINKS, SYSTEMS) as (tokens, sinks):
        accepted: list[Accepted] = []
        publishing = threading.Thread(
            target=lambda: accepted.extend(publish_all(cluster.base_url, tokens, MESSAGES))
        )
        publishing.start()
        _trouble(cluster, sinks)
        publishing.join()
        assert len({message.id for message in accepted}) == MESSAGES
        cluster.wait_until(
            lambda: not missing(accepted, sinks), "every copy to arrive", 300 if FULL else 120
        )
        assert_marked(cluster)
        print(f"killed {cluster.kills}, duplicates {duplicates(sinks)}")
        _assert_nothing_left(cluster)


def _trouble(cluster: Cluster, sinks: dict[str, SinkProcess]) -> None:
    """Kill every role twice in random order, and flush once, each after some progress."""
    roles = [WEB, *DAEMONS] * (5 if FULL else 2)
    random.Random(20261120).shuffle(roles)
    for number, role in enumerate(roles):
        before = sum(len(sink.lines()) for sink in sinks.values())
        cluster.wait_until(
            lambda: sum(len(sink.lines()) for sink in sinks.values()) > before,  # noqa: B023
            "deliveries between two kills",
        )
        cluster.restart(role)
        if number == len(roles) // 2:
            cluster.redis.flushall()


def _assert_nothing_left(cluster: Cluster) -> None:
    """After a crash run and a drain Redis holds the names of queues and what expires by itself."""
    transient = (b"heartbeat:", b"cache", b"queues:owner:", b":1:")

    def left() -> set[bytes]:
        keys = {key for key in cluster.redis.keys("*") if not key.startswith(transient)}
        return keys - {b"rq:queues"}

    # Orders of killed senders are dropped when their claim (two leases) is over.
    cluster.wait_until(lambda: not left(), f"Redis to be clean: {left()}", 6 * LEASE_SECONDS + 30)


@pytest.fixture(scope="module")
def crashing(
    shared_cluster: Cluster,
) -> Iterator[tuple[Cluster, dict[str, str], dict[str, SinkProcess]]]:
    """One platform with its cast for all the deaths: a start costs more than a death."""
    with cast(shared_cluster, {"one": [], "two": [], "three": []}, SYSTEMS) as (tokens, sinks):
        yield shared_cluster, tokens, sinks


@pytest.mark.parametrize(
    ("role", "failpoint"),
    [
        (WEB, "intake_before_commit:20"),
        (WEB, "intake_after_commit:20"),
        ("run_maker", "maker_split_before_commit"),
        ("run_maker", "maker_split_after_commit"),
        ("run_maker", "maker_after_commit_before_enqueue"),
        ("run_sender", "sender_before_results"),
        ("run_sender", "sender_after_results_before_done"),
        ("run_marker", "marker_before_commit"),
        ("run_marker", "marker_after_commit_before_done"),
    ],
)
def test_death_at_each_named_place(
    crashing: tuple[Cluster, dict[str, str], dict[str, SinkProcess]], role: str, failpoint: str
) -> None:
    cluster, tokens, sinks = crashing
    cluster.kill(role)
    cluster.start(role, failpoint)
    # Granian's master starts a new worker by itself, which would die again: the test's own
    # restart replaces both.
    ended = threading.Thread(target=_start_again, args=(cluster, role))
    ended.start()
    accepted = publish_all(cluster.base_url, tokens, 200)
    ended.join()
    assert len({message.id for message in accepted}) == 200
    cluster.wait_until(lambda: not missing(accepted, sinks), "every copy to arrive")
    assert_marked(cluster)


def _start_again(cluster: Cluster, role: str) -> None:
    worker = _worker_pid(cluster, role)
    cluster.wait_until(lambda: not Path(f"/proc/{worker}/exe").exists(), "the planned death")
    if role == WEB:
        cluster.kill(role)
    cluster.start(role)


def _worker_pid(cluster: Cluster, role: str) -> int:
    """The process that does the work: granian's only child, or the daemon itself."""
    pid = cluster.processes[role].pid
    if role != WEB:
        return pid
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.05)
    raise AssertionError("the web server started no worker")


def test_heartbeats_name_every_role(cluster: Cluster) -> None:
    def roles() -> set[str]:
        return {key.decode().split(":")[1] for key in cluster.redis.keys("heartbeat:*")}

    expected = {name.removeprefix("run_") for name in DAEMONS}
    cluster.wait_until(lambda: roles() == expected, "a heartbeat of every role")
    cluster.kill("run_maker")
    cluster.wait_until(
        lambda: "maker" not in roles(), "the dead one to disappear", TTL_SECONDS + 10
    )
