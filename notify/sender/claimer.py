"""The sender's claiming thread: takes orders from Redis so that the sending thread never waits."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from django.conf import settings

from msgplatform.core import outbound
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every, lease_clock
from msgplatform.core.daemons.wake_signal import Listener
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.queues import jobs, owners
from msgplatform.core.rates.backoff import Backoff
from notify import orders, presence, signals
from notify.directory import Subscription, Subscriptions
from notify.orders import Order, in_turns
from notify.sender.in_flight import ClaimedOrder, Memory, Strays

# Orders that one round takes, plus at most a step. Further orders are for the next round.
ROUND_ORDERS = 160
# A queue belongs to one sender at a time. A killed sender's queue is free after this time.
OWNERSHIP_SECONDS = 5.0
_RENEW_SECONDS = 0.5  # renewing a thousand queues takes a good part of a round
# No request begins later than this after a renewal: without Redis its result cannot be stored.
_BEGIN_SECONDS = 3.0
REPORT_SECONDS = 1.0
# The pause while orders are in flight. No signal says that a queue's next order may be taken.
_BUSY_SECONDS = 0.25
_IDLE_SECONDS = 2.0
_ALL = 1_000_000
_JOIN_SECONDS = 5.0  # a Redis that hangs must not hold up the end of the process


class OrderClaimer:
    """Claims orders of subscriptions that this process owns and that have capacity.

    `only` dedicates the claimer to these subscriptions. Without `only` it leaves out subscriptions
    that have their own process. `wake` is called after a claim, from the claiming thread.
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
        # Written by the sending thread, which does no I/O but HTTP, and reported by this thread.
        # The mapping is always replaced as a whole, so no thread needs a lock.
        self.states: Mapping[int, presence.LaneState] = {}
        # Written by this thread: subscriptions that another sender works for now.
        self.lost: frozenset[int] = frozenset()
        # Subscriptions whose next order this thread leaves, because messages of them wait here.
        self.held_back: frozenset[int] = frozenset()
        # From this thread to the sending thread. Appending and taking are atomic.
        self._inbox: deque[ClaimedOrder] = deque()
        self._only = frozenset(only)
        self._wake = wake
        self._next_renewal = Every(_RENEW_SECONDS)
        self._next_report = Every(REPORT_SECONDS)  # the sending thread may bring it forward
        self._has_moved = False  # True if a breaker moved since the last report
        # The latest time at which this process surely owned the queues of all orders in flight.
        self._owned_at = lease_clock()
        self._is_claiming = not outbound.is_off()  # until `stop_claiming`
        # The rest belongs to the claiming thread. Orders in flight, by queue:
        self._in_flight: dict[str, list[ClaimedOrder]] = {}
        self._states: dict[int, presence.LaneState] = {}
        self._reported: frozenset[int] = frozenset()
        self._senders, self._share = 1, _ALL
        self._memory = Memory(self._in_flight)
        self._strays = Strays(owner)
        self._turn = 0  # where the next round begins, so that no queue is always the last
        self._idle = Backoff(first=0.01, factor=1.3, cap=_IDLE_SECONDS)
        self._loop = ThreadLoop("order-claimer", self.round)
        self._listener = Listener(signals.SENDER, self._loop.wake)

    def start(self) -> None:
        self._loop.start()
        self._listener.start()

    def stop_claiming(self) -> None:
        """Take no further orders, and go on owning the queues of the orders in flight."""
        self._is_claiming = False

    def stop(self) -> None:
        self._listener.stop()
        self._loop.stop(_JOIN_SECONDS)

    def wake(self) -> None:
        """Look for orders now: all messages of a subscription in `held_back` are in flight."""
        self._loop.wake()

    def set_states(self, states: Mapping[int, presence.LaneState], at_once: bool) -> None:
        """Set the states of the lanes; `at_once` for a change that the maker should know now."""
        self.states = states
        if at_once:
            self._has_moved = True
            self._next_report.at_once()
            self._loop.wake()

    def take(self) -> list[ClaimedOrder]:
        """The orders claimed since the last call; called by the sending thread."""
        # The length is read once: orders that arrive meanwhile are for the next call.
        return [self._inbox.popleft() for _ in range(len(self._inbox))]

    def disown(self) -> None:
        """Let another sender have the queues at once, instead of when the ownership runs out."""
        with suppress(*UNAVAILABLE):
            # Idle queues too, because they were owned when they last had work.
            owners.disown(list(self.subscriptions.by_queue()), self.owner)
            presence.withdraw(self.owner)

    @property
    def may_begin(self) -> bool:
        """False while the orders in flight may soon be another sender's: no request begins."""
        return lease_clock() - self._owned_at < _BEGIN_SECONDS

    # -- the thread ------------------------------------------------------------------------------
    def round(self) -> float:
        """Renew, report, then claim; returns the seconds until the next round."""
        self._keep()
        if not self._is_claiming:
            return _BUSY_SECONDS
        self.report()
        if not self.claim():
            pause = self._idle.next()
            return min(pause, _BUSY_SECONDS) if self._in_flight else pause
        self._idle.reset()
        self._wake()
        return 0.0

    def report(self) -> None:
        """Report the states of the lanes; read other senders' states and the number of senders."""
        if not self._next_report.take():
            return
        # The flag is read before the states: a breaker that moves now is in the next report.
        has_moved, self._has_moved = self._has_moved, False
        states = self.states
        states_of_all = presence.read()
        busy_ids = {order.order.subscription for order in self._orders_in_flight()}
        # Another sender has these subscriptions now, so this process' state of them is old.
        self.lost = frozenset(
            key
            for key, state in states_of_all.items()
            if state.sender != self.owner and key not in busy_ids
            if key not in states or not states[key].has_work
        )
        own_states = {key: state for key, state in states.items() if key not in self.lost}
        # An ended lane is reported once more, with a closed breaker. Its last report would stay.
        ended_ids = self._reported - states.keys() - self.lost
        closed_lane = presence.LaneState(sender=self.owner)
        presence.report({**own_states, **dict.fromkeys(ended_ids, closed_lane)})
        if has_moved:  # deliveries behind the breaker are queued at once
            signals.MAKER.send()
        self._reported = frozenset(own_states)
        self._states = {**states_of_all, **own_states}
        if self._only:
            presence.report_dedicated(self.owner, self._only)
        else:
            self._senders = presence.report_sender(self.owner)
        self._take_back_strays()

    def _take_back_strays(self) -> None:
        """Put the orders of a dead sender back into their queues. Until then they fill the queues,
        and a breaker waits for a probe that nobody answers."""
        rows = [row for row in self._rows_of(jobs.with_orders) if self._serves(row)]
        queues = {row.queue: row.id for row in rows}
        timeouts = {row.queue: row.timeout for row in rows}
        in_hand = [order.claimed for order in self._orders_in_flight()]
        ids = [queues[name] for name in self._strays.take_back(timeouts, in_hand)]
        of_the_dead = {
            pk: presence.after_death(self._states[pk])
            for pk in ids
            if pk in self._states and self._states[pk].sender != self.owner
        }
        presence.report(of_the_dead)
        self._states.update(of_the_dead)

    def _keep(self) -> None:
        """Stay the owner of queues with orders in flight, and of no others."""
        for orders_in_flight in self._in_flight.values():
            orders_in_flight[:] = [order for order in orders_in_flight if order.open_items > 0]
        finished_queues = [name for name, in_hand in self._in_flight.items() if not in_hand]
        for name in finished_queues:
            del self._in_flight[name]
        if self._senders > 1:
            owners.disown(finished_queues, self.owner)
        if not self._next_renewal.is_due:
            return
        # Queues are lost when this process or Redis stood still for longer than OWNERSHIP_SECONDS.
        began_at = lease_clock()
        names = list(self._in_flight)
        lost_names, lapsed_names = owners.renew(names, self.owner, OWNERSHIP_SECONDS)
        for name in lost_names:
            for order in self._in_flight[name]:
                order.is_lost = True
        # Redis' clock counts, because the clock of a paused virtual machine stands still. This
        # process' clock counts too, because the answer to an earlier renewal may have been lost.
        if lapsed_names or began_at - self._owned_at >= OWNERSHIP_SECONDS:
            self._mark_taken_back()
        self._owned_at = began_at
        self._next_renewal.restart()  # last, so that it is due at once after an error

    def _orders_in_flight(self) -> list[ClaimedOrder]:
        return [order for of_queue in self._in_flight.values() for order in of_queue]

    def _mark_taken_back(self) -> None:
        """Mark the orders that another sender has put back, and perhaps finished, meanwhile."""
        in_flight = self._orders_in_flight()
        claimed_orders = owners.filter_claimed([order.claimed for order in in_flight])
        claimed_ids = {claimed.id for claimed in claimed_orders}
        for order in in_flight:
            if order.claimed.id not in claimed_ids:
                order.is_lost = True

    def claim(self) -> int:
        """Take orders from the queues that this sender owns or may own; returns their number."""
        self._keep()
        subscriptions = self._claimable()
        own_queues = owners.own(list(subscriptions), self.owner, OWNERSHIP_SECONDS)
        self._share = _ALL
        if self._senders > 1 and not self._only:
            # This sender's share, rounded up, of all queues with work.
            queues_with_work = set(own_queues) | set(self._in_flight)
            for subscription in self._states:
                if (row := self.subscriptions.get(subscription)) and self._serves(row):
                    queues_with_work.add(row.queue)
            self._share = -(-len(queues_with_work) // self._senders)
        queues_in_flight = [name for name in own_queues if name in self._in_flight]
        new_queues = [name for name in own_queues if name not in self._in_flight]
        free = max(0, self._share - len(self._in_flight))
        if len(new_queues) > free:
            owners.disown(new_queues[free:], self.owner)
        # Queues without an order in flight come first: within a system no second order must take
        # the place of a first.
        names = in_turns([*new_queues[:free], *queues_in_flight], orders.system_of)
        return self._claim_from(names, subscriptions)

    def _claimable(self) -> dict[str, int]:
        """Queue → subscription, for every queue from which an order may be taken, in turns of
        systems."""
        # Queues beyond this sender's share are left to others, after the orders in flight.
        surplus_queues = set(sorted(self._in_flight)[self._share :])
        full_queues = {
            queue
            for queue, in_hand in self._in_flight.items()
            if len(in_hand) >= orders.MAX_UNSENT and any(order.unsent_items for order in in_hand)
        }
        rows: list[tuple[str, int]] = []
        held_back_ids: list[int] = []
        for row in self._rows_of(jobs.with_waiting_orders):
            if row.queue in full_queues:
                held_back_ids.append(row.id)
            elif row.is_sendable and self._serves(row) and row.queue not in surplus_queues:
                rows.append((row.queue, row.id))
        self.held_back = frozenset(held_back_ids)
        self._turn = (self._turn + 1) % max(1, len(rows))
        rows_from_turn = rows[self._turn :] + rows[: self._turn]
        return dict(in_turns(rows_from_turn, lambda row: orders.system_of(row[0])))

    def _rows_of(self, select: Callable[[Collection[str]], list[str]]) -> list[Subscription]:
        """The subscriptions of the queues that `select` answers with, in the order of their ids."""
        by_queue = self.subscriptions.by_queue()
        rows = [by_queue[name] for name in select(by_queue)]
        return sorted(rows, key=lambda row: row.id)

    def _claim_from(self, names: Sequence[str], subscriptions: Mapping[str, int]) -> int:
        """Take the first order of each of these queues, as far as the memory allows; returns the
        number of orders."""
        claimed_count, remaining = 0, list(names)
        lease = 2.0 * settings.NOTIFY_LEASE_SECONDS
        while remaining and claimed_count < ROUND_ORDERS:
            remaining, limit = self._memory.open_to(remaining)
            first = remaining[: min(limit, ROUND_ORDERS - claimed_count)]
            claims, tried_count = jobs.claim_all(first, lease, Order)
            for job in claims:
                self._accept(job, subscriptions[job.queue])
            claimed_count += len(claims)
            remaining = remaining[tried_count:]
        return claimed_count

    def _accept(self, job: jobs.Claimed, subscription: int) -> None:
        order: Order = job.data
        before = self._states.get(subscription)
        if before and before.sender == self.owner:
            before = None
        count = len(order.items)
        claimed_order = ClaimedOrder(
            job, order, count, self._memory.item_size(order), count, is_lost=job.is_returned,
            before=before,
        )  # fmt: skip
        self._in_flight.setdefault(job.queue, []).append(claimed_order)
        self._inbox.append(claimed_order)

    def _serves(self, subscription: Subscription) -> bool:
        if self._only:
            return subscription.id in self._only
        return not subscription.own_process
