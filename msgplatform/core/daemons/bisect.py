"""Set an item aside that makes its whole batch fail, so that the other items go on."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from django.db.utils import OperationalError

from msgplatform.core import alerts, logging
from msgplatform.core.data import transactions
from msgplatform.core.errors import UNAVAILABLE

T = TypeVar("T")
R = TypeVar("R")

log = logging.get(__name__)

# The tries, within these seconds, of a batch that a database refuses, before an item may be to
# blame. With the pauses of a daemon's loop they take 3 to 6 seconds.
TRIES, _TRIES_SECONDS = 5, 60.0
# After so many failures without a success the server is to blame. Fewer halvings of a batch lead to
# a single item.
_MAX_FAILURES = 14
_MAX_LOGGED = 10  # items of a batch that the database refuses
refusals: dict[int, list[float]] = defaultdict(list)  # error number → its monotonic times


def is_unavailable(error: Exception) -> bool:
    """True if a server is unavailable, so that no item is to blame.

    A database that answers may refuse a statement again and again because of one row: the result is
    False from the TRIES-th refusal on.
    """
    if not isinstance(error, UNAVAILABLE):
        return False
    code = transactions.error_code(error) if isinstance(error, OperationalError) else 0
    if not transactions.is_answer(code):
        return True
    now = time.monotonic()
    recent = [at for at in refusals[code] if now - at < _TRIES_SECONDS]
    refusals[code] = [*recent, now][-TRIES:]
    return len(recent) < TRIES


def is_unanswered(error: Exception) -> bool:
    """True if a server has not answered at all. Every other error may be of an item. For programs
    that see the same items too seldom to count refusals."""
    if not isinstance(error, UNAVAILABLE):
        return False
    code = transactions.error_code(error) if isinstance(error, OperationalError) else 0
    return not transactions.is_answer(code)


def isolate(
    items: Sequence[T],
    work: Callable[[Sequence[T]], Sequence[R]],
    set_aside: Callable[[T, Exception], alerts.AlertEvent | None],
    blameless: Callable[[Exception], bool] = is_unavailable,
) -> list[R]:
    """The results of `work`, which is all or nothing. If `work` raises, it is tried on each half.

    `set_aside` gets an item that fails on its own. Its alert, if not None, is raised, and logged
    with the error. A `blameless` error is raised, so that the caller repeats all items later:
    halves that were done by then must be repeatable. Errors of a server are raised too if no item
    succeeds. The lock error of an item is raised after the other items are done.
    """
    walk = _Walk(work, set_aside, blameless)
    results = walk.halve(items)
    if walk.suspects and not walk.success_count:
        raise walk.suspects[0][1]
    lock_errors = [error for _, error in walk.suspects if transactions.is_of_lock(error)]
    for item, error in walk.suspects:
        if error not in lock_errors:
            walk.blame(item, error)
    if lock_errors:
        raise lock_errors[0]
    return results


def leave_refused(
    items: Sequence[T], work: Callable[[Sequence[T]], Sequence[R]], **facts: str
) -> list[R]:
    """The results of `work`, which may be repeated. Items that the database refuses are left out
    and logged. Raises the first error if all items are refused."""
    errors: list[Exception] = []
    results: list[R] = []

    def leave(item: T, error: Exception) -> None:
        errors.append(error)
        if len(errors) <= _MAX_LOGGED:
            log.error("row_stays", row=str(item), **facts, exc_info=error)
        elif not results:  # the database refuses everything
            raise errors[0]

    def work_off(part: Sequence[T]) -> Sequence[R]:
        part_results = work(part)
        results.extend(part_results)
        return part_results

    isolate(items, work_off, leave, is_unanswered)
    if errors and not results:
        raise errors[0]
    return results


@dataclass
class _Walk(Generic[T, R]):
    work: Callable[[Sequence[T]], Sequence[R]]
    set_aside: Callable[[T, Exception], alerts.AlertEvent | None]
    blameless: Callable[[Exception], bool]
    success_count: int = 0
    failure_count: int = 0
    # Items that a server refused on their own. They are to blame if another item succeeded.
    suspects: list[tuple[T, Exception]] = field(default_factory=list)

    def halve(self, items: Sequence[T]) -> list[R]:
        if not items:
            return []
        try:
            results = list(self.work(items))
        except Exception as error:
            self.failure_count += 1
            is_of_server = isinstance(error, UNAVAILABLE) and transactions.is_of_server(error)
            is_hopeless = not self.success_count and self.failure_count > _MAX_FAILURES
            if (is_of_server and is_hopeless) or self.blameless(error):
                raise
            if len(items) == 1:
                if is_of_server:
                    self.suspects.append((items[0], error))
                else:
                    self.blame(items[0], error)
                return []
        else:
            self.success_count += 1
            return results
        half = len(items) // 2
        return [*self.halve(items[:half]), *self.halve(items[half:])]

    def blame(self, item: T, error: Exception) -> None:
        alert = self.set_aside(item, error)
        if alert is not None:
            log.error("set_aside", subject=alert.subject, key=alert.key, exc_info=error)
            alerts.raise_event(alert)
