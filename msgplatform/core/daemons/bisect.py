"""Set an item aside that makes its whole batch fail, so that the other items go on."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

import msgspec
from django.db.utils import OperationalError

from msgplatform.core import alerts, logging
from msgplatform.core.data import chunks, transactions
from msgplatform.core.data.engines.contract import IDLE_TRANSACTION_SECONDS, LOCK_WAIT_SECONDS
from msgplatform.core.errors import UNAVAILABLE

T = TypeVar("T")
R = TypeVar("R")

log = logging.get(__name__)

# An item may be to blame after this many refusals of its batch within these seconds. The tries take
# 3 to 6 seconds with the pauses of a daemon's loop.
TRIES, _TRIES_SECONDS = 5, 60.0
# The server is to blame after more than so many failures without a success: fewer halvings of a
# batch lead to a single item.
_MAX_FAILURES = 14
_MAX_LOGGED = 10  # items of a batch that the database refuses
refusals: dict[int, list[float]] = defaultdict(list)  # error number → its monotonic times

# An item with locked rows may be to blame after this many tries in a row, over at least these
# seconds. Together with the first wait for the lock, locks of a frozen program end in this time.
LOCK_TRIES, LOCK_SECONDS = 3, float(IDLE_TRANSACTION_SECONDS - LOCK_WAIT_SECONDS)
# A batch with a locked row is divided into this many parts, each of which waits a second for the
# lock: three waits find the row among 500. After the maximum the rest is left to the next call.
_LOCK_PARTS, _MAX_LOCK_WAITS = 8, 8
_MAX_LOCKED, _LOCKED_SECONDS = 10_000, 600.0  # locked items that are remembered, and for how long


class ItemsLocked(OperationalError):
    """Another transaction has locked rows of `items`; the other items are done. The error has the
    arguments of the first lock error."""

    def __init__(self, items: Sequence[Any], error: Exception) -> None:
        super().__init__(*error.args)
        self.items = items


class LockedItems:
    """The items whose rows were locked when they were tried last."""

    def __init__(self) -> None:
        # hash of an item's text → monotonic times of its first and last try, and their number
        self._tries: dict[int, tuple[float, float, int]] = {}

    def note(self, item: object) -> bool:
        """The item's rows are locked. True if the lock has outlived that of a frozen program."""
        now = time.monotonic()
        first_at, last_at, tries = self._tries.pop(hash(str(item)), (now, now, 0))
        if now - last_at > _LOCKED_SECONDS:
            first_at, tries = now, 0
        while len(self._tries) >= _MAX_LOCKED:
            del self._tries[next(iter(self._tries))]
        self._tries[hash(str(item))] = (first_at, now, tries + 1)
        return tries + 1 >= LOCK_TRIES and now - first_at >= LOCK_SECONDS

    def forget(self, item: object) -> None:
        if self._tries:
            self._tries.pop(hash(str(item)), None)

    def is_known(self, item: object) -> bool:
        return bool(self._tries) and hash(str(item)) in self._tries

    def last_try(self, item: object) -> float:
        """Monotonic seconds; 0 for an item that is not known."""
        return self._tries.get(hash(str(item)), (0.0, 0.0, 0))[1]

    def clear(self) -> None:
        self._tries.clear()


locked_items = LockedItems()


def is_unanswered(error: Exception) -> bool:
    """True if a server has not answered at all. Every other error may be of an item. For programs
    that see the same items too seldom to count refusals."""
    if not isinstance(error, UNAVAILABLE):
        return False
    code = transactions.error_code(error) if isinstance(error, OperationalError) else 0
    return not transactions.is_answer(code)


def is_unavailable(error: Exception) -> bool:
    """True if a server is unavailable, so that no item is to blame.

    A database that answers may refuse a statement again and again because of one row: the result is
    False from the TRIES-th refusal on, and for the lock of another transaction.
    """
    if not isinstance(error, UNAVAILABLE) or transactions.is_of_lock(error):
        return False
    if is_unanswered(error):
        return True
    code, now = transactions.error_code(error), time.monotonic()
    refused_at = [at for at in refusals[code] if now - at < _TRIES_SECONDS]
    refusals[code] = [*refused_at, now][-TRIES:]
    return len(refused_at) < TRIES


