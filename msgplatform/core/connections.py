"""The only place that builds Redis clients."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import redis
from django.conf import settings
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

# A blocking call may wait this long; the socket's timeout is longer (redis-py 8 gives up at 5 s).
BLOCK_SECONDS = 2
_SOCKET_TIMEOUT = 10
_CONNECT_TIMEOUT = 2

RedisError = redis.exceptions.RedisError


def work_redis() -> redis.Redis:
    """Redis that holds work which can be made again from the database (REDIS_URL)."""
    return _client(settings.REDIS_URL, os.getpid())


def sms_redis() -> redis.Redis:
    """Redis that is the truth of SMS until the archive is written (SMS_REDIS_URL)."""
    return _client(settings.SMS_REDIS_URL, os.getpid())


def clock(client: redis.Redis) -> float:
    """Unix seconds by the server's own clock, the same for all machines."""
    seconds, micros = client.time()
    return int(seconds) + int(micros) / 1e6


@lru_cache(maxsize=8)
def _client(url: str, _pid: int) -> redis.Redis:
    """One pool a process: a connection that crossed a fork mixes two conversations."""
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
