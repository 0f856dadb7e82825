"""Heartbeats of daemons: a hash in the work Redis that expires when the process is gone."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass, field, fields

from msgplatform.core.connections import RedisError, work_redis

_PREFIX = "heartbeat:"
INTERVAL_SECONDS = 5
TTL_SECONDS = 20


@dataclass
class Heartbeat:
    """`lag` is the age in seconds of the oldest unit the role had waiting, or None."""

    role: str
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    since: float = field(default_factory=time.time)
    done: int = 0
    failed: int = 0
    lag: float | None = None
    at: float = 0.0
    turn_at: float = field(default_factory=time.time)  # when its loop last began a turn

    @property
    def key(self) -> str:
        return f"{_PREFIX}{self.role}:{self.host}:{self.pid}"

    def send(self) -> None:
        """Write it; a Redis that is away is no reason to stop working."""
        self.at = time.time()
        try:
            work_redis().set(self.key, json.dumps(asdict(self)), ex=TTL_SECONDS)
        except RedisError:
            return

    def withdraw(self) -> None:
        """The process ends by itself: do not look alive for the rest of the TTL."""
        try:
            work_redis().delete(self.key)
        except RedisError:
            return


class Beat:
    """Sends a heartbeat from a thread of its own: a Redis that hangs holds up no work."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End, and do not look alive for the rest of the TTL."""
        self._stopping.set()
        self._thread.join(timeout=1)
        if not self._thread.is_alive():
            self._heartbeat.withdraw()

    def _run(self) -> None:
        while True:
            self._heartbeat.send()
            if self._stopping.wait(INTERVAL_SECONDS):
                return


def alive() -> list[Heartbeat]:
    """Every daemon with a current heartbeat, by role. Raises RedisError."""
    client = work_redis()
    keys = sorted(client.scan_iter(match=f"{_PREFIX}*", count=500))
    if not keys:
        return []
    values: list[bytes | None] = client.mget(keys)  # type: ignore[assignment]
    return [_read(value) for value in values if value]


def _read(value: bytes) -> Heartbeat:
    """Fields of another version are passed over: during an upgrade both run."""
    known = {field.name for field in fields(Heartbeat)}
    return Heartbeat(**{k: v for k, v in json.loads(value).items() if k in known})
