"""Heartbeats of daemons and web workers: records in the work Redis that vanish when the process is
gone."""

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
from django.conf import settings

from msgplatform import __version__
from msgplatform.core import cells
from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.daemons.thread_loop import Standstill, ThreadLoop, longest_standstill

INTERVAL_SECONDS = 5
TTL_SECONDS = 20  # three missed heartbeats: if Redis hangs for a moment, nobody looks dead
# Seconds that an ending process waits for a hanging Redis. Without an answer the record expires.
WITHDRAW_SECONDS = 1.0
WEB = "web"  # the role of a worker of the web server


class Heartbeat(msgspec.Struct):
    """`lag` is the age in seconds of the role's oldest waiting unit, or None."""

    role: str
    host: str = msgspec.field(default_factory=socket.gethostname)
    pid: int = msgspec.field(default_factory=os.getpid)
    since: float = msgspec.field(default_factory=time.time)
    done: int = 0
    failed: int = 0
    lag: float | None = None
    at: float = 0.0
    release: str = __version__
    cell: str = msgspec.field(default_factory=lambda: cells.own().label)
    # The disk of STATE_DIR; 0: unknown.
    disk_free_bytes: int = 0
    disk_bytes: int = 0
    standstill: Standstill = msgspec.field(default_factory=Standstill)

    @property
    def program(self) -> str:
        return self.role if self.role == WEB else f"run_{self.role}"

    @property
    def name(self) -> str:
        return f"{self.role}:{self.host}:{self.pid}"

    def send(self) -> None:
        """Write the record. An unavailable Redis is ignored."""
        self.at, self.standstill = time.time(), longest_standstill()
        with suppress(OSError):
            disk = shutil.disk_usage(settings.STATE_DIR)
            self.disk_free_bytes, self.disk_bytes = disk.free, disk.total
        with suppress(RedisError):
            _heartbeats.report({self.name: self})

    def withdraw(self) -> None:
        """Remove the record, so that a process that ended does not look alive until the TTL."""
        with suppress(RedisError):
            _heartbeats.withdraw(self.name)


_heartbeats = Presence(work_redis, "heartbeats", Heartbeat, TTL_SECONDS)


def beat(heartbeat: Heartbeat, is_alive: Callable[[], bool] = lambda: True) -> ThreadLoop:
    """A thread that sends the heartbeat while the process `is_alive`, so that a hanging Redis
    delays no work. A stop of the thread withdraws the record, if Redis answers within
    WITHDRAW_SECONDS."""

    def send() -> None:
        if is_alive():
            heartbeat.send()

    return ThreadLoop("heartbeat", send, every=INTERVAL_SECONDS, last=heartbeat.withdraw)


def alive() -> list[Heartbeat]:
    """Every process with a current heartbeat, by role. Raises RedisError."""
    return [heartbeat for _name, heartbeat in sorted(_heartbeats.read().items())]


def roles_by_release(heartbeats: Iterable[Heartbeat]) -> dict[str, list[str]]:
    """Release → the roles that run of it. Several releases run during an update."""
    roles: dict[str, set[str]] = {}
    for heartbeat in heartbeats:
        roles.setdefault(heartbeat.release, set()).add(heartbeat.role)
    return {release: sorted(roles[release]) for release in sorted(roles)}
