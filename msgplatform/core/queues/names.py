"""The mapping RQ_QUEUES for django-rq.

django-rq raises KeyError for a queue that is not declared and lists only declared ones; ours come
and go with subscriptions and CRMs. So the mapping has an entry for every name that a flow allows,
and lists the queues that Redis knows.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgplatform.core import flows
from msgplatform.core.connections import RedisError, work_redis

_KEY_PREFIX = b"rq:queue:"


def _fixed_names() -> list[str]:
    return [name for flow in flows.all() for name in flow.queues]


class RqQueues(Mapping[str, dict[str, Any]]):
    """RQ_QUEUES: name of a queue that a flow has, or may have → its options. Iteration gives the
    fixed names, then the names in Redis, unless Redis is unavailable."""

    def __getitem__(self, name: str) -> dict[str, Any]:
        patterns = (flow.queue_pattern for flow in flows.all() if flow.queue_pattern)
        if name not in _fixed_names() and not any(re.fullmatch(p, name) for p in patterns):
            raise KeyError(name)
        return {
            "USE_REDIS_CACHE": "default",  # its client is the platform's own
            "DEFAULT_TIMEOUT": 600,
            "SERIALIZER": "msgplatform.core.queues.jobs.Serializer",
        }

    def __iter__(self) -> Iterator[str]:
        try:
            keys: Any = work_redis().smembers("rq:queues")
        except RedisError:
            keys = set()
        fixed_names = _fixed_names()
        yield from fixed_names
        names = {key.removeprefix(_KEY_PREFIX).decode() for key in keys}.difference(fixed_names)
        yield from sorted(name for name in names if name in self)

    def __len__(self) -> int:
        return sum(1 for _name in self)
