"""Ids of hot tables: `tick << 15 | node << 8 | bucket`, a positive 63-bit number.

- tick: 48 bits, 1/128 ms since 2025-01-01 UTC (until 2094): ids are ordered by time, and reserving
  n of them is adding n.
- node: 7 bits, leased to one allocator by `msgplatform.core.data.id_nodes`, so that no two
  processes make the same id.
- bucket: 8 bits, from the business system and its idempotency key. Children take their parent's, so
  that `id & (n - 1)` names one shard for a message and everything that belongs to it. With n cells
  the lowest log2(n) of these bits are the number of the cell that made the id: node numbers are
  leased in each cell's own database, and ticks of two cells may be equal. The bucket of an
  idempotency row keeps all its bits, so that keys remain known after a change of CELL.
"""

import atexit
import contextlib
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from zlib import crc32

import msgspec
from django.db import connections

from msgplatform.core import cells, logging
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.data import id_nodes, transactions
from msgplatform.core.errors import OutcomeUnknown, Unavailable

log = logging.get(__name__)

BUCKET_BITS = 8
NODE_SHIFT = BUCKET_BITS
TICK_SHIFT = BUCKET_BITS + id_nodes.NODE_BITS
BUCKETS = 1 << BUCKET_BITS
TICKS_PER_SECOND = id_nodes.TICKS_PER_SECOND
EPOCH = id_nodes.EPOCH
_EPOCH_SECONDS = EPOCH.timestamp()
# The seconds of ticks that are reserved in the database ahead of use: an allocator in use writes
# once in that time, and a killed allocator leaves at most this gap.
AHEAD_SECONDS = 5
# The same for a process that lives long (`keep_ahead`), which can go on for this long without the
# database. With a much larger reserve, programs that are killed again and again would make ids of
# the future: the next holder of a node begins where the last holder's reserve ended.
KEPT_AHEAD_SECONDS = 300
# A thread looks at the reserve this often, and renews reserve and lease after this much use.
_LOOK_SECONDS, _USED_SECONDS = 10.0, 20.0
# Seconds that threads wait for the one thread that asks the database.
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
    """The time at which the id was made (UTC, microseconds); `first_id_at` is the inverse."""
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
class Block(msgspec.Struct, frozen=True):
    """`count` reserved ids: ticks `base` … `base + count - 1` on `node`.

    One more tick is reserved after them, so that SQL which adds ROW_NUMBER() (from 1) to `base`
    without subtracting 1 makes no id twice either.
    """

    base: int
    node: int
    count: int

    def ids(self, buckets: Sequence[int]) -> list[int]:
        """An id for each bucket, ascending. Only a bucket's low 8 bits count, so that a parent's id
        may be given; the lowest bits give way to the cell.

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

    Every tick is below a ceiling that was committed to the node's row before, and the next holder
    of the node starts above the ceiling. So no id is made twice by a process that was stopped for
    an hour and goes on, after a kill, or after a clock was set back. `clock` gives seconds since
    1970. If it is more than a minute behind the database's clock when a node is taken, the clock is
    not used.
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
        """Set the state of a new process: at the fork another thread may have held a lock."""
        # `_lock` guards `_hold`, and is free while the database is asked. The one thread that asks
        # holds `_asking`, which is always taken first.
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._keeper: ThreadLoop | None = None

    def reserve(self, n: int) -> Block:
        """`n` ids, later than all former ids of this process.

        Call it before `transaction.atomic()`, or RuntimeError is raised: a rollback would undo the
        record of the given ids. The call asks the database only if the reserve is empty. It raises
        Unavailable if all nodes are taken or the database does not answer, and OperationalError
        without a connection.
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
        """An id with this bucket; otherwise like `reserve`."""
        return self.reserve(1).ids((bucket,))[0]

    def keep_ahead(self, seconds: float = KEPT_AHEAD_SECONDS, *, at_once: bool = False) -> None:
        """Start a thread that renews the reserve long before it is used up, also while no ids are
        made. Ids can be made for `seconds` while the database is unavailable or hangs.

        The thread begins with the first id of this process, or `at_once` if the first id must not
        need the database."""
        if self._keeper is None:
            ticks = round(seconds * TICKS_PER_SECOND)
            keeper = ThreadLoop("ids", lambda: self._renew(ticks, at_once), every=_LOOK_SECONDS)
            self._keeper = keeper
            keeper.start()

    def release(self) -> None:
        """Give the node back with the last used tick, if there is a node, and stop keeping ids
        ahead."""
        if self._keeper:
            self._keeper.stop()
            self._keeper = None
        with self._one_asks():
            with self._lock:
                hold, self._hold = self._current(), None
            if hold:
                id_nodes.release(hold, self._using)

    def _give(self, n: int) -> Block | None:
        """Ids from the reserve; None if too few are left."""
        with self._lock:
            hold = self._current()
            if hold is None:
                return None
            first_tick = max(hold.last + 1, self._now(hold))
            if first_tick + n > hold.ceiling:
                return None
            hold.last = first_tick + n
            return Block(first_tick, hold.node, n)

    @contextlib.contextmanager
    def _one_asks(self) -> Iterator[None]:
        if not self._asking.acquire(timeout=_WAIT_SECONDS):
            raise Unavailable("the database does not answer, and the reserve of ids is used up")
        try:
            yield
        except OutcomeUnknown as error:
            # Only the ceiling is unknown: no caller got an id, and too high a ceiling costs
            # nothing.
            log.warning("ids_not_reserved", why=str(error)[:200])
            raise Unavailable("the database does not answer: no ids could be reserved") from error
        finally:
            self._asking.release()

    def _raise_ceiling(self, ticks: int) -> None:
        """Reserve `ticks`, on the held node or on another one."""
        hold = self._current()
        if hold:
            # The ceiling never falls, because other threads give out ids from memory meanwhile.
            ceiling = max(hold.ceiling, max(hold.last + 1, self._now(hold)) + ticks)
            if id_nodes.extend(hold, ceiling, self._lease, self._using):
                return
        hold = id_nodes.acquire(self._now(), ticks + 1, self._lease, self._using)
        with self._lock:
            self._hold, self._owner = hold, self._identity()

    def _renew(self, ahead: int, at_once: bool) -> None:
        """One turn of the keeper's thread. A process without ids needs no node, unless it asked for
        ids `at_once`."""
        with self._one_asks():
            hold = self._current()
            used_ticks = _USED_SECONDS * TICKS_PER_SECOND
            reserve_ticks = hold.ceiling - max(hold.last, self._now(hold)) if hold else 0
            if (hold or at_once) and reserve_ticks < ahead - used_ticks:
                self._raise_ceiling(ahead)
                connections[self._using].close()

    def _now(self, hold: id_nodes.Hold | None = None) -> int:
        now = int((self._clock() - _EPOCH_SECONDS) * TICKS_PER_SECOND)
        return max(now, hold.earliest()) if hold else now

    def _current(self) -> id_nodes.Hold | None:
        """The node of this process in this database; None if a forked child inherited the node, or
        the node belongs to another database."""
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
    """Free the node at once. If that fails, the lease frees the node when it ends."""
    with contextlib.suppress(Exception):
        _default.release()
