"""The platform has no RQ workers: its commands say so, and what a worker left is cleaned."""

import os
import pkgutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis
from django.core.management import (
    CommandError,
    call_command,
    get_commands,
    load_command_class,
)
from django_rq.management import commands
from rq.worker_registration import REDIS_WORKER_KEYS

from msgplatform import env
from msgplatform.core.queues import jobs, recovery
from notify.orders import MARKER_QUEUE as MARKER

QUEUE = "notify-7-9"
COMMANDS = sorted(module.name for module in pkgutil.iter_modules(commands.__path__))


def manage(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=env.BASE_DIR, env=os.environ,
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def run(name: str, *arguments: str) -> object:
    """Run a command as manage.py does, in this process; the code with which it ends."""
    with pytest.raises(SystemExit) as end:
        load_command_class(get_commands()[name], name).run_from_argv(
            ["manage.py", name, *arguments]
        )
    return end.value.code


def recovered() -> int:
    """What the maker does now and then: only results are put back."""
    return recovery.recover(lambda name: name == MARKER)


def kept(client: redis.Redis) -> set[bytes | str]:
    """Keys that stay, or stay for hours, when nothing is in hand."""
    found = {key for key in client.keys("*") if not 0 < client.ttl(key) <= 3600}
    return found - {b"rq:queues"}


def rq_worker(url: str, *queue_names: str) -> None:
    """RQ's own program, as anybody may start it; it ends when the queues are empty."""
    worker = Path(sys.executable).with_name("rq")
    subprocess.run(
        [worker, "worker", "--burst", "--url", url, *queue_names],
        env={**os.environ, "PYTHONPATH": str(env.BASE_DIR)}, capture_output=True, timeout=600,
        check=True,
    )  # fmt: skip


# -- the commands --------------------------------------------------------------------------------
def test_these_are_the_commands_of_django_rq() -> None:
    assert COMMANDS == [
        "rqcron", "rqenqueue", "rqresume", "rqscheduler", "rqstats", "rqsuspend", "rqworker",
        "rqworker-pool",
    ]  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_each_says_what_to_use_instead(
    work_redis: redis.Redis, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.put(QUEUE, [{"n": 1}], ttl=3600)
    before = set(work_redis.keys("*"))
    assert run(name, QUEUE, MARKER, "--burst", "--num-workers", "2") == 1
    errors = capsys.readouterr().err
    assert "has no RQ workers" in errors
    assert "manage.py up" in errors
    assert "run_sender" in errors
    with pytest.raises(CommandError, match="has no RQ workers"):
        call_command(name)
    assert set(work_redis.keys("*")) == before


def test_a_program_of_its_own_says_it_without_a_traceback() -> None:
    ended = manage("rqworker", QUEUE, "--burst")
    assert ended.returncode == 1
    assert "has no RQ workers" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_help_says_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rqworker", "--help") == 0
    assert "has no RQ workers" in capsys.readouterr().out


# -- what a worker left --------------------------------------------------------------------------
@pytest.mark.parametrize("together", [True, False])
def test_what_a_worker_failed_is_cleaned(work_redis: redis.Redis, together: bool) -> None:
    jobs.put(QUEUE, [{"n": n} for n in range(5)], ttl=3600)
    jobs.put(MARKER, [{"result": n} for n in range(3)], ttl=None)
    url = os.environ["REDIS_URL"]
    for names in ([QUEUE, MARKER],) if together else ([QUEUE], [MARKER]):
        rq_worker(url, *names)
    assert jobs.claim(QUEUE, 30) is jobs.claim(MARKER, 30) is None
    assert recovered() == 8
    claimed = [jobs.claim(MARKER, 30) for _ in range(3)]
    assert sorted(order.data["result"] for order in claimed if order) == [0, 1, 2]
    jobs.remove_orders([order for order in claimed if order])
    assert recovered() == 0
    assert kept(work_redis) == set()
    jobs.put(QUEUE, [{"n": 6}], ttl=3600)
    following = jobs.claim(QUEUE, 30)
    assert following, "the queue works on"
    assert following.data == {"n": 6}


def start(client: redis.Redis, queue: str, score: float) -> str:
    """Take the first order as a worker does and write down that it is at it until `score`."""
    job = client.lpop(f"rq:queue:{queue}").decode()
    client.zadd(f"rq:wip:{queue}", {f"{job}:execution": score})
    client.zadd(f"rq:executions:{job}", {"execution": score})
    return job


def test_what_a_killed_worker_had_started_is_cleaned(work_redis: redis.Redis) -> None:
    jobs.put(MARKER, [{"n": 1}], ttl=None)
    jobs.put(QUEUE, [{"n": 2}, {"n": 3}], ttl=3600)
    start(work_redis, MARKER, time.time() - 1)
    start(work_redis, QUEUE, time.time() - 1)
    at_it = start(work_redis, QUEUE, time.time() + 600)
    assert recovered() == 2
    claimed = jobs.claim(MARKER, 30)
    assert claimed
    assert claimed.data == {"n": 1}
    jobs.remove_orders([claimed])
    names = {f"rq:job:{at_it}", f"rq:wip:{QUEUE}", f"rq:executions:{at_it}"}
    assert {key.decode() for key in work_redis.keys("*")} - {"rq:queues"} == names


def test_an_order_that_a_claimer_holds_is_left_to_it(work_redis: redis.Redis) -> None:
    """RQ's maintenance takes what is in the intermediate list for stuck."""
    jobs.put(MARKER, [{"n": 1}, {"n": 2}], ttl=None)
    claimed = [jobs.claim(MARKER, 30), jobs.claim(MARKER, -1)]
    for order in claimed:
        assert order
        work_redis.lrem(f"rq:queue:{MARKER}:intermediate", 1, order.id)
        work_redis.zadd(f"rq:failed:{MARKER}", {order.id: time.time() + 600})
    assert recovered() == 1, "only the one whose claim is over"
    again = jobs.claim(MARKER, 30)
    assert again
    assert again.data == {"n": 2}
    jobs.remove_orders([again, *[order for order in claimed if order]])
    assert recovered() == 0
    assert kept(work_redis) == set()


def test_what_no_job_belongs_to_is_dropped(work_redis: redis.Redis) -> None:
    jobs.put(MARKER, [{"n": 1}], ttl=None)
    for which in ("failed", "finished", "scheduled", "deferred", "canceled"):
        work_redis.zadd(f"rq:{which}:{MARKER}", {b"gone": time.time(), b"\xff\x80": 0})
    work_redis.zadd(f"rq:wip:{MARKER}", {"a:b:c": 1, "alone": 2})
    recovered()
    claimed = jobs.claim(MARKER, 30)
    assert claimed
    jobs.remove_orders([claimed])
    assert kept(work_redis) == set()


def test_a_killed_worker_is_forgotten(work_redis: redis.Redis) -> None:
    jobs.put(QUEUE, [{"n": 1}], ttl=3600)
    work_redis.hset("rq:worker:alive", mapping={"state": "idle"})
    for name in (REDIS_WORKER_KEYS, f"rq:workers:{QUEUE}"):
        work_redis.sadd(name, "rq:worker:dead", "rq:worker:alive", b"\xff")
    recovered()
    for name in (REDIS_WORKER_KEYS, f"rq:workers:{QUEUE}"):
        assert work_redis.smembers(name) == {b"rq:worker:alive"}
