"""Set an item aside that makes its whole batch fail, so that it does not hold up the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgplatform.core import alerts, logging
from msgplatform.core.errors import UNAVAILABLE

T = TypeVar("T")
R = TypeVar("R")

log = logging.get(__name__)


def is_unavailable(error: Exception) -> bool:
    """True if a server is unavailable: no item is to blame."""
    return isinstance(error, UNAVAILABLE)


def isolate(
    items: Sequence[T],
    work: Callable[[Sequence[T]], Sequence[R]],
    set_aside: Callable[[T, Exception], alerts.AlertEvent | None],
    blameless: Callable[[Exception], bool] = is_unavailable,
) -> list[R]:
    """The results of `work`, which is all or nothing; when it raises, it is tried on each half.

    An item that fails on its own is given to `set_aside`. The alert that `set_aside` returns is
    raised, and logged with the error; None means that nobody needs to know. An error that is
    `blameless` is raised, so that the caller tries everything again later: the halves that were
    done by then must be repeatable.
    """
    if not items:
        return []
    try:
        return list(work(items))
    except Exception as error:
        if blameless(error):
            raise
        if len(items) == 1:
            alert = set_aside(items[0], error)
            if alert is not None:
                log.error("set_aside", subject=alert.subject, key=alert.key, exc_info=error)
                alerts.raise_event(alert)
            return []
    half = len(items) // 2
    return [
        *isolate(items[:half], work, set_aside, blameless),
        *isolate(items[half:], work, set_aside, blameless),
    ]
