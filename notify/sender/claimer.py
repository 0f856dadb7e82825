"""The sender's claiming thread: takes orders from Redis so that the sending thread never waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from sys import getsizeof

from django.conf import settings

from msgplatform.core import logging
from msgplatform.core.daemons.away import AWAY
from msgplatform.core.daemons.bell import Listener
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.queues import abandoned, jobs, owners
from msgplatform.core.rates.backoff import Backoff
from notify import bells, lane_status, orders
from notify.directory import Subscription, Subscriptions
from notify.orders import Item, Order

log = logging.get(__name__)

# Orders of one subscription in hand: one being sent, one ready behind it.
MAX_PER_SUBSCRIPTION = 2
# What is in hand in all, in bytes of memory and in messages: a thousand subscriptions with full
# orders would be a gigabyte. Beyond it a queue waits for its turn, the longest-waiting first.
MAX_BYTES = 48 * 1024 * 1024
MAX_ITEMS = 40_000
# What a message takes beside the text of its body.
_ITEM_BYTES = 256
# A queue belongs to one sender at a time; a killed owner's queue is free after this long.
OWNERSHIP_SECONDS = 5.0
REPORT_SECONDS = 1.0
# Nobody rings when an order in hand is finished and there is room for the next one.
_BUSY_SECONDS = 0.25
_IDLE_SECONDS = 1.0
_ALL = 1_000_000
_JOIN_SECONDS = 5.0  # a Redis that hangs must not hold up the end of the process


@dataclass(eq=False, slots=True)
class ClaimedOrder:
    """An order in hand; `open_items` counts down to the moment when it can be forgotten, and
    `item_size` is what each of them takes, in bytes.

    `before` is the report of the sender that had this subscription's queue until now, if any.
    """

    claimed: jobs.Claimed
    order: Order
    open_items: int
    item_size: int
    before: lane_status.Live | None = None


class OrderFeed:
    """Claims orders of subscriptions that this process owns and that have room.

    `only` dedicates it to these subscriptions; without, it leaves alone those that have a process
    of their own. `states` is what the sending thread last said of its lanes; the feed reports it,
    because that thread does no I/O but HTTP.
    """

    def __init__(
        self,
        owner: str,
        subscriptions: Subscriptions,
        wake: Callable[[], None],
        only: Collection[int] = (),
    ) -> None:
        self.owner = owner
        self.subscriptions = subscriptions
        self.states: Mapping[int, lane_status.Live] = {}
        self._only = frozenset(only)
        self._wake = wake
        self._inbox: deque[ClaimedOrder] = deque()
        self._held: dict[str, list[ClaimedOrder]] = {}
        self._known: dict[int, lane_status.Live] = {}
        self._reported: frozenset[int] = frozenset()
        self.lost: frozenset[int] = frozenset()
        self._next_report = Every(REPORT_SECONDS)
        self._senders = 1
        self._share = _ALL
        self._turn = 0  # where the next round begins, so that no queue is always the last
        self._idle = Backoff(first=0.01, factor=1.3, cap=_IDLE_SECONDS)
        self._loop = ThreadLoop("order-feed", self._round)
        self._listener = Listener(bells.SENDER, self._loop.wake)

    def start(self) -> None:
        self._loop.start()
        self._listener.start()

    def stop(self) -> None:
        self._listener.stop()
        self._loop.stop(_JOIN_SECONDS)

    def say(self, states: Mapping[int, lane_status.Live], at_once: bool) -> None:
        """What the lanes are doing; `at_once` for news that the maker should know now."""
        self.states = states
        if at_once:
            self._next_report.at_once()
            self._loop.wake()

    def take(self) -> list[ClaimedOrder]:
        """What was claimed since the last call; called by the sending thread."""
        taken: list[ClaimedOrder] = []
        while self._inbox:
            taken.append(self._inbox.popleft())
        return taken

    def disown(self) -> None:
        """Let another sender have the queues at once instead of after the ownership's end."""
        try:
            # Those with nothing in hand too: they were owned when they last had work.
            owners.disown([row.queue for row in self.subscriptions.all()], self.owner)
            lane_status.withdraw(self.owner)
        except AWAY:
            return

    # -- the thread ------------------------------------------------------------------------------
    def _round(self) -> float:
        """Seconds until the next one."""
        self._report()
        if not self._claim_round():
            pause = self._idle.next()
            return min(pause, _BUSY_SECONDS) if self._held else pause
        self._idle.reset()
        self._wake()
        return 0.0

    def _report(self) -> None:
        """Say how the lanes are, hear how the others' are, and how many senders there are."""
        if not self._next_report.take():
            return
        states = self.states
        known = lane_status.read()
        held = {order.order.subscription for orders in self._held.values() for order in orders}
        # Another sender works for them now: what we last knew of their breakers is old.
        self.lost = frozenset(
            key
            for key, state in known.items()
            if state.sender != self.owner and key not in held
            if key not in states or not states[key].has_in_hand
        )
        said = {key: state for key, state in states.items() if key not in self.lost}
        ended = self._reported - states.keys() - self.lost
        closed = lane_status.Live(sender=self.owner)
        lane_status.report({**said, **dict.fromkeys(ended, closed)})
        self._reported = frozenset(said)
        self._known = {**known, **said}
        if self._only:
            lane_status.dedicate(self.owner, self._only)
        else:
            self._senders = lane_status.present(self.owner)
        self._drop_abandoned()

    def _drop_abandoned(self) -> None:
        """What a dead sender had in hand must not keep the queue full, nor its breaker waiting for
        a probe whose answer nobody hears."""
        queues = {
            row.queue: row.id
            for row in self.subscriptions.all()
            if row.queue not in self._held and self._serves(row)
        }
        dropped = abandoned.drop(list(queues))
        if not dropped:
            return
        log.warning("orders_of_a_dead_sender_dropped", queues=len(dropped))
        left = {
            queues[name]: lane_status.left(state)
            for name in dropped
            if (state := self._known.get(queues[name])) and state.sender != self.owner
        }
        lane_status.report(left)
        self._known.update(left)

    def _claim_round(self) -> int:
        self._forget_finished()
        owners.renew(list(self._held), self.owner, OWNERSHIP_SECONDS)
        wanted = self._wanted()
        ready = owners.own(list(wanted), self.owner, OWNERSHIP_SECONDS)
        self._share = share = self._fair_share(ready)
        mine = [name for name in ready if name in self._held]
        fresh = [name for name in ready if name not in self._held]
        room = max(0, share - len(self._held))
        if len(fresh) > room:
            owners.disown(fresh[room:], self.owner)
        # Who has nothing comes first: a second order must not take the place of a first.
        return self._claim([*fresh[:room], *mine], wanted)

    def _claim(self, names: Sequence[str], wanted: Mapping[str, int]) -> int:
        """Take the first order of each of these queues, as far as the memory goes."""
        claimed = start = 0
        while start < len(names) and (most := self._memory_for()) > 0:
            some = names[start : start + most]
            found, asked = jobs.claim_all(some, 2.0 * settings.NOTIFY_LEASE_SECONDS, Order)
            for order in found:
                self._take_over(order, wanted[order.queue])
            claimed += len(found)
            start += asked
        return claimed

    def _wanted(self) -> dict[str, int]:
        """Queues from which an order may be taken → their subscription, in turns."""
        surplus = self._surplus()
        rows = [
            (s.queue, s.id)
            for s in self.subscriptions.all()
            if s.sendable
            and self._serves(s)
            and s.queue not in surplus
            and len(self._held.get(s.queue, ())) < MAX_PER_SUBSCRIPTION
        ]
        self._turn = (self._turn + 1) % max(1, len(rows))
        return dict(rows[self._turn :] + rows[: self._turn])

    def _fair_share(self, ready: Sequence[str]) -> int:
        """How many queues this sender may own: its part of those that have work anywhere."""
        if self._senders < 2 or self._only:
            return _ALL
        working = set(ready) | set(self._held)
        for subscription in self._known:
            if (row := self.subscriptions.get(subscription)) and self._serves(row):
                working.add(row.queue)
        return -(-len(working) // self._senders)

    def _serves(self, subscription: Subscription) -> bool:
        if self._only:
            return subscription.id in self._only
        return not subscription.own_process

    def _surplus(self) -> set[str]:
        """Queues to be left to other senders: what is in hand is finished, no more is taken."""
        return set(sorted(self._held)[self._share :])

    def _memory_for(self) -> int:
        """How many more orders may be taken now, however many messages they hold."""
        size = items = 0
        for held in self._held.values():
            for order in held:
                size += order.open_items * order.item_size
                items += order.open_items
        if size >= MAX_BYTES or items >= MAX_ITEMS:
            return 0
        return max(1, (MAX_ITEMS - items) // orders.MAX_ITEMS)

    def _forget_finished(self) -> None:
        empty = []
        for name, held in list(self._held.items()):
            held[:] = [order for order in held if order.open_items > 0]
            if not held:
                del self._held[name]
                empty.append(name)
        if self._senders > 1:
            owners.disown(empty, self.owner)

    def _take_over(self, claimed: jobs.Claimed, subscription: int) -> None:
        before = self._known.get(subscription)
        if before and before.sender == self.owner:
            before = None
        order: Order = claimed.data
        held = ClaimedOrder(claimed, order, len(order.items), _item_size(order.items), before)
        self._held.setdefault(claimed.queue, []).append(held)
        self._inbox.append(held)


def _item_size(items: Sequence[Item]) -> int:
    """Bytes of memory that one of them takes, on average. Text that is no ASCII takes two or four
    bytes a character."""
    return _ITEM_BYTES + sum(getsizeof(item.body) for item in items) // max(1, len(items))
