"""Group commit: concurrent callers of one process share a transaction.

There is no artificial wait. The next group gathers while a group commits, so that a lone caller
waits only for its own commit, and groups grow under load.

An item's stages:

    WAITING ── taken into a group ──▶ STARTED ── committed or failed ──▶ answered
    WAITING ── its timeout is over ──▶ WITHDRAWN: nothing was stored (Unavailable)
    STARTED ── its timeout is over ──▶ its caller gets OutcomeUnknown; the commit goes on

`_wakeup` guards the queue, the stages and `_started`. Only the committing thread commits.
"""

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Generic, TypeVar

from django.db import close_old_connections, connections
from django.db.utils import InterfaceError, InternalError, OperationalError, ProgrammingError

from msgplatform.core import logging
from msgplatform.core.data import transactions
from msgplatform.core.errors import OutcomeUnknown, Temporary, Unavailable
from msgplatform.core.intake.verdicts import Verdict, judge_each

log = logging.get(__name__)

T = TypeVar("T")
R = TypeVar("R")
Body = TypeVar("Body")

# Errors of the database itself: no item is to blame, so halving the group would not help.
_DATABASE = (OperationalError, InterfaceError, InternalError, ProgrammingError)

_WATCH_SECONDS = 0.25
_TOO_SLOW = "the storage is too slow at the moment; nothing was stored"
_NO_ANSWER = "no answer in time; repeat it with the same idempotency key"


class _Stage(Enum):
    WAITING = auto()
    STARTED = auto()
    WITHDRAWN = auto()


class _Slot(Generic[T, R]):
    """The item of a caller, and its result or error after `answered` can be acquired."""

    __slots__ = ("answered", "error", "item", "result", "stage")

    def __init__(self, item: T) -> None:
        self.item = item
        self.stage = _Stage.WAITING
        self.result: R | None = None
        self.error: Exception | None = None
        self.answered = threading.Lock()
        self.answered.acquire()

    def withdraw(self) -> None:
        """The slot stays in the queue while the committing thread hangs, its item does not."""
        self.stage = _Stage.WITHDRAWN
        del self.item

    def answer(self, result: R | None, error: Exception | None = None) -> None:
        self.result, self.error = result, error
        self.answered.release()


class _LaterSlot(_Slot[T, R]):
    """An item whose caller does not wait: `call` gets the result or the error, once."""

    __slots__ = ("calls", "due")

    def __init__(self, item: T, call: Callable[[R | None, Exception | None], None], due: float):
        self.item = item
        self.stage = _Stage.WAITING
        self.due = due
        self.calls = [call]

    def answer(self, result: R | None, error: Exception | None = None) -> None:
        try:
            call = self.calls.pop()  # atomic: the watcher and the committer may come together
        except IndexError:
            return
        try:
            call(result, error)
        except Exception:
            log.exception("group_commit_answer_failed")


