"""The only place that builds Redis clients.

Daemons wait for a server that hangs, since they have nothing else to do. Pages, /metrics and
`doctor` do not wait: within `briefly()` a server has 0.7 s to answer, a server that did not is
asked again only after 5 s, and slow answers have 2 s in all. Code that stores an accepted SMS is
patient there, too: a late answer is better than none.
"""

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec
import redis
from django.conf import settings
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

T = TypeVar("T")

_SOCKET_TIMEOUT = 10
_CONNECT_TIMEOUT = 2
_BACKOFF = ExponentialBackoff(cap=0.1, base=0.01)
BRIEF_SECONDS = 0.7  # so that a page that has waited is there within a second
# Seconds in which all brief clients of a process fail at once after one has waited in vain.
AWAY_SECONDS = 5.0
# Seconds that slow answers may take within one `briefly()`, and from which on an answer is slow.
PAGE_SECONDS, SLOW_SECONDS = 2.0, 0.2


def numbers_of(hash_rows: Mapping[bytes, bytes]) -> dict[str, float]:
    """The fields of a Redis hash that hold a number. Other programs may write into this Redis: a
    field of theirs must hide none of ours."""
    numbers = {}
    for name, value in hash_rows.items():
        with suppress(ValueError):
            if math.isfinite(number := float(value)):
                numbers[name.decode()] = number
    return numbers


class _Waits:
    """Seconds that slow answers have taken within one `briefly()`."""

    seconds = 0.0


# The slow answers of the present `briefly()`; None: clients are patient.
_waits: ContextVar[_Waits | None] = ContextVar("waits", default=None)

RedisError = redis.exceptions.RedisError
# An error that the server sends, such as for a forbidden command.
ResponseError = redis.exceptions.ResponseError
OutOfMemoryError = redis.exceptions.OutOfMemoryError  # the server is at `maxmemory`
# The connection ended, or no answer came in time: the server may have run the command.
LOST = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)
_REFUSALS = {
    redis.exceptions.ReadOnlyError: "READONLY",  # a replica
    redis.exceptions.MasterDownError: "MASTERDOWN",  # a replica without its master
    redis.exceptions.BusyLoadingError: "LOADING",  # a server that reads its file
    # A full server (maxmemory) refuses a command before it runs, and in a script only the first
    # write, "otherwise we can't stop in the middle" (scriptVerifyOOM in src/script.c of Redis 7,
    # luaRedisGenericCommand in src/scripting.c before): a script that has written goes on.
    OutOfMemoryError: "OOM",
}
# redis-py has no class for these: `min-replicas-to-write` is more than the master has; the last
# snapshot could not be written.
_OTHER_REFUSALS = ("NOREPLICAS", "MISCONF")
# The code may follow other text: Redis before 7 quotes a script's error, and redis-py puts the
# pipeline's command before it.
_REFUSAL = re.compile(rf"(?:^|-|: )({'|'.join((*_OTHER_REFUSALS, *_REFUSALS.values()))})\b")


def refusal(error: RedisError) -> str:
    """The code with which the server refused a write without any change; '' for other errors."""
    for kind, code in _REFUSALS.items():
        if isinstance(error, kind):
            return code
    if not isinstance(error, ResponseError):
        return ""
    match = _REFUSAL.search(str(error))
    return match[1] if match else ""


class RedisRole(msgspec.Struct, frozen=True):
    """The role of a Redis, and the setting of its URL.

    `name` is also the name of its socket and folder under `up`. `is_truth`: the data exists nowhere
    else, so that the Redis needs an append-only file that is synced at every write.
    """

    name: str
    variable: str  # of the environment, and in the settings: NAME_URL
    is_truth: bool = False

    @property
    def url(self) -> str:
        return str(getattr(settings, self.variable))

    @property
    def is_embedded(self) -> bool:
        """True if no variable names a server, so that `up` runs one."""
        return bool(getattr(settings, self.variable.removesuffix("_URL") + "_EMBEDDED"))

    def client(self) -> redis.Redis:
        """The client of this process. Each process, address and patience has one pool."""
        return _client(self.url, os.getpid(), is_brief=_waits.get() is not None)

    def single_try_client(self) -> redis.Redis:
        """A patient client that never repeats a command, for a caller that must know whether a
        command may have run."""
        return _client(self.url, os.getpid(), retries=0)

    def server_client(self, host: str, port: int) -> redis.Redis:
        """A brief client of another server of this role, such as a replica, with the same user,
        password and encryption."""
        parts = urlsplit(self.url)
        user, at, _address = parts.netloc.rpartition("@")
        scheme = "redis" if parts.scheme == "unix" else parts.scheme
        options = "" if parts.scheme == "unix" else parts.query
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        url = urlunsplit((scheme, f"{user}{at}{address}", "/0", options, ""))
        return _client(url, os.getpid(), is_brief=True)


