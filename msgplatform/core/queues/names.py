"""The mapping RQ_QUEUES for django-rq.

django-rq raises KeyError for a queue that is not declared and lists only declared ones; ours come
and go with subscriptions and CRMs. So the mapping has an entry for every name that a flow allows,
and lists the queues that Redis knows.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgplatform.core import flows
from msgplatform.core.connections import RedisError, work_redis

_KEY_PREFIX = b"rq:queue:"


def _queues_of_flows() -> list[str]:
    return [name for flow in flows.all() for name in flow.queues]


class RqQueues(dict[str, Any]):
    """RQ_QUEUES: every valid name exists; iteration lists fixed names and names in Redis."""

    def _config(self) -> dict[str, Any]:
        return {
            "USE_REDIS_CACHE": "default",  # its client is the platform's own
            "DEFAULT_TIMEOUT": 600,
            "SERIALIZER": "msgplatform.core.queues.jobs.Serializer",
        }

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return self._config()

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - it is this very method

    def __contains__(self, name: object) -> bool:
        """True if a flow has, or may have, a queue of this name."""
        if not isinstance(name, str):
            return False
        patterns = (flow.queue_pattern for flow in flows.all() if flow.queue_pattern)
        is_fixed = name in _queues_of_flows()
        return is_fixed or any(re.fullmatch(pattern, name) for pattern in patterns)

    def names(self) -> list[str]:
        """Fixed names first, then names from Redis, unless Redis is unavailable."""
        try:
            keys: Any = work_redis().smembers("rq:queues")
        except RedisError:
            keys = set()
        queue_names = {key.removeprefix(_KEY_PREFIX).decode() for key in keys}
        fixed_names = _queues_of_flows()
        return [
            *fixed_names,
            *sorted(name for name in queue_names.difference(fixed_names) if name in self),
        ]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def keys(self) -> Any:
        return self.names()

    def items(self) -> Any:
        return [(name, self._config()) for name in self.names()]

    def values(self) -> Any:
        return [self._config() for _ in self.names()]
