"""Set an item aside that makes its whole batch fail, so that it does not hold up the others."""

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

# A batch that a database refuses is tried so often within so many seconds before an item may be to
# blame. With the pauses of a daemon's loop this takes 3 to 6 seconds.
TRIES, _TRIES_SECONDS = 5, 60.0
# Failures of a walk in which nothing succeeds: then the server is to blame. An item alone is
# reached in as many steps as the batch can be halved.
_MAX_FAILURES = 14
_MAX_LOGGED = 10  # items of a batch that the database refuses
refusals: dict[int, list[float]] = defaultdict(list)  # error number → when it came (monotonic)


def is_unavailable(error: Exception) -> bool:
    """True if a server is unavailable: no item is to blame.

    A database that answers, and refuses the statement again and again, may do so because of one
    row: then this is False from the TRIES-th time on.
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
    """True if a server has not answered at all. Every other error may be an item's: for programs
    that come to the same items seldom, so that nobody counts how often they were refused."""
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
    """The results of `work`, which is all or nothing; when it raises, it is tried on each half.

    An item that fails on its own is given to `set_aside`. The alert that `set_aside` returns is
    raised, and logged with the error; None means that nobody needs to know. An error that is
    `blameless` is raised, so that the caller tries everything again later: the halves that were
    done by then must be repeatable. The same holds for errors of a server when no item succeeds,
    and for an item whose rows somebody else has locked, after the others are done.
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
    """The results of `work`, which may be repeated, for all items but those that the database
    refuses: these stay as they are, and are logged. Raises the first error if nothing is done."""
    errors: list[Exception] = []
    results: list[R] = []

    def leave(item: T, error: Exception) -> None:
        errors.append(error)
        if len(errors) <= _MAX_LOGGED:
            log.error("row_stays", row=str(item), **facts, exc_info=error)
        elif not results:  # it refuses everything
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
    # Items that a server has refused on their own: to blame if it has taken another one.
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
