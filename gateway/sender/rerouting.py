"""Messages whose gateway is down or switched off take another way, or end when their time is over.

A message that was in a Submit stays with its gateway, which may have accepted it, unless the
gateway refused each of its Submits."""

import time
from collections.abc import Callable, Collection, Iterable

from gateway.lifecycle import scripts
from gateway.lifecycle.messages import WaitingMessage, decode_mt
from msgplatform.core import logging
from msgplatform.core.daemons.timer import Every

log = logging.get(__name__)

# A priority, and the number of its messages before this place.
Place = tuple[int, int]
FRONT: Place = (9, 0)
GatewayIds = Callable[[], Collection[int]]

LOOK_SECONDS = 5.0
_PAGE = 1000  # messages of one script, during which Redis does nothing else
_PAUSE_SECONDS = 1.0
# The pause after a walk, in walks' durations: a long queue takes at most a tenth of the time.
_PAUSE_FACTOR = 9
_MAX_PAGE_SECONDS = 1.0  # of a page in a walk's duration: the process may have been frozen


def look(
    gateway: int, holder: str, start: Place, limit: int
) -> tuple[list[WaitingMessage], Place | None]:
    """Messages that wait for a gateway, most urgent first, from a place on, and the next place
    (None at the end). Nothing is claimed: the messages stay in their lists.

    Returns no messages while another holder looks through this gateway's list.
    """
    flat = scripts.run("look", [gateway, holder, *start, limit])
    waiting = [
        WaitingMessage(decode_mt(flat[i]), bool(flat[i + 1]), int(flat[i + 2]), int(flat[i + 3]))
        for i in range(3, len(flat), 5)
    ]
    return waiting, (int(flat[0]), int(flat[1])) if flat[0] != b"" else None


def divert(gateway: int, leaving: Iterable[tuple[WaitingMessage, int]]) -> int:
    """Move messages that `look` returned to another gateway, or with 0 end them as expired; how
    many. Messages that moved since, or were sent and would change their gateway, are left alone."""
    flat: list[scripts.Argument] = []
    for message, gateway_id in leaving:
        flat += [message.mt.id, message.priority, message.position, gateway_id or ""]
    return int(scripts.run("divert", [gateway, *flat])) if flat else 0


class Walk:
    """One walk after another through the messages that wait for a gateway, a page at a time.

    Messages that stay are only read, so that a walk disturbs no sender, however long the queue is.
    One of several senders walks.
    """

    def __init__(self, gateway: int, holder: str) -> None:
        self._gateway, self._holder = gateway, holder
        self._place = FRONT
        self._walk_seconds = 0.0
        self._next_at = 0.0
        self._connected_ids: frozenset[int] = frozenset()  # `connected_ids` at the last turn
        self._has_new_way = False  # a gateway was connected since this walk began

    def turn(self, connected_ids: GatewayIds) -> int:
        """Walk the next page, if it is time; returns how much was done. `connected_ids` gives the
        gateways that take Submits from some process."""
        began = time.monotonic()
        ids_before, self._connected_ids = self._connected_ids, frozenset(connected_ids())
        self._has_new_way |= bool(self._connected_ids - ids_before)
        if began < self._next_at and not self._has_new_way:
            return 0
        if self._place == FRONT:
            self._has_new_way = False
        waiting, following = look(self._gateway, self._holder, self._place, _PAGE)
        # Messages that leave, with the gateway of each; 0: its time is over.
        leaving: list[tuple[WaitingMessage, int]] = []
        now, others = time.time(), self._connected_ids - {self._gateway}
        for message in waiting:
            ways = (id for id in message.mt.gateways if id in others)
            target = 0 if message.was_sent else next(ways, 0)
            is_expired = 0 < message.mt.expire_at <= now
            if target or is_expired:
                leaving.append((message, 0 if is_expired else target))
        count = divert(self._gateway, leaving)
        if count:
            targets = sorted({target for _message, target in leaving if target})
            log.info("rerouted", gateway=self._gateway, count=count, to=targets)
        self._walk_seconds += min(_MAX_PAGE_SECONDS, time.monotonic() - began)
        if following is not None:
            priority, position = following
            # The messages behind the moved ones have moved up.
            leaving_count = sum(message.priority == priority for message, _target in leaving)
            self._place = priority, max(0, position - leaving_count)
            return max(1, len(waiting))
        self._place = FRONT
        # If a way has become free, messages that were passed over may take it: walk again without a
        # pause.
        self._next_at = time.monotonic() + max(_PAUSE_SECONDS, _PAUSE_FACTOR * self._walk_seconds)
        self._walk_seconds = 0.0
        return count


class StrandedMessages:
    """Messages of gateways that no link serves, because they are switched off or have no process.

    Every sender that serves all gateways looks after them. Messages that only such a gateway may
    send wait for it.
    """

    def __init__(self, holder: str) -> None:
        self._holder = holder
        self._next = Every(LOOK_SECONDS)
        self._absent_ids: frozenset[int] = frozenset()  # at the last look
        self._walks: dict[int, Walk] = {}

    def turn(
        self, closed_ids: Collection[int], absent_ids: GatewayIds, connected_ids: GatewayIds
    ) -> int:
        """Returns how many messages moved. The gateways are `closed_ids`, and those that are in
        `absent_ids` at two looks: their process may be starting."""
        if self._next.take():
            ids_before, self._absent_ids = self._absent_ids, frozenset(absent_ids())
            self._walks = {
                id: self._walks.get(id) or Walk(id, self._holder)
                for id in (*closed_ids, *(self._absent_ids & ids_before))
            }
        return sum(walk.turn(connected_ids) for walk in self._walks.values())