WORK = RedisRole("work", "REDIS_URL")


def work_redis() -> redis.Redis:
    """Redis that holds work which can be made again from the database (REDIS_URL)."""
    return WORK.client()


def write_into_full(client: redis.Redis, command: str, key: str, *arguments: Any) -> None:
    """Write a few bytes, also into a server at `maxmemory`: see `_REFUSALS`. Raises RedisError."""
    script = "redis.call('DEL', ARGV[1]) redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))"
    client.eval(script, 1, key, f"{key}:none", command, *arguments)


def clock(client: redis.Redis) -> float:
    """Unix seconds by the server's own clock, the same for all machines."""
    seconds, micros = client.time()
    return int(seconds) + int(micros) / 1e6


@contextmanager
def briefly() -> Iterator[None]:
    """Clients of this thread wait only BRIEF_SECONDS in the block, because a person waits."""
    yield from _set_waits(_Waits())


@contextmanager
def patiently() -> Iterator[None]:
    """Clients are patient in the block, even within `briefly`: for a write whose answer matters."""
    yield from _set_waits(None)


def _set_waits(waits: _Waits | None) -> Iterator[None]:
    token = _waits.set(waits)
    try:
        yield
    finally:
        _waits.reset(token)


@lru_cache(maxsize=32)
def _client(url: str, _pid: int, is_brief: bool = False, retries: int = 1) -> redis.Redis:
    """A client with the platform's timeouts, and one quick retry for a dropped connection, or over
    a new one when the server has become a replica: its address may lead to the new master. Each
    process has its own pool: on a shared connection processes would mix up answers."""
    return redis.Redis.from_url(
        url,
        socket_timeout=BRIEF_SECONDS if is_brief else _SOCKET_TIMEOUT,
        socket_connect_timeout=BRIEF_SECONDS if is_brief else _CONNECT_TIMEOUT,
        health_check_interval=30,
        retry=_BriefRetry(url) if is_brief else Retry(_BACKOFF, retries),
        retry_on_error=[redis.exceptions.ReadOnlyError],
    )


class _BriefRetry(Retry):
    """Retries a dropped connection once, but not a server that did not answer in time.

    All commands of a client's connections go through this object, so that it also refuses a server
    that is away. Connections copy the object, so its state is in the module.
    """

    def __init__(self, url: str) -> None:
        super().__init__(_BACKOFF, 1, (redis.exceptions.ConnectionError,))
        self._url = url

    def call_with_retry(self, do: Callable[[], T], *arguments: Any, **options: Any) -> T:
        waits, start = _waits.get() or _Waits(), time.monotonic()
        if start < _away_until.get(self._url, 0.0):
            raise redis.exceptions.TimeoutError(_SILENT)
        if waits.seconds >= PAGE_SECONDS:
            raise redis.exceptions.TimeoutError(_SLOW)
        try:
            return super().call_with_retry(do, *arguments, **options)
        except redis.exceptions.TimeoutError as error:
            _away_until[self._url] = time.monotonic() + AWAY_SECONDS
            raise redis.exceptions.TimeoutError(_SILENT) from error
        finally:
            if (seconds := time.monotonic() - start) > SLOW_SECONDS:
                waits.seconds += seconds


_SLOW = f"slow answers have taken {PAGE_SECONDS:g} s already"
_SILENT = f"no answer within {BRIEF_SECONDS:g} s; asked again after {AWAY_SECONDS:g} s"
# Address of a server → monotonic time at which brief clients ask that server again.
_away_until: dict[str, float] = {}
