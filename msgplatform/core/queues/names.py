"""The queues' names, and the mapping that django-rq takes as RQ_QUEUES.

django-rq raises KeyError for a queue that is not declared and lists only declared ones; ours come
and go with subscriptions and CRMs. So the mapping answers for every well-formed name and lists
what Redis knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

NOTIFY_MARKER = "notify-marker"
FIXED = (NOTIFY_MARKER,)
# A job id or queue name may not hold ":" (RQ splits on it).
_NAME = re.compile(r"(default|notify-marker|notify-\d+-\d+|crm-(main|retry|dead)-[a-z0-9_-]+)")
_KEY_PREFIX = b"rq:queue:"


def notify(biz_id: int, receive_id: int) -> str:
    """The queue of one subscription, named as in the original: notify-<biz id>-<receive id>."""
    return f"notify-{biz_id}-{receive_id}"


class RqQueues(dict[str, Any]):
    """RQ_QUEUES: every valid name exists; iteration lists the fixed ones and those in Redis."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def _config(self) -> dict[str, Any]:
        return {
            "URL": self.url,
            "DEFAULT_TIMEOUT": 600,
            "SERIALIZER": "msgplatform.core.queues.jobs.Serializer",
        }

    def __getitem__(self, name: str) -> Any:
        if not _NAME.fullmatch(name):
            raise KeyError(name)
        return self._config()

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - it is this very method

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _NAME.fullmatch(name) is not None

    def names(self) -> list[str]:
        """Fixed names first, then what Redis lists; only the fixed ones when Redis is away."""
        from redis.exceptions import RedisError

        from msgplatform.core.connections import work_redis

        try:
            keys: Any = work_redis().smembers("rq:queues")
        except RedisError:
            keys = set()
        found = {key.removeprefix(_KEY_PREFIX).decode() for key in keys}
        return [*FIXED, *sorted(name for name in found - set(FIXED) if name in self)]

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
