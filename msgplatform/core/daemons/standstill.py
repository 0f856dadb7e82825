"""Since when a part of this process has finished nothing, and why: for its heartbeat.

A part is the loop of a daemon, or a thread beside it. It stands still from the beginning of the
turn that fails, until a turn ends without an error.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from redis.exceptions import ConnectionError, TimeoutError

_MAX_REASON = 300


class Standstill(NamedTuple):
    since: float = 0.0  # unix seconds; 0: nothing stands still
    part: str = ""
    why: str = ""  # '' while its turn goes on


parts: dict[str, Standstill] = {}


def begin(part: str) -> None:
    """A turn begins; one that never ends shows that way."""
    parts.setdefault(part, Standstill(time.time(), part))


def end(part: str) -> None:
    """A turn has ended well."""
    parts.pop(part, None)


def fail(part: str, error: BaseException) -> None:
    """A turn has failed. A Redis that does not answer has an alert of its own."""
    if isinstance(error, ConnectionError | TimeoutError):
        end(part)
        return
    begin(part)
    why = f"{type(error).__name__}: {error}"[:_MAX_REASON]
    parts[part] = parts[part]._replace(why=why)


def longest() -> Standstill:
    """The part that has stood still longest; one with a reason comes before one without."""
    standstills = list(parts.values())
    return min(standstills, key=lambda part: (not part.why, part.since), default=Standstill())
