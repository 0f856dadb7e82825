"""Node numbers for ids: rows of a table, leased to one allocator each.

A row's `last_tick` is a ceiling: the holder gives out no tick above the ceiling, and the next
holder starts above it. The ceiling alone keeps ids unique; the lease only says when a node may be
taken over. Leases use the database's clock.

    never used ── acquire ──▶ held ── release ──▶ free, last_tick = the last tick used
                              held ── extend ──▶ held, with a higher ceiling and a new lease
                              held ── the lease is over, acquire ──▶ held by another allocator,
                                      which starts above the old ceiling
"""

import random
import time
import uuid
from datetime import UTC, datetime
from functools import partial

import msgspec
from django.db import connections

from msgplatform.core import logging
from msgplatform.core.data import cell_record, sql, transactions
from msgplatform.core.errors import Unavailable

log = logging.get(__name__)

NODE_TABLE = "id_node"
NODE_BITS = 7
NODES = 1 << NODE_BITS
TICKS_PER_SECOND = 128_000
EPOCH = datetime(2025, 1, 1, tzinfo=UTC)
LEASE_SECONDS = 60
# Ids this far ahead of the clock are logged, because a clock was wrong once. A killed process
# leaves a smaller reserve (`ids.KEPT_AHEAD_SECONDS`).
_FAR_AHEAD_SECONDS = 360
# A clock that is further behind the database's is not used: its ids could be past retention.
_BEHIND_SECONDS = 60


class Hold(msgspec.Struct):
    """A node of this process: `last` is the last tick given out, `ceiling` the last allowed one.

    `floor` is the database's time at the taking, less the lag that our clock may have.
    """

    node: int
    holder: str
    last: int
    ceiling: int
    floor: int
    _taken: float = msgspec.field(default_factory=time.monotonic)

    def earliest(self) -> int:
        """The tick at which ids begin now, however far behind our clock is."""
        return self.floor + int((time.monotonic() - self._taken) * TICKS_PER_SECOND)


class _FreeNode(msgspec.Struct, frozen=True):
    node: int
    last_tick: int
    has_row: bool


def acquire(now: int, ticks: int, lease: float, using: str) -> Hold:
    """Take a free node, with a ceiling of `ticks` above `now`, its floor or its last tick.

    Unused nodes come first, in random order so that processes starting together do not queue for
    the same row; then nodes with the lowest last tick, which keeps ids near the clock. Raises
    Unavailable when all nodes are held, WrongCell for the database of another cell.
    """
    transactions.retrying(partial(cell_record.check, using), using)
    holder = uuid.uuid4().hex
    while True:
        floor, free_nodes = transactions.retrying(partial(_read_free_nodes, using), using)
        if not free_nodes:
            break
        for free_node in free_nodes:
            ceiling = max(free_node.last_tick, now, floor) + ticks
            hold = Hold(free_node.node, holder, free_node.last_tick, ceiling, floor)
            if transactions.retrying(partial(_take, hold, free_node, lease, using), using):
                ahead = (hold.last - max(now, floor)) / TICKS_PER_SECOND
                if ahead > _FAR_AHEAD_SECONDS:
                    log.warning("ids_ahead_of_clock", node=hold.node, seconds=round(ahead))
                else:
                    log.debug("id_node_taken", node=hold.node)
                return hold
        # Other processes took these nodes. Each round some process succeeds, so the loop ends.
    raise Unavailable(
        f"All {NODES} id nodes of the database are in use: stop processes that are not needed, or "
        f"wait {lease:g} seconds for the nodes of killed ones. A second cell has nodes of its own."
    )


def extend(hold: Hold, ceiling: int, lease: float, using: str) -> bool:
    """Raise the ceiling and renew the lease; false if another process holds the node now.

    An expired lease does not matter while no other process has taken the node.
    """

    def update() -> bool:
        with connections[using].cursor() as cursor:
            # `last_tick` never falls: an UPDATE that its client gave up may run after a later one.
            cursor.execute(
                f"UPDATE {NODE_TABLE} SET last_tick = CASE WHEN last_tick > %s"  # noqa: S608
                f" THEN last_tick ELSE %s END, lease_until = {sql.now_sql(lease, using)}"
                " WHERE node = %s AND holder = %s",
                (ceiling, ceiling, hold.node, hold.holder),
            )
            return bool(cursor.rowcount == 1)

    if transactions.retrying(update, using):
        hold.ceiling = ceiling
        return True
    log.warning("id_node_lost", node=hold.node)
    return False


def release(hold: Hold, using: str) -> None:
    """Give the node back. The next holder starts right above the last used tick."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            f"UPDATE {NODE_TABLE} SET holder = '', lease_until = NULL, last_tick = %s"  # noqa: S608
            " WHERE node = %s AND holder = %s",
            (hold.last, hold.node, hold.holder),
        )


def _read_free_nodes(using: str) -> tuple[int, list[_FreeNode]]:
    """The floor of a node that is taken now, and the free nodes."""
    now = sql.now_sql(using=using)
    free_condition = f"lease_until IS NULL OR lease_until <= {now}"
    with connections[using].cursor() as cursor:
        cursor.execute(
            # The join gives the time also when there are no nodes yet.
            f"SELECT present, node, last_tick, CASE WHEN {free_condition} THEN 1 ELSE 0 END"  # noqa: S608
            f" FROM (SELECT {now} AS present) AS clock LEFT JOIN {NODE_TABLE} ON 1 = 1",
            (),
        )
        rows = cursor.fetchall()
    seconds = (sql.read_time(rows[0][0]) - EPOCH).total_seconds() - _BEHIND_SECONDS
    new_numbers = set(range(NODES)) - {node for _, node, _, _ in rows}
    new_nodes = [_FreeNode(node, 0, has_row=False) for node in new_numbers]
    random.shuffle(new_nodes)
    used_nodes = [
        _FreeNode(node, last_tick, has_row=True)
        for _, node, last_tick, is_free in rows
        if node is not None and is_free
    ]
    used_nodes.sort(key=lambda free_node: free_node.last_tick)
    return int(seconds * TICKS_PER_SECOND), new_nodes + used_nodes


def _take(hold: Hold, free_node: _FreeNode, lease: float, using: str) -> bool:
    if not free_node.has_row:
        columns = ("node", "holder", "lease_until", "last_tick")
        sql.insert_or_keep(NODE_TABLE, columns, [(free_node.node, "", None, 0)], using)
    free_condition = f"(lease_until IS NULL OR lease_until <= {sql.now_sql(using=using)})"
    with connections[using].cursor() as cursor:
        cursor.execute(
            f"UPDATE {NODE_TABLE} SET holder = %s, last_tick = %s,"  # noqa: S608
            f" lease_until = {sql.now_sql(lease, using)}"
            f" WHERE node = %s AND last_tick = %s AND {free_condition}",
            (hold.holder, hold.ceiling, hold.node, free_node.last_tick),
        )
        return bool(cursor.rowcount == 1)
