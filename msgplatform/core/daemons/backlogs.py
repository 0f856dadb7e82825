"""How much waited in each flow, minute by minute of the last day: the overview's curves.

The watch notes it; the last look of a minute counts. It is kept in the work Redis alone: what is
lost with that is a curve.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from msgplatform.core.connections import work_redis

KEPT_MINUTES = 1440
_SECONDS = 60
_EXPIRE_SECONDS = 2 * KEPT_MINUTES * _SECONDS


def note(backlogs: Mapping[str, int], now: float | None = None) -> None:
    """Flow → messages that wait now. Raises RedisError."""
    minute = int((time.time() if now is None else now) // _SECONDS)
    pipeline = work_redis().pipeline(transaction=False)
    for flow, backlog in backlogs.items():
        key = _key(flow)
        pipeline.hset(key, str(minute), str(backlog))
        # One older field with each new one; a gap in the curve leaves some to the expiry.
        pipeline.hdel(key, *(str(minute - KEPT_MINUTES - n) for n in range(5)))
        pipeline.expire(key, _EXPIRE_SECONDS)
    pipeline.execute()


def read(flows: Iterable[str]) -> dict[str, dict[float, int]]:
    """Flow → unix seconds of a minute's start → messages that waited. Raises RedisError."""
    names = list(flows)
    pipeline = work_redis().pipeline(transaction=False)
    for name in names:
        pipeline.hgetall(_key(name))
    return {
        name: {
            int(minute) * float(_SECONDS): int(value)
            for minute, value in rows.items()
            if minute.isdigit() and value.isdigit()  # somebody else may write into that Redis
        }
        for name, rows in zip(names, pipeline.execute(), strict=True)
    }


def _key(flow: str) -> str:
    return f"platform:backlog:{flow}"
