"""The sender's claiming thread: takes orders from Redis so that the sending thread never waits."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from sys import getsizeof

from django.conf import settings

from msgplatform.core import logging, outbound
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.daemons.wake_signal import Listener
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.queues import jobs, owners
from msgplatform.core.rates.backoff import Backoff
from notify import orders, presence, signals
from notify.directory import Subscription, Subscriptions
from notify.orders import Order
from notify.sender.claimed_order import ClaimedOrder
from notify.turns import in_turns

log = logging.get(__name__)

# Orders of one subscription in hand: one that is being sent, one ready behind it.
MAX_PER_SUBSCRIPTION = 2
# Everything in hand, in bytes of memory and in messages: a thousand subscriptions with full orders
# would be a gigabyte. Beyond it queues wait for their turn, the one that waits longest comes first.
MAX_BYTES = 48 * 1024 * 1024
MAX_ITEMS = 40_000
# Orders that one round takes, give or take a step: what came meanwhile has its turn in the next.
ROUND_ORDERS = 160
# The part of these that is open to each system, however much of it the system has in hand. The rest
# is for systems with less in hand than an equal part of it.
_OPEN_TO_ALL = 3 / 4
# Memory that a message takes beside the text of its body.
_ITEM_BYTES = 256
# A queue belongs to one sender at a time; that of a killed sender is free after this long.
OWNERSHIP_SECONDS = 5.0
REPORT_SECONDS = 1.0
# No signal is sent when an order in flight is finished, and the next one of its queue may be taken.
_BUSY_SECONDS = 0.25
_IDLE_SECONDS = 2.0
_ALL = 1_000_000
_JOIN_SECONDS = 5.0  # a Redis that hangs must not hold up the end of the process


class OrderClaimer:
    """Claims orders of subscriptions that this process owns and that have capacity.

    `only` dedicates it to these subscriptions; without, it leaves alone those that have a process
    of their own. `wake` is called after orders were claimed, from the claiming thread.
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
        # Written by the sending thread, which does no I/O but HTTP, and reported by this one.
        # Always replaced as a whole, so neither needs a lock.
        self.states: Mapping[int, presence.Live] = {}
        # Written by this thread: subscriptions that another sender works for now.
        self.lost: frozenset[int] = frozenset()
        # From this thread to the sending one; appending and taking are atomic.
        self._inbox: deque[ClaimedOrder] = deque()
        self._only = frozenset(only)
        self._wake = wake
        self._next_report = Every(REPORT_SECONDS)  # the sending thread may bring it forward
        self._has_moved = False  # a breaker has, since the last report
        self._claims = not outbound.is_off()  # until `stop_claiming`
        # All that follows belongs to the claiming thread. Orders in hand, by queue:
        self._held: dict[str, list[ClaimedOrder]] = {}
        self._known: dict[int, presence.Live] = {}
        self._reported: frozenset[int] = frozenset()
        self._senders, self._share = 1, _ALL
        self._turn = 0  # where the next round begins, so that no queue is always the last
        self._idle = Backoff(first=0.01, factor=1.3, cap=_IDLE_SECONDS)
        self._loop = ThreadLoop("order-claimer", self.round)
        self._listener = Listener(signals.SENDER, self._loop.wake)

    def start(self) -> None:
        self._loop.start()
        self._listener.start()

    def stop_claiming(self) -> None:
        """Take no further orders, and go on owning the queues of those in hand."""
        self._claims = False

    def stop(self) -> None:
        self._listener.stop()
        self._loop.stop(_JOIN_SECONDS)

    def set_states(self, states: Mapping[int, presence.Live], at_once: bool) -> None:
        """What the lanes are doing; `at_once` for a change that the maker should know now."""
        self.states = states
        if at_once:
            self._has_moved = True
            self._next_report.at_once()
            self._loop.wake()

    def take(self) -> list[ClaimedOrder]:
        """What was claimed since the last call; called by the sending thread."""
        # By length: what arrives meanwhile is for the next call.
        return [self._inbox.popleft() for _ in range(len(self._inbox))]

    def disown(self) -> None:
        """Let another sender have the queues at once, instead of when the ownership runs out."""
        with suppress(*UNAVAILABLE):
            # Queues with nothing in hand too: they were owned when they last had work.
            owners.disown([row.queue for row in self.subscriptions.all()], self.owner)
            presence.withdraw(self.owner)

    # -- the thread ------------------------------------------------------------------------------
    def round(self) -> float:
        """Report, then claim; seconds until the next round."""
        if not self._claims:
            self._keep()
            return _BUSY_SECONDS
        self.report()
        if not self.claim():
            pause = self._idle.next()
            return min(pause, _BUSY_SECONDS) if self._held else pause
        self._idle.reset()
        self._wake()
        return 0.0

    def report(self) -> None:
        """Report how the lanes are, read how the others' are, and how many senders there are."""
        if not self._next_report.take():
            return
        # Before the states: a breaker that moves meanwhile is told with the next report.
        has_moved, self._has_moved = self._has_moved, False
        states = self.states
        known = presence.read()
        held = {order.order.subscription for orders in self._held.values() for order in orders}
        # Another sender works for these now: what we last knew of their breakers is old.
        self.lost = frozenset(
            key
            for key, state in known.items()
            if state.sender != self.owner and key not in held
            if key not in states or not states[key].has_in_hand
        )
        said = {key: state for key, state in states.items() if key not in self.lost}
        # A lane that has ended is reported once more, as closed: its last report would stay.
        ended = self._reported - states.keys() - self.lost
        closed = presence.Live(sender=self.owner)
        presence.report({**said, **dict.fromkeys(ended, closed)})
        if has_moved:  # what waited behind a breaker is queued at once
            signals.MAKER.send()
        self._reported = frozenset(said)
        self._known = {**known, **said}
        if self._only:
            presence.dedicate(self.owner, self._only)
        else:
            self._senders = presence.present(self.owner)
        self._drop_abandoned()

    def _drop_abandoned(self) -> None:
        """What a dead sender had in hand must not keep the queue full, nor its breaker waiting for
        a probe whose answer nobody gets."""
        rows = [row for row in self.subscriptions.all() if self._serves(row)]
        queues = {row.queue: row.id for row in rows if row.queue not in self._held}
        dropped = owners.drop(list(queues))
        if not dropped:
            return
        log.warning("orders_of_a_dead_sender_dropped", queues=len(dropped))
        of_others = {pk: s for pk, s in self._known.items() if s.sender != self.owner}
        ids = (queues[name] for name in dropped)
        left = {pk: presence.left(of_others[pk]) for pk in ids if pk in of_others}
        presence.report(left)
        self._known.update(left)

    def _keep(self) -> None:
        """Stay the owner of queues with orders in hand, and of no others."""
        for held in self._held.values():
            held[:] = [order for order in held if order.open_items > 0]
        finished = [name for name, held in self._held.items() if not held]
        for name in finished:
            del self._held[name]
        if self._senders > 1:
            owners.disown(finished, self.owner)
        # Another owns one when this process, or Redis, was away for longer than the ownership.
        for name in owners.renew(list(self._held), self.owner, OWNERSHIP_SECONDS):
            for order in self._held[name]:
                order.is_lost = True

    def claim(self) -> int:
        """Take orders from the queues that this sender owns or may own; how many."""
        self._keep()
        wanted = self._wanted()
        ready = owners.own(list(wanted), self.owner, OWNERSHIP_SECONDS)
        self._share = _ALL
        if self._senders > 1 and not self._only:
            # This sender's part, rounded up, of the queues that have work anywhere.
            working = set(ready) | set(self._held)
            for subscription in self._known:
                if (row := self.subscriptions.get(subscription)) and self._serves(row):
                    working.add(row.queue)
            self._share = -(-len(working) // self._senders)
        mine = [name for name in ready if name in self._held]
        fresh = [name for name in ready if name not in self._held]
        free = max(0, self._share - len(self._held))
        if len(fresh) > free:
            owners.disown(fresh[free:], self.owner)
        # Who has nothing comes first: a second order must not take the place of a first, unless it
        # is another system's.
        return self._claim_from(in_turns([*fresh[:free], *mine], orders.system_of), wanted)

    def _wanted(self) -> dict[str, int]:
        """Queues from which an order may be taken → their subscription, in turns of systems."""
        # Beyond this sender's share a queue is left to others: what is in hand is finished first.
        surplus = set(sorted(self._held)[self._share :])
        rows = [
            (s.queue, s.id)
            for s in self.subscriptions.all()
            if s.sendable
            and self._serves(s)
            and s.queue not in surplus
            and len(self._held.get(s.queue, ())) < MAX_PER_SUBSCRIPTION
        ]
        self._turn = (self._turn + 1) % max(1, len(rows))
        rotated = rows[self._turn :] + rows[: self._turn]
        return dict(in_turns(rotated, lambda row: orders.system_of(row[0])))

    def _claim_from(self, names: Sequence[str], wanted: Mapping[str, int]) -> int:
        """Take the first order of each of these queues, as far as the memory goes."""
        claimed, remaining = 0, list(names)
        while remaining and claimed < ROUND_ORDERS:
            used, most_used = self._used(), _OPEN_TO_ALL
            if sum(used.values()) >= _OPEN_TO_ALL:
                systems = used.keys() | map(orders.system_of, remaining)
                part, most_used = (1 - _OPEN_TO_ALL) / len(systems), 1.0
                remaining = [
                    name for name in remaining if used.get(orders.system_of(name), 0.0) < part
                ]
            room = most_used - sum(used.values())
            if room <= 0:
                break
            # Each may be a full one: how many messages it holds is known when it is claimed.
            most = max(1, int(room * MAX_ITEMS) // orders.MAX_ITEMS)
            some = remaining[: min(most, ROUND_ORDERS)]
            found, asked = jobs.claim_all(some, 2.0 * settings.NOTIFY_LEASE_SECONDS, Order)
            for job in found:
                self._take_in_hand(job, wanted[job.queue])
            claimed += len(found)
            remaining = remaining[asked:]
        return claimed

    def _used(self) -> dict[int, float]:
        """The part of the memory that the orders in hand of each system take: of its bytes or of
        its messages, whichever is more."""
        sizes, items = Counter[int](), Counter[int]()
        for queue, held in self._held.items():
            system = orders.system_of(queue)
            sizes[system] += sum(order.open_items * order.item_size for order in held)
            items[system] += sum(order.open_items for order in held)
        if sum(sizes.values()) * MAX_ITEMS > sum(items.values()) * MAX_BYTES:
            return {system: size / MAX_BYTES for system, size in sizes.items()}
        return {system: count / MAX_ITEMS for system, count in items.items()}

    def _take_in_hand(self, job: jobs.Claimed, subscription: int) -> None:
        order: Order = job.data
        before = self._known.get(subscription)
        if before and before.sender == self.owner:
            before = None
        # Text that is not ASCII takes two or four bytes a character.
        bodies = sum(getsizeof(item.body) for item in order.items)
        item_size = _ITEM_BYTES + bodies // max(1, len(order.items))
        held_order = ClaimedOrder(job, order, len(order.items), item_size, before=before)
        self._held.setdefault(job.queue, []).append(held_order)
        self._inbox.append(held_order)

    def _serves(self, subscription: Subscription) -> bool:
        if self._only:
            return subscription.id in self._only
        return not subscription.own_process
