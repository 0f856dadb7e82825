"""Feed under fire: dispatchers killed with work in flight and at each named place, and one that is
frozen inside its transaction. No recipient is missing, nobody is shown a post twice."""

import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb
from demo.connection import Connection
from demo.feed.traffic import Client
from tests.cluster import WEB, Cluster
from tests.flows.conftest import CRASH_KINDS
from tests.flows.feed_town import (
    LEFT,
    PEOPLE,
    SET_UP,
    SETTINGS,
    STAR,
    UNWRITTEN,
    Inhabitants,
    left,
)

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
POSTS = 5_000 if FULL else 400  # at least: they post until the last kill
KILLS = 6 if FULL else 2  # of each dispatcher
WAITING_AT_KILL = 200 if FULL else 80
DISPATCHER, CLEANER = "run_feed_dispatcher", "run_feed_cleaner"
SECOND = f"{DISPATCHER}.2"  # another process of the same program
FAILPOINTS = (
    "feed_before_commit",
    "feed_after_commit",
    "feed_slice_before_commit:2",
    "feed_upkeep_before_commit",
)
HANDLED = """
from notify.feed.models import EventQueue
print(EventQueue.objects.filter(status=EventQueue.Status.HANDLED).count())
"""
ENTRIES = """
from notify.feed.models import FeedBroadcast
print(FeedBroadcast.objects.exclude(fri_uid__in=["star", "comet"]).count())
"""
WAITING = """
import json
from notify.feed.models import EventQueue
rows = EventQueue.objects.exclude(status=EventQueue.Status.HANDLED)
print(json.dumps([[kind, str(qid)] for kind, qid in rows.values_list("kind", "qid")]))
"""


class FeedCluster(Cluster):
    def _command(self, name: str) -> list[str]:
        if name == SECOND:
            return [sys.executable, "manage.py", DISPATCHER]
        return super()._command(name)


@pytest.fixture(params=CRASH_KINDS)
def cluster(request: pytest.FixtureRequest, mariadb: MariaDb) -> Iterator[FeedCluster]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mp-feed-")))
        is_server = request.param == "server"
        name = folder.name.replace("-", "_")
        url = mariadb.create(name) if is_server else f"sqlite:///{folder / 'platform.db'}"
        programs = (WEB, DISPATCHER, CLEANER, *([SECOND] if is_server else []))
        made = FeedCluster(folder, url, programs)
        made.expected_errors = set()
        made.environment |= SETTINGS
        stack.enter_context(made)
        yield made


def dispatchers(cluster: Cluster) -> list[str]:
    return [name for name in cluster.programs if name.startswith(DISPATCHER)]


def test_every_timeline_is_whole_after_kills(cluster: FeedCluster) -> None:
    people = Inhabitants(cluster, cluster.script(SET_UP))
    people.pause = 0.1 if FULL else 0.3
    people.settle()
    people.start()
    try:
        kill_log = fire(cluster)
        cluster.wait_until(lambda: len(people.town.posts) >= POSTS, "enough posts")
    finally:
        people.finish()
    cluster.wait_until(lambda: left(cluster) == 0, "every event to be handled")
    found = people.differences()
    written, unwritten = cluster.script(UNWRITTEN)
    kill_log.append(trim(cluster))
    trimmed = people.differences()
    print("\n".join(kill_log))
    print(
        f"{len(people.town.posts)} posts, {written} entries that must be written, {unwritten} not; "
        f"timelines: {found}"
    )
    assert people.twice == []
    assert (found.receivers, found.count) == ([], 0)
    assert unwritten == 0
    assert written > 10 * len(PEOPLE)
    assert trimmed.receivers == []


def fire(cluster: FeedCluster) -> list[str]:
    """Dispatchers killed at any moment and at each named place, the cleaner and the web server
    killed, and Redis emptied."""
    log: list[str] = []
    chance = random.Random(20261122)
    all = dispatchers(cluster)
    for number, victim in enumerate(all * KILLS):
        await_work(cluster)
        time.sleep(chance.random() / 5)  # the moment of the kill is any
        cluster.kill(victim)
        log.append(f"kill {victim} and the cleaner, left: {cluster.script(LEFT)}")
        cluster.start(victim)
        clean_again(cluster)
        if number == 0:
            cluster.redis.flushall()
            cluster.restart(WEB)
            log.append("flush; kill the web server")
    for place in FAILPOINTS:
        for name in all:
            cluster.kill(name)
        cluster.start(all[0], failpoint=place)
        cluster.wait_until(lambda: cluster.died(all[0]), f"{all[0]} to die at {place}")
        log.append(f"died at {place}, left: {cluster.script(LEFT)}")
        for name in all:
            cluster.start(name)
    return log


