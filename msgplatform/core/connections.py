"""The only place that builds Redis clients."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import redis
from django.conf import settings
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

_SOCKET_TIMEOUT = 10
_CONNECT_TIMEOUT = 2

RedisError = redis.exceptions.RedisError
# An error that the server answers, for example to a command that it forbids.
ResponseError = redis.exceptions.ResponseError


@dataclass(frozen=True)
class RedisRole:
    """What a Redis is for, and the settings that say where it is.

    `name` also names its socket and folder when `up` runs it. `is_truth`: its data exists nowhere
    else, so it needs an append-only file that is synced at every write.
    """

    name: str
    variable: str  # of the environment, and in the settings: NAME_URL
    is_truth: bool = False

    @property
    def url(self) -> str:
        return str(getattr(settings, self.variable))

    @property
    def is_embedded(self) -> bool:
        """Whether no variable names a server, so that `up` runs one."""
        return bool(getattr(settings, self.variable.removesuffix("_URL") + "_EMBEDDED"))

    def client(self) -> redis.Redis:
        """This process's client; one pool for each process and address."""
        return _client(self.url, os.getpid())


WORK = RedisRole("work", "REDIS_URL")


def work_redis() -> redis.Redis:
    """Redis that holds work which can be made again from the database (REDIS_URL)."""
    return WORK.client()


def clock(client: redis.Redis) -> float:
    """Unix seconds by the server's own clock, the same for all machines."""
    seconds, micros = client.time()
    return int(seconds) + int(micros) / 1e6


@lru_cache(maxsize=8)
def _client(url: str, _pid: int) -> redis.Redis:
    """One pool for each process: two processes on one connection would read each other's
    answers."""
    return build(url)


def build(url: str, **options: Any) -> redis.Redis:
    """A client for `url` with the platform's timeouts; one quick retry for a dropped connection."""
    return redis.Redis.from_url(
        url,
        socket_timeout=_SOCKET_TIMEOUT,
        socket_connect_timeout=_CONNECT_TIMEOUT,
        health_check_interval=30,
        retry=Retry(ExponentialBackoff(cap=0.1, base=0.01), 1),
        **options,
    )