class GroupCommit(Generic[T, R]):
    """`submit(item)` from many threads; `commit(items)` runs in one thread of the process.

    `commit` gets at most `max_items` and returns one result per item, in order. It must be all or
    nothing, and is called outside of transactions. A data error (neither of the database nor
    `Temporary`) halves the group down to the item to blame, and only the caller of this item gets
    the error.

    The thread starts with the first item, after a fork too, and has the only database connection. A
    caller waits at most `timeout` seconds, and at most `max_queue` callers wait.
    """

    def __init__(
        self,
        commit: Callable[[list[T]], Sequence[R]],
        *,
        max_items: int = 500,
        timeout: float = 10.0,
        max_queue: int = 10_000,
        name: str = "group-commit",
    ) -> None:
        self._commit, self._max_items = commit, max_items
        self._timeout, self._max_queue, self._name = timeout, max_queue, name
        self._reset()
        restart = weakref.WeakMethod(self._reset)
        os.register_at_fork(after_in_child=lambda: (method := restart()) and method())

    def submit(self, item: T) -> R:
        """Wait until the item's group has committed, and return its result.

        Raises the item's own error, or `Unavailable`: nothing was stored and nothing will be (the
        queue is full or closed, the database is unavailable, or the item's group did not start
        within the timeout; the item is then withdrawn, because its caller has got an error and must
        not find it stored later). `OutcomeUnknown`: the group had started, and its result could not
        be learnt.
        """
        slot: _Slot[T, R] = _Slot(item)
        self._put(slot)
        if not slot.answered.acquire(timeout=self._timeout):
            with self._wakeup:
                if slot.stage is _Stage.WAITING:
                    slot.withdraw()
                    raise Unavailable(_TOO_SLOW)
            # The answer may have come between the timeout and this line.
            if not slot.answered.acquire(blocking=False):
                raise OutcomeUnknown(_NO_ANSWER)
        if slot.error is not None:
            raise slot.error
        return slot.result  # type: ignore[return-value]  # R may itself be None

    def submit_later(self, item: T, call: Callable[[R | None, Exception | None], None]) -> None:
        """`submit` without a wait: another thread calls `call(result, error)` once.

        `call` must be quick, since the rest of the group waits for it. Raises Unavailable if the
        item is not taken, without calling `call`.
        """
        self._put(_LaterSlot(item, call, time.monotonic() + self._timeout))
        if not self._later.is_set():
            self._later.set()

    def close(self, timeout: float = 10.0) -> bool:
        """Refuse new items and commit waiting items. True if all were committed within
        `timeout`."""
        with self._wakeup:
            self._closing = True
            self._wakeup.notify()
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def _reset(self) -> None:
        """Set the state of a new process: a forked child has neither the thread nor its callers."""
        self._queue: deque[_Slot[T, R]] = deque()
        self._wakeup = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None
        self._closing = False
        self._started: list[_Slot[T, R]] = []  # the present group
        self._later = threading.Event()  # set while a `call` is outstanding
        self._watcher: threading.Thread | None = None

    def _put(self, slot: _Slot[T, R]) -> None:
        with self._wakeup:
            if self._closing:
                raise Unavailable("this process is shutting down; send it again")
            if len(self._queue) >= self._max_queue:
                raise Unavailable("too many requests are waiting; send it again later")
            # Start the thread before queueing the item, or the item may get no answer. A thread
            # that the system refuses (RuntimeError) is not kept, so that the next item tries again.
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread
            if self._watcher is None and isinstance(slot, _LaterSlot):
                name = f"{self._name}-watch"
                watcher = threading.Thread(target=self._watch, name=name, daemon=True)
                watcher.start()
                self._watcher = watcher
            self._queue.append(slot)
            self._wakeup.notify()

    # -- in the watching thread ----------------------------------------------------------------
    def _watch(self) -> None:
        """Answer `submit_later` items whose timeout is over, as `submit` does for its caller."""
        while self._later.wait():
            time.sleep(_WATCH_SECONDS)
            now = time.monotonic()
            with self._wakeup:
                late = [s for s in self._queue if isinstance(s, _LaterSlot) and s.due <= now]
                late = [slot for slot in late if slot.stage is _Stage.WAITING]
                for slot in late:
                    slot.withdraw()
                no_answer = [s for s in self._started if isinstance(s, _LaterSlot) and s.due <= now]
                if not self._queue and not self._started:
                    self._later.clear()
            _fail(late, Unavailable, _TOO_SLOW)
            _fail(no_answer, OutcomeUnknown, _NO_ANSWER)

    # -- in the committing thread --------------------------------------------------------------
    def _run(self) -> None:
        try:
            while group := self._next_group():
                close_old_connections()
                self._process(group)
                self._started = []
                close_old_connections()
        finally:
            connections.close_all()

    def _next_group(self) -> list[_Slot[T, R]]:
        """The waiting items, at most `max_items`; empty if closed and no item is left."""
        group: list[_Slot[T, R]] = []
        with self._wakeup:
            while not group:
                while not self._queue:
                    if self._closing:
                        return []
                    self._wakeup.wait()
                while self._queue and len(group) < self._max_items:
                    slot = self._queue.popleft()
                    if slot.stage is _Stage.WAITING:
                        slot.stage = _Stage.STARTED
                        group.append(slot)
            self._started = group
        return group

    def _process(self, group: list[_Slot[T, R]]) -> None:
        try:
            results = self._commit([slot.item for slot in group])
        except Temporary as error:
            _fail(group, type(error), error)
        except _DATABASE as error:
            # A warning only for a server that is away, which comes back by itself.
            report = log.warning if transactions.is_away(error) else log.error
            report("group_commit_failed", items=len(group), why=str(error)[:200])
            # The error's text names servers and users, so callers do not get it.
            nothing = transactions.nothing_happened(error)
            _fail(group, Unavailable if nothing else OutcomeUnknown, "")
        except Exception as error:  # noqa: BLE001 - the item's own caller gets it
            if len(group) == 1:
                group[0].answer(None, error)
                return
            middle = len(group) // 2
            self._process(group[:middle])
            self._process(group[middle:])
        else:
            if len(results) != len(group):
                log.error("group_commit_miscounted", items=len(group), results=len(results))
                _fail(group, OutcomeUnknown, "stored, but the answers were lost")
                return
            for slot, result in zip(group, results, strict=True):
                slot.answer(result)


def _fail(group: Sequence[_Slot[T, R]], kind: type[Temporary], why: object) -> None:
    """Every caller gets its own error, because an error raised in two threads mixes tracebacks."""
    for slot in group:
        slot.answer(None, kind(str(why)))


class Intake(Generic[Body, T]):
    """The ways in which a flow takes in a body. `read` checks it and makes an item of it, or raises
    InvalidInput; `store` stores items in one transaction."""

    def __init__(
        self, read: Callable[[Body], T], store: Callable[[Sequence[T]], list[Verdict]]
    ) -> None:
        self._read, self._store = read, store
        self._committer: GroupCommit[T, Verdict] = GroupCommit(store)

    def add_many(self, bodies: Sequence[Body]) -> list[Verdict]:
        """Store items in one transaction; the verdicts come in the same order.

        Must not run inside a transaction of the caller: an answer given before the caller's commit
        would not be durable. Raises OperationalError when the database is unavailable.
        """
        return judge_each(bodies, self._read, self._store)

    def add(self, body: Body) -> Verdict:
        """Store one item. Items that arrive in this process at the same time share the transaction.

        Raises InvalidInput, Unavailable (nothing happened) or OutcomeUnknown (repeat with the key).
        """
        return self._committer.submit(self._read(body))

    def add_later(
        self, body: Body, call: Callable[[Verdict | None, Exception | None], None]
    ) -> None:
        """Like `add`, but `call` gets the verdict or the error, in another thread.

        If the body itself is wrong, InvalidInput is raised here and `call` is not called.
        """
        self._committer.submit_later(self._read(body), call)
