"""Notify end to end: HTTP in, split, queued, delivered to real consumers, marked.

Accounting is by what the client saw accepted and what the consumers' own files say.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.notify.traffic import publish_all
from demo.sink_process import SinkProcess
from msgplatform.core.daemons.heartbeats import TTL_SECONDS
from tests.cluster import DAEMONS, LEASE_SECONDS, WEB, Cluster
from tests.flows.traffic import SYSTEMS, assert_marked, cast, duplicates, missing

CLUSTER_LEASE_SECONDS = LEASE_SECONDS  # of `shared_cluster`, whose programs are killed here


def test_one_message_goes_the_whole_way(shared_cluster: Cluster) -> None:
    cluster = shared_cluster
    with cast(cluster, {"only": []}, {"first": ["only"]}) as (tokens, sinks):
        (accepted,) = publish_all(cluster.base_url, tokens, 1, connections=1)
        cluster.wait_until(lambda: sinks["only"].ids() == {accepted.id}, "the delivery")

        def delivered() -> bool:
            shown = cluster.get(f"/api/v1/messages/{accepted.id}", tokens["first"])
            return [d["status"] for d in shown["deliveries"]] == ["delivered"]

        def answers() -> list[int]:
            (copy,) = cluster.get(f"/api/v1/messages/{accepted.id}", tokens["first"])["deliveries"]
            return [attempt["http_status"] for attempt in copy["attempts"]]

        cluster.wait_until(delivered, "the mark")
        # Before it none, unless a busy machine gave a request up: it is sent once more then.
        *given_up, last = answers()
        assert (last, set(given_up) <= {0, None}) == (200, True)
        (listed,) = cluster.get("/api/v1/messages", tokens["first"])["results"]
        assert listed["id"] == accepted.id
        assert isinstance(listed["id"], str)
        assert listed["state"] == "distributed"
        assert duplicates(sinks) <= len(given_up)


def test_a_new_address_holds_within_a_second(shared_cluster: Cluster) -> None:
    """Of a consumer that the management API changes, again and again."""
    cluster = shared_cluster
    with cast(cluster, {"old": [], "new": []}, {"movers": ["old"]}) as (tokens, sinks):
        code = "import json; from msgplatform.doors.api.access import keys"
        make = "keys.create(None, 'mover', ['manage:consumers'])[1]"
        manager = cluster.script(f"{code}; print(json.dumps({make}))")
        late_turns = []
        for turn in range(6):
            name = ("new", "old")[turn % 2]
            cluster.put("/api/v1/consumers/old", {"url": sinks[name].url}, manager)
            time.sleep(1.0)
            (accepted,) = publish_all(cluster.base_url, tokens, 1, connections=1)
            everywhere = [sinks["old"], sinks["new"]]
            cluster.wait_until(
                lambda everywhere=everywhere, id=accepted.id: any(
                    id in sink.ids() for sink in everywhere
                ),
                "the delivery",
            )
            if accepted.id not in sinks[name].ids():
                late_turns.append(turn)
        # A sender that a busy machine has stopped is late once. A sender that is not woken looks
        # every two seconds, and is late in half of the turns.
        assert len(late_turns) <= 1, "it went to the old address"


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
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.05)
    raise AssertionError("the web server started no worker")


def test_heartbeats_name_every_role(shared_cluster: Cluster) -> None:
    """The last one, for it leaves a program dead."""
    cluster = shared_cluster

    def roles() -> set[str]:
        return {name.decode().split(":")[0] for name in cluster.redis.hkeys("heartbeats")}

    expected = {name.removeprefix("run_") for name in DAEMONS} | {"web"}
    cluster.wait_until(lambda: roles() == expected, "a heartbeat of every role")
    cluster.kill("run_maker")
    cluster.wait_until(
        lambda: "maker" not in roles(), "the dead one to disappear", TTL_SECONDS + 60
    )
