"""A client for a Redis of a test's own, with one quick retry for a dropped connection."""

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry


def connect(url: str, retries: int = 1, timeout: float = 10.0) -> Redis:
    retry = Retry(ExponentialBackoff(cap=0.1, base=0.01), retries)
    return Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=2, retry=retry)