def isolate(
    items: Sequence[T],
    work: Callable[[Sequence[T]], Sequence[R]],
    set_aside: Callable[[T, Exception], alerts.AlertEvent | None],
    blameless: Callable[[Exception], bool] = is_unavailable,
    using: str = "default",
) -> list[R]:
    """The results of `work`, which is all or nothing. If `work` raises, it is tried on each half.

    `set_aside` gets an item that fails on its own. Its alert, if not None, is raised, and logged
    with the error. A `blameless` error is raised, so that the caller repeats all items later:
    halves that were done by then must be repeatable. Errors of a server are raised too if no item
    succeeds.

    A lock of another transaction in the database `using` is not waited for long. Items that need
    locked rows are tried after the others, raise ItemsLocked when these are done, and are set aside
    when the lock does not end.
    """
    walk = _Walk(work, set_aside, blameless, using)
    late_items = sorted(filter(locked_items.is_known, items), key=locked_items.last_try)
    with transactions.waiting_once():
        results = walk.divide([item for item in items if item not in late_items])
        for item in late_items:
            locked_count = len(walk.locked_pairs) + len(walk.untried_items)
            results += walk.divide([item], is_hasty=True)
            if len(walk.locked_pairs) + len(walk.untried_items) == locked_count:
                locked_items.forget(item)
    if walk.suspects and not walk.success_count:
        raise walk.suspects[0][1]
    if walk.locked_pairs and not walk.success_count:
        # Perhaps the whole table is locked: only items that were locked beside others are to blame.
        walk.untried_items += [
            item for item, _ in walk.locked_pairs if not locked_items.is_known(item)
        ]
        walk.locked_pairs = [pair for pair in walk.locked_pairs if locked_items.is_known(pair[0])]
    for item, error in walk.suspects:
        walk.blame(item, error)
    waiting_items = [item for item, _ in walk.locked_pairs if not locked_items.note(item)]
    for item, error in walk.locked_pairs:
        if item not in waiting_items:
            with transactions.hasty(using):
                walk.blame(item, error)
    if waiting_items or walk.untried_items:
        raise ItemsLocked([*waiting_items, *walk.untried_items], walk.lock_errors[0])
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


class _Walk(msgspec.Struct, Generic[T, R]):
    work: Callable[[Sequence[T]], Sequence[R]]
    set_aside: Callable[[T, Exception], alerts.AlertEvent | None]
    blameless: Callable[[Exception], bool]
    using: str
    success_count: int = 0
    failure_count: int = 0
    # Items that a server refused on their own, and items whose rows are locked. They are to blame
    # if another item succeeded.
    suspects: list[tuple[T, Exception]] = msgspec.field(default_factory=list)
    locked_pairs: list[tuple[T, Exception]] = msgspec.field(default_factory=list)
    untried_items: list[T] = msgspec.field(default_factory=list)
    lock_errors: list[Exception] = msgspec.field(default_factory=list)

    def divide(self, items: Sequence[T], is_hasty: bool = False) -> list[R]:
        """The results of `work`, tried on all items, then on each half or smaller part. `is_hasty`:
        a lock is waited for a second."""
        if not items:
            return []
        if len(self.lock_errors) >= _MAX_LOCK_WAITS and is_hasty:
            self.untried_items += items
            return []
        try:
            with transactions.hasty(self.using) if is_hasty else nullcontext():
                results = list(self.work(items))
        except Exception as error:
            self.failure_count += 1
            is_of_server = isinstance(error, UNAVAILABLE) and transactions.is_of_server(error)
            is_hopeless = not self.success_count and self.failure_count > _MAX_FAILURES
            if (is_of_server and is_hopeless) or self.blameless(error):
                raise
            is_locked = is_of_server and transactions.is_of_lock(error)
            self.lock_errors += [error] if is_locked else []
            if len(items) == 1:
                if is_locked:
                    self.locked_pairs.append((items[0], error))
                elif is_of_server:
                    self.suspects.append((items[0], error))
                else:
                    self.blame(items[0], error)
                return []
        else:
            self.success_count += 1
            return results
        is_hasty = is_hasty or is_locked
        parts = chunks(items, -(-len(items) // (_LOCK_PARTS if is_hasty else 2)))
        return [result for part in parts for result in self.divide(part, is_hasty)]

    def blame(self, item: T, error: Exception) -> None:
        alert = self.set_aside(item, error)
        if alert is not None:
            log.error("set_aside", subject=alert.subject, key=alert.key, exc_info=error)
            alerts.raise_event(alert)
