"""Ids of hot tables: `tick << 15 | node << 8 | bucket`, a positive 63-bit number.

- tick: 48 bits, 1/128 ms since 2025-01-01 UTC (until 2094): ids are ordered by time, and reserving
  n of them is adding n.
- node: 7 bits, leased to one allocator by `msgplatform.core.data.id_nodes`, so that no two
  processes make the same id.
- bucket: 8 bits, from the business system and its idempotency key. Children take their parent's,
  so that `id & (n - 1)` names one shard for a message and everything that belongs to it. With n
  cells the lowest log2(n) of these bits are the number of the cell that made the id: node numbers
  are leased in each cell's own database, and ticks of two cells may be equal. The bucket of an
  idempotency row keeps all its bits, so that a key is still known when CELL is set or changed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zlib import crc32

from django.db import connections

from msgplatform.core import cells, logging
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.data import id_nodes, transactions
from msgplatform.core.errors import OutcomeUnknown, Unavailable

log = logging.get(__name__)

NODE_TABLE = id_nodes.NODE_TABLE
BUCKET_BITS = 8
NODE_SHIFT = BUCKET_BITS
TICK_SHIFT = BUCKET_BITS + id_nodes.NODE_BITS
BUCKETS = 1 << BUCKET_BITS
TICKS_PER_SECOND = id_nodes.TICKS_PER_SECOND
EPOCH = id_nodes.EPOCH
_EPOCH_SECONDS = EPOCH.timestamp()
# The ticks of so many seconds are reserved in the database ahead of use: an allocator in use writes
# once in that time, and a killed one leaves a gap of at most this size.
AHEAD_SECONDS = 5
# The same for a process that lives long (`keep_ahead`): it can go on for this long without the
# database. With much more, programs that are killed again and again would make ids of the future: a
# process that takes one of the NODES over begins where the reserve of the last holder ended.
KEPT_AHEAD_SECONDS = 300
# A thread looks at the reserve this often, and renews it, and the lease, when this much is used.
_LOOK_SECONDS, _USED_SECONDS = 10.0, 20.0
# One thread asks the database; how long the others wait for its reserve.
_WAIT_SECONDS = 5.0


# -- what an id says -----------------------------------------------------------------------------
def bucket(biz_id: int, key: str | None) -> int:
    """0 … 255 from the business system and its idempotency key; random without a key."""
    if key is None:
        return random.getrandbits(BUCKET_BITS)
    return crc32(f"{biz_id}:{key}".encode()) & (BUCKETS - 1)


def bucket_of(id: int) -> int:
    """The bucket in an id."""
    return id & (BUCKETS - 1)


def cell_bits() -> tuple[int, int]:
    """The bits of a bucket that an id keeps, and the bits that name the cell."""
    cell = cells.own()
    return BUCKETS - cell.count, cell.number


def datetime_of(id: int) -> datetime:
    """When the id was made (UTC, microseconds); `first_id_at` is the inverse."""
    # 125/16 microseconds a tick, in whole numbers.
    return EPOCH + timedelta(microseconds=(id >> TICK_SHIFT) * 125 // 16)


def first_id_at(moment: datetime) -> int:
    """The smallest id that could be made at `moment` (aware) or later, on any node; 0 before the
    epoch. `id >= first_id_at(t)` exactly when `datetime_of(id) >= t`.
    """
    if moment.tzinfo is None:
        raise ValueError("a time without a zone could be any of 24 hours")
    microseconds = (moment - EPOCH) // timedelta(microseconds=1)
    return max(0, -(-microseconds * 16 // 125)) << TICK_SHIFT


# -- making them ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Block:
    """`count` ids that nobody else gets: ticks `base` … `base + count - 1` on `node`.

    One tick more is reserved behind them, so that SQL which adds a ROW_NUMBER() (it counts from
    1) to `base` without taking 1 off makes no id twice either.
    """

    base: int
    node: int
    count: int

    def ids(self, buckets: Sequence[int]) -> list[int]:
        """One id for each bucket, ascending; only the low 8 bits count, so a parent's id will do.
        The lowest of them give way to the cell.

        Raises ValueError when there are more buckets than reserved ids.
        """
        if len(buckets) > self.count:
            raise ValueError(f"{len(buckets)} ids wanted, {self.count} reserved")
        bits, cell = cell_bits()
        low = self.node << NODE_SHIFT | cell
        return [
            tick << TICK_SHIFT | low | number & bits
            for tick, number in enumerate(buckets, self.base)
        ]


class Allocator:
    """Makes ids for one process. Thread-safe; a forked child takes a node of its own.

    Every tick that it gives out lies below a ceiling that was committed to the node's row
    before, and whoever takes the node over starts above the ceiling. So a process that was
    stopped for an hour and goes on, one that was killed and a clock that was set back cannot
    make an id twice. `clock` gives seconds since 1970; one that is more than a minute behind the
    database's when a node is taken is not used.
    """

    def __init__(
        self,
        using: str = "default",
        clock: Callable[[], float] = time.time,
        lease: float = id_nodes.LEASE_SECONDS,
        ahead: float = AHEAD_SECONDS,
    ) -> None:
        self._using, self._clock, self._lease = using, clock, lease
        self._ahead = round(ahead * TICKS_PER_SECOND)
        self._hold: id_nodes.Hold | None = None
        self._owner: tuple[int, str] | None = None
        self._begin()
        restart = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (method := restart()) and method())

    def _begin(self) -> None:
        """The state of a new process: another thread may have held a lock when it was forked."""
        # `_lock` guards `_hold`, and is not held while the database is asked. `_asking` is held by
        # the one thread that asks, and is always taken first.
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._keeper: ThreadLoop | None = None

    def reserve(self, n: int) -> Block:
        """`n` ids of this process, later than all that it made before.

        Call it before `transaction.atomic()`, or it raises RuntimeError: a rollback would undo the
        record of the ids that were given out. It asks the database only when the reserve is used
        up. Then it raises Unavailable when all nodes are taken or the database does not answer, and
        OperationalError when there is no connection.
        """
        if n < 1:
            raise ValueError(f"at least one id must be reserved, not {n}")
        if transactions.is_in_transaction(self._using):
            raise RuntimeError("reserve ids before transaction.atomic(), not inside it")
        if block := self._give(n):
            return block
        with self._one_asks():
            while not (block := self._give(n)):
                self._raise_ceiling(n + self._ahead)
        if keeper := self._keeper:
            keeper.wake()  # what was reserved here lasts for seconds only
        return block

    def new(self, bucket: int) -> int:
        """One id with this bucket; otherwise like `reserve`."""
        return self.reserve(1).ids((bucket,))[0]

    def keep_ahead(self, seconds: float = KEPT_AHEAD_SECONDS, *, at_once: bool = False) -> None:
        """From now on a thread renews the reserve long before it is used up, also while no ids are
        made. The database may be unavailable, or hang, for `seconds`, and ids are still made.

        That begins with the first id of this process, or `at_once` for one that must make its first
        id without the database."""
        if self._keeper is None:
            ticks = round(seconds * TICKS_PER_SECOND)
            keeper = ThreadLoop("ids", lambda: self._renew(ticks, at_once), every=_LOOK_SECONDS)
            self._keeper = keeper
            keeper.start()

    def release(self) -> None:
        """Give the node back with the last tick that was used, if there is one, and stop keeping
        ids ahead."""
        if self._keeper:
            self._keeper.stop()
            self._keeper = None
        with self._one_asks():
            with self._lock:
                hold, self._hold = self._current(), None
            if hold:
                id_nodes.release(hold, self._using)

    def _give(self, n: int) -> Block | None:
        """Ids from the reserve; None when too few are left."""
        with self._lock:
            hold = self._current()
            if hold is None:
                return None
            first = max(hold.last + 1, self._now(hold))
            if first + n > hold.ceiling:
                return None
            hold.last = first + n
            return Block(first, hold.node, n)

    @contextlib.contextmanager
    def _one_asks(self) -> Iterator[None]:
        if not self._asking.acquire(timeout=_WAIT_SECONDS):
            raise Unavailable("the database does not answer, and the reserve of ids is used up")
        try:
            yield
        except OutcomeUnknown as error:
            # Only the ceiling is unknown. Too high a ceiling costs nothing, and no caller got an
            # id.
            log.warning("ids_not_reserved", why=str(error)[:200])
            raise Unavailable("the database does not answer: no ids could be reserved") from error
        finally:
            self._asking.release()

    def _raise_ceiling(self, ticks: int) -> None:
        """Reserve so many ticks, on our node or on another one."""
        hold = self._current()
        if hold:
            # Never lower: what is in memory is given out meanwhile.
            ceiling = max(hold.ceiling, max(hold.last + 1, self._now(hold)) + ticks)
            if id_nodes.extend(hold, ceiling, self._lease, self._using):
                return
        hold = id_nodes.acquire(self._now(), ticks + 1, self._lease, self._using)
        with self._lock:
            self._hold, self._owner = hold, self._identity()

    def _renew(self, ahead: int, at_once: bool) -> None:
        """One turn of the keeper's thread. A process that has made no id yet needs no node, unless
        it asked for one `at_once`."""
        with self._one_asks():
            hold = self._current()
            used = _USED_SECONDS * TICKS_PER_SECOND
            reserve_ticks = hold.ceiling - max(hold.last, self._now(hold)) if hold else 0
            if (hold or at_once) and reserve_ticks < ahead - used:
                self._raise_ceiling(ahead)
                connections[self._using].close()

    def _now(self, hold: id_nodes.Hold | None = None) -> int:
        now = int((self._clock() - _EPOCH_SECONDS) * TICKS_PER_SECOND)
        return max(now, hold.earliest()) if hold else now

    def _current(self) -> id_nodes.Hold | None:
        """The node of this process in this database; None for one that a forked child inherited,
        or that belongs to another database."""
        return self._hold if self._owner == self._identity() else None

    def _identity(self) -> tuple[int, str]:
        return os.getpid(), str(connections[self._using].settings_dict["NAME"])


_default = Allocator()
reserve = _default.reserve
new = _default.new
keep_ahead = _default.keep_ahead
release = _default.release


@atexit.register
def _release() -> None:
    """Free the node at once; if that fails, it is free when its lease is over."""
    with contextlib.suppress(Exception):
        _default.release()
