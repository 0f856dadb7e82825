"""One item that cannot be worked off steps aside, and does not hold up the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgplatform.core.daemons.daemon import AWAY

T = TypeVar("T")
R = TypeVar("R")


def away(error: Exception) -> bool:
    """Whether a server is away: no item is to blame."""
    return isinstance(error, AWAY)


def isolate(
    items: Sequence[T],
    work: Callable[[Sequence[T]], Sequence[R]],
    step_aside: Callable[[T, Exception], None],
    blameless: Callable[[Exception], bool] = away,
) -> list[R]:
    """The results of `work`, which is all or nothing; when it raises, it is tried on halves.

    An item with which it raises alone is given to `step_aside`. What is `blameless` is raised, so
    that all is tried again later: work that was done by then must be repeatable.
    """
    if not items:
        return []
    try:
        return list(work(items))
    except Exception as error:
        if blameless(error):
            raise
        if len(items) == 1:
            step_aside(items[0], error)
            return []
    half = len(items) // 2
    return [
        *isolate(items[:half], work, step_aside, blameless),
        *isolate(items[half:], work, step_aside, blameless),
    ]