def trim(cluster: FeedCluster) -> str:
    """The cleaner shortens every timeline, and dies in the middle of one."""
    cluster.environment["FEED_TIMELINE_LENGTH"] = "20"
    before = cluster.script(ENTRIES)
    clean_again(cluster, failpoint="feed_after_floor:5")
    cluster.wait_until(lambda: cluster.died(CLEANER), "the cleaner to die")
    between = cluster.script(ENTRIES)
    clean_again(cluster)
    most = 24 * len(PEOPLE)
    cluster.wait_until(lambda: cluster.script(ENTRIES) <= most, "all timelines to be short")
    return f"the cleaner died at {between} entries of {before}"


def clean_again(cluster: FeedCluster, failpoint: str = "") -> None:
    """Kill the cleaner and start it; nobody waits two minutes for the end of its lease."""
    cluster.kill(CLEANER)
    cluster.redis.delete("feed:cleaner")
    cluster.start(CLEANER, failpoint)


def await_work(cluster: FeedCluster) -> None:
    """Until dispatchers are at work on a backlog."""
    for name in dispatchers(cluster):
        cluster.kill(name)
    cluster.wait_until(lambda: left(cluster) >= WAITING_AT_KILL, "events to wait")
    handled = cluster.script(HANDLED)
    for name in dispatchers(cluster):
        cluster.start(name)
    cluster.wait_until(lambda: cluster.script(HANDLED) > handled, "the first to be handled")


@pytest.mark.parametrize("cluster", ["server"], indirect=True)
def test_a_frozen_dispatcher_holds_up_only_its_own_events(cluster: FeedCluster) -> None:
    people = Inhabitants(cluster, cluster.script(SET_UP))
    people.settle()
    for name in (DISPATCHER, SECOND):
        cluster.wait_until(lambda: left(cluster) == 0, "every event to be handled")
        cluster.kill(name)
    chance = random.Random(20261122)
    with closing(Connection(cluster.base_url)) as connection:
        client = Client(connection, people.token)
        held = people.post(client, chance.choices(PEOPLE[:80], k=40), chance)
        cluster.start(DISPATCHER, failpoint="feed_before_commit:1:STOP")
        cluster.wait_until(lambda: is_stopped(cluster, DISPATCHER), "the dispatcher to freeze")
        frozen = time.monotonic()
        for id in held[:4]:  # what there is to delete is being written by the frozen one
            client.delete(id)
            people.town.posts[id].deleted = True
        later = people.post(client, [*chance.choices(PEOPLE, k=60), STAR], chance)
        people.change(client, "befriend", PEOPLE[90], PEOPLE[159])
        cluster.start(SECOND)

        def waiting() -> set[str]:
            """Posts, and kinds of upkeep."""
            rows = cluster.script(WAITING)
            return {qid if kind == "post" else kind for kind, qid in rows}

        cluster.wait_until(
            lambda: waiting() <= {*held, "delete"}, "what is not frozen to be handled"
        )
        seconds = time.monotonic() - frozen
        assert is_stopped(cluster, DISPATCHER)
        cluster.wait_until(lambda: not waiting(), "its locks to end, and its events to be handled")
        freed = time.monotonic() - frozen
        assert is_stopped(cluster, DISPATCHER)
    cluster.resume(DISPATCHER)
    cluster.wait_until(lambda: left(cluster) == 0, "every event to be handled")
    found = people.differences()
    written, unwritten = cluster.script(UNWRITTEN)
    print(
        f"{len(later)} others were handled after {seconds:.1f} s, the frozen dispatcher's after "
        f"{freed:.1f} s"
    )
    assert (found.receivers, unwritten) == ([], 0)
    assert written > len(PEOPLE)


def is_stopped(cluster: Cluster, name: str) -> bool:
    state = Path(f"/proc/{cluster.processes[name].pid}/stat").read_text().rpartition(")")[2]
    return state.split()[0] == "T"
