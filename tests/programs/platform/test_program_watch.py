"""`up` ends a program that hangs, and none whose heartbeats merely cannot be heard: a real Redis
and real processes. What people see of it is in `tests/flows/test_supervision.py`."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from msgplatform.core import connections
from msgplatform.core.daemons.heartbeats import TTL_SECONDS, Heartbeat
from msgplatform.operation.supervision import program_watch
from tests.servers import Servers
from tests.support.hanging_servers import hanging
from tests.waiting import freeze


class Programs:
    """Two processes that supervisord would have; `look` as `up` does each second."""

    def __init__(self, logs: Path) -> None:
        self.said: list[str] = []
        self.children = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
        self._watch = program_watch.ProgramWatch(logs, self.said.append, TTL_SECONDS + 1e-6)

    def beat(self, *numbers: int) -> None:
        for number in numbers:
            Heartbeat(f"role-{number}", pid=self.children[number].pid).send()

    def look(self) -> None:
        now = int(time.time())
        self._watch.look([
            {"name": f"run_{number}", "pid": child.pid, "start": 1, "now": now}
            for number, child in enumerate(self.children)
        ])  # fmt: skip

    def hang(self, number: int) -> None:
        """Its last heartbeat is over."""
        beat = Heartbeat(f"role-{number}", pid=self.children[number].pid)
        connections.work_redis().hdel("heartbeats", beat.name)


@pytest.fixture
def programs(tmp_path: Path, work_redis: redis.Redis) -> Iterator[Programs]:
    running = Programs(tmp_path)
    yield running
    for child in running.children:
        child.kill()
        child.wait()


def test_a_process_without_heartbeats_beside_others_is_ended(
    programs: Programs, tmp_path: Path
) -> None:
    programs.beat(0, 1)
    programs.look()
    programs.hang(1)
    programs.look()
    assert [line.partition(":")[0] for line in programs.said] == ["run_1"]
    assert programs.children[1].wait(60) == -signal.SIGKILL
    assert programs.children[0].poll() is None
    assert '"event": "hung"' in (tmp_path / "run_1.log").read_text()
    programs.look()
    assert len(programs.said) == 1


def test_a_process_that_has_sent_none_yet_is_left_alone(programs: Programs) -> None:
    """It begins its work, or is a web server or a Redis."""
    programs.beat(0)
    programs.look()
    programs.look()
    assert programs.said == []


@pytest.fixture
def server(programs: Programs) -> Iterator[psutil.Process]:
    """A process with two workers, as the web server, in the place of the second program."""
    shell = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600 & wait"], start_new_session=True)
    programs.children[1].kill()
    programs.children[1].wait()
    programs.children[1] = shell
    process = psutil.Process(shell.pid)
    until = time.monotonic() + 60
    while len(process.children()) < 2:
        assert time.monotonic() < until
    yield process
    os.killpg(shell.pid, signal.SIGKILL)


class TestWorkers:
    def test_a_worker_that_hangs_is_ended_and_its_server_stays(
        self, programs: Programs, server: psutil.Process, tmp_path: Path
    ) -> None:
        first, second = server.children()
        programs.beat(0)
        beats = [Heartbeat("web", pid=worker.pid) for worker in (first, second)]
        for beat in beats:
            beat.send()
        programs.look()
        connections.work_redis().hdel("heartbeats", beats[1].name)
        programs.look()
        assert [line.partition(":")[0] for line in programs.said] == ["run_1"]
        psutil.wait_procs([second], 60)
        assert (first.is_running(), server.is_running()) == (True, True)
        assert f'"pid": {second.pid}' in (tmp_path / "run_1.log").read_text()

    def test_a_server_without_any_worker_that_is_heard_is_ended(
        self, programs: Programs, server: psutil.Process
    ) -> None:
        programs.beat(0)
        beat = Heartbeat("web", pid=server.children()[0].pid)
        beat.send()
        programs.look()
        connections.work_redis().hdel("heartbeats", beat.name)
        programs.look()
        assert len(programs.said) == 1
        assert programs.children[1].wait(60) == -signal.SIGKILL

    def test_a_server_that_is_stopped_is_ended_although_its_workers_are_well(
        self, programs: Programs, server: psutil.Process
    ) -> None:
        beat = Heartbeat("web", pid=server.children()[0].pid)
        beat.send()
        programs.look()
        freeze(server.pid)
        programs.look()
        programs.look()
        assert programs.children[1].wait(60) == -signal.SIGKILL


def test_nobody_is_heard(programs: Programs, work_redis: redis.Redis) -> None:
    """The work Redis was emptied, or refuses all writes."""
    programs.beat(0, 1)
    programs.look()
    work_redis.flushall()
    programs.look()
    assert programs.said == []


def test_redis_hangs(programs: Programs, servers: Servers) -> None:
    programs.beat(0, 1)
    programs.look()
    programs.hang(1)
    with hanging(servers.work):
        programs.look()
    programs.look()
    assert programs.said == [], "nobody knows what was while Redis hung"
