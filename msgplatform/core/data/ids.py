"""Ids of hot tables: `tick << 15 | node << 8 | bucket`, a positive 63-bit number.

- tick: 48 bits, 1/128 ms since 2025-01-01 UTC (until 2094): ids are ordered by time, and reserving
  n of them is adding n.
- node: 7 bits, leased to one allocator by `msgplatform.core.data.id_nodes`, so that no two
  processes make the same id.
- bucket: 8 bits, from the business system and its idempotency key. Children take their parent's,
  so that `id & (n - 1)` names one shard for a message and everything that belongs to it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zlib import crc32

from django.db import connections

from msgplatform.core.data import id_nodes, sql

NODE_TABLE = id_nodes.NODE_TABLE
BUCKET_BITS = 8
NODE_SHIFT = BUCKET_BITS
TICK_SHIFT = BUCKET_BITS + id_nodes.NODE_BITS
BUCKETS = 1 << BUCKET_BITS
TICKS_PER_SECOND = id_nodes.TICKS_PER_SECOND
EPOCH = datetime(2025, 1, 1, tzinfo=UTC)
_EPOCH_SECONDS = EPOCH.timestamp()
# Ticks kept in reserve in the database before they are used: an allocator in use writes once in
# this many seconds, and a killed one leaves at most as large a gap.
AHEAD_SECONDS = 5


# -- what an id says -----------------------------------------------------------------------------
def bucket(biz_id: int, key: str | None) -> int:
    """0 … 255 from the business system and its idempotency key; random without a key."""
    if key is None:
        return random.getrandbits(BUCKET_BITS)
    return crc32(f"{biz_id}:{key}".encode()) & (BUCKETS - 1)


def bucket_of(id: int) -> int:
    """The bucket in an id."""
    return id & (BUCKETS - 1)


def shard(id: int, n: int) -> int:
    """Which of `n` shards holds the id and all that shares its bucket; n is 1, 2, 4, … 256."""
    if not 1 <= n <= BUCKETS or n & (n - 1):
        raise ValueError(f"the number of shards must be a power of two up to {BUCKETS}, not {n}")
    return id & (n - 1)


def datetime_of(id: int) -> datetime:
    """When the id was made (UTC, microseconds); see `first_id_at` for the way back."""
    # 125/16 microseconds a tick, in whole numbers.
    return EPOCH + timedelta(microseconds=(id >> TICK_SHIFT) * 125 // 16)


def first_id_at(moment: datetime) -> int:
    """The smallest id that could be made at `moment` (aware) or later; 0 before the epoch.

    `id >= first_id_at(t)` exactly when `datetime_of(id) >= t`, and nothing is lost by asking so
    for rows on any node.
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

        Raises ValueError when there are more buckets than reserved ids.
        """
        if len(buckets) > self.count:
            raise ValueError(f"{len(buckets)} ids wanted, {self.count} reserved")
        node = self.node << NODE_SHIFT
        return [
            tick << TICK_SHIFT | node | number & (BUCKETS - 1)
            for tick, number in enumerate(buckets, self.base)
        ]

    def sql(self, parent: str, order_by: str = "") -> str:
        """The SQL expression that makes one id for each row of an INSERT … SELECT.

        `parent` is a column or expression whose low 8 bits are the bucket. The SELECT must not
        yield more than `count` rows.
        """
        over = f"ORDER BY {order_by}" if order_by else ""
        return (
            f"((({self.base - 1} + ROW_NUMBER() OVER ({over})) << {TICK_SHIFT})"
            f" | {self.node << NODE_SHIFT} | ({parent} & {BUCKETS - 1}))"
        )


class Allocator:
    """Makes ids for one process. Thread-safe; a forked child takes a node of its own.

    Every tick that it gives out lies below a ceiling that was committed to the node's row
    before, and whoever takes the node over starts above the ceiling. So a process that was
    stopped for an hour and goes on, one that was killed and a clock that was set back cannot
    make an id twice. `clock` gives seconds since 1970.
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
        self._lock = threading.Lock()
        self._hold: id_nodes.Hold | None = None
        self._owner: tuple[int, str] | None = None
        again = weakref.WeakMethod(self._after_fork)
        os.register_at_fork(after_in_child=lambda: (method := again()) and method())

    def reserve(self, n: int) -> Block:
        """`n` ids of one process, later than all it made before.

        Call it before `transaction.atomic()`: what a rollback undoes must not be the record of
        what was given out. RuntimeError says so inside one, always, not only when the record is
        due. Raises Unavailable when all nodes are taken, OperationalError when the database is
        away.
        """
        if n < 1:
            raise ValueError(f"at least one id must be reserved, not {n}")
        if sql.in_transaction(self._using):
            raise RuntimeError("reserve ids before transaction.atomic(), not inside it")
        with self._lock:
            now = self._now()
            hold = self._current()
            if hold:
                end = max(hold.last + 1, now) + n
                if end > hold.ceiling and not id_nodes.extend(
                    hold, end + self._ahead, self._lease, self._using
                ):
                    hold = None
            if hold is None:
                hold = id_nodes.acquire(now, n + 1 + self._ahead, self._lease, self._using)
                self._owner = self._identity()
            first = max(hold.last + 1, now)
            hold.last = first + n
            self._hold = hold
            return Block(first, hold.node, n)

    def new(self, bucket: int) -> int:
        """One id with this bucket; otherwise like `reserve`."""
        return self.reserve(1).ids((bucket,))[0]

    def release(self) -> None:
        """Give the node back with the last tick that was used; nothing happens without one."""
        with self._lock:
            hold, self._hold = self._current(), None
            if hold:
                id_nodes.release(hold, self._using)

    def _now(self) -> int:
        return int((self._clock() - _EPOCH_SECONDS) * TICKS_PER_SECOND)

    def _current(self) -> id_nodes.Hold | None:
        """The node of this process in this database: not what a fork or another one left."""
        return self._hold if self._owner == self._identity() else None

    def _identity(self) -> tuple[int, str]:
        return os.getpid(), str(connections[self._using].settings_dict["NAME"])

    def _after_fork(self) -> None:
        # Another thread may have held it when the process forked.
        self._lock = threading.Lock()


_default = Allocator()
reserve = _default.reserve
new = _default.new
release = _default.release


@atexit.register
def _release() -> None:
    """A free node at once instead of after its lease; what goes wrong here costs nothing."""
    with contextlib.suppress(Exception):
        _default.release()
