"""The programs of this folder, and a look into BullMQ's queue."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import redis

from bench.harness.ground import Ground
from bench.harness.processes import BenchFailed, Program
from bench.harness.programs import messages
from bench.references import environment

_SOURCE = Path(__file__).parent
# BullMQ's keys of the queue that deliveries.cjs names.
_KEY = "bull:deliver:"
_PAGE = 1000
_PUT_SECONDS = 600


def modules() -> Path:
    """The packages of npm that the programs need. Raises SideMissing."""
    return environment.node_modules("bullmq", _SOURCE)


def program(ground: Ground, label: str, script: str, **options: object) -> Program:
    """`node SCRIPT`, with a connection to the Redis at the socket `redis` among the options."""
    return Program(label, _argv(script, options), _environment(ground))


def put_all(ground: Ground, socket: Path, bodies: Path) -> None:
    """Queue a job for each line of `bodies`, an id and what is POSTed; not measured."""
    argv = _argv("put.cjs", {"redis": socket, "url": ground.sink_url, "bodies": bodies})
    made = subprocess.run(
        argv, env=_environment(ground), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=_PUT_SECONDS, check=False,
    )  # fmt: skip
    if made.returncode:
        raise BenchFailed(f"BullMQ took no jobs\n{made.stderr[-2000:]}")


def waiting_digests(socket: Path) -> Iterator[bytes]:
    """The digest of the body of every job that waits. Raises BenchFailed when a job has failed, is
    in flight, or waits for another try."""
    client = redis.Redis(unix_socket_path=str(socket))
    for state in ("active", "delayed", "failed", "completed"):
        key = _KEY + state
        count = client.llen(key) if state == "active" else client.zcard(key)
        if count:
            raise BenchFailed(f"{count} jobs of BullMQ are {state}")
    ids = client.lrange(f"{_KEY}wait", 0, -1)
    for start in range(0, len(ids), _PAGE):
        with client.pipeline(transaction=False) as pipe:
            for job in ids[start : start + _PAGE]:
                pipe.hget(_KEY + job.decode(), "data")
            for data in pipe.execute():
                yield messages.digest(json.loads(data)["body"].encode())


def _argv(script: str, options: dict[str, object]) -> list[str]:
    pairs = ((f"--{name.replace('_', '-')}", str(value)) for name, value in options.items())
    return ["node", str(_SOURCE / script), *(word for pair in pairs for word in pair)]


def _environment(ground: Ground) -> dict[str, str]:
    return {**ground.environment, "NODE_PATH": str(modules()), "NODE_ENV": "production"}
