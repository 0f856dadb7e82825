"""Django's cache, and with it django-rq's pages, through the platform's own Redis clients."""

from collections.abc import Mapping
from typing import Any

from django_redis.cache import RedisCache
from redis import Redis

from msgplatform.core.connections import work_redis


class CacheConnections:
    """A connection factory of django-redis. It returns the client of REDIS_URL, which waits only
    briefly within a request."""

    def __init__(self, options: Mapping[str, object]) -> None:
        """Timeouts and pool are the platform's, not those of `options`."""

    def connect(self, url: str) -> Redis:
        """The client of REDIS_URL, whatever address CACHES names."""
        return work_redis()


class ForgivingCache(RedisCache):  # type: ignore[misc]  # has no types
    """Makes codes of second factors count once, and counts guesses. While Redis is away it takes
    each key as new, so that people can sign in when they are needed most."""

    def add(self, *args: Any, **kwargs: Any) -> bool:
        is_new: bool | None = super().add(*args, **kwargs)
        return True if is_new is None else is_new
