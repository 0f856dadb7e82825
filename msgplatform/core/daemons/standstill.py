"""Standstills of parts of this process, with their reasons, for the heartbeat.

A part is the loop of a daemon, or a thread beside the loop. A part stands still from the beginning
of a failed turn until a turn ends without an error.
"""

import time
from typing import NamedTuple

from redis.exceptions import ConnectionError, TimeoutError

_MAX_REASON = 300


class Standstill(NamedTuple):
    since: float = 0.0  # unix seconds; 0: nothing stands still
    part: str = ""
    why: str = ""  # '' while the turn goes on


parts: dict[str, Standstill] = {}


def begin(part: str) -> None:
    """A turn begins. A turn that never ends counts from here."""
    parts.setdefault(part, Standstill(time.time(), part))


def end(part: str) -> None:
    """A turn has ended well."""
    parts.pop(part, None)


def fail(part: str, error: BaseException) -> None:
    """A turn has failed. A silent Redis is left out, because it has an alert of its own."""
    if isinstance(error, ConnectionError | TimeoutError):
        end(part)
        return
    begin(part)
    why = f"{type(error).__name__}: {error}"[:_MAX_REASON]
    parts[part] = parts[part]._replace(why=why)


def longest() -> Standstill:
    """The part that has stood still longest; parts with a reason come first."""
    standstills = list(parts.values())
    return min(standstills, key=lambda part: (not part.why, part.since), default=Standstill())
