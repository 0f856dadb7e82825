"""The messages of one gateway: claimed, packed, paced, remembered, and only then written.

pending ─ _claim ─▶ claimed, packed ─ _send: the speed limit ─▶ remembered in Redis ─▶ the link
   ▲                      │                                           │ no response in time
   └─ release: a third of the lease is over, or it stops              └─ _repeat: the same bytes
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import islice

from django.conf import settings

from gateway import sgip
from gateway.directory import Gateway
from gateway.lifecycle import store
from gateway.lifecycle.messages import ClaimedMessage, Mt, Response
from gateway.sender.link import Link
from gateway.sender.packing import Counters, Pace, Pack, make_packs, make_submits, user_count
from gateway.sender.pending_submits import ACCEPTED, MAX_TRIES, PendingSubmit
from gateway.sender.rerouting import Walk
from msgplatform.core import logging
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.daemons.timer import Every
from msgplatform.core.failpoints import failpoint
from msgplatform.core.tracing.context import log_facts

log = logging.get(__name__)

LEASE_SECONDS = float(settings.SMS_LEASE_SECONDS)
# Well before the lease ends: another sender must not get messages that this one sends.
_GIVE_BACK_SECONDS = LEASE_SECONDS / 3
MAX_CLAIMED = 1000  # messages of one script, during which Redis does nothing else
DOWN_SECONDS = 5.0  # seconds; a link that comes back sooner keeps its messages
_RESPOND_AT_ONCE = 500  # responses of one script
# Seconds in which a late response is written down before the same bytes are due again.
_PATIENCE_MARGIN = 5.0
_REPEAT_EVERY = 1.0
_GROW_EVERY = 1.0
# Errors of packing and encoding a message that fits no Submit.
_POISON = (sgip.SgipError, ValueError, TypeError, ArithmeticError)


class GatewayWorker:
    """A gateway of the sender; all of it runs in the worker's thread.

    `in_loop` calls methods of the link in its loop. `heartbeat` counts Submits that were accepted.
    """

    def __init__(
        self,
        gateway: Gateway,
        link: Link,
        holder: str,
        in_loop: Callable[..., None],
        heartbeat: Heartbeat,
    ) -> None:
        self.gateway, self.link = gateway, link
        self.pace = Pace(gateway.id)
        self._holder, self._in_loop, self._heartbeat = holder, in_loop, heartbeat
        self._packs: deque[Pack] = deque()
        # Id → message and time of its claim, oldest first.
        self._claims: dict[str, tuple[ClaimedMessage, float]] = {}
        self._claim_size = 1
        self._next_repeat = Every(_REPEAT_EVERY)
        self._next_growth = Every(_GROW_EVERY)
        self._counters = Counters()
        self._walk = Walk(gateway.id, holder)
        self._responses: deque[Response] = deque()

    @property
    def patience(self) -> float:
        """Seconds until Redis hands a Submit out again: longer than the link waits."""
        return float(self.gateway.row.response_timeout) + _PATIENCE_MARGIN

    @property
    def is_busy(self) -> bool:
        """True if a gateway's response is awaited or not yet written down."""
        return self.link.open_count > 0 or bool(self._responses)

    def turn(self, connected_ids: Callable[[], Collection[int]]) -> int:
        """A round; returns how much was done. `connected_ids` gives the gateways that have a link
        somewhere."""
        count = self.respond()
        if self._claims:
            _, oldest = next(iter(self._claims.values()))
            if time.monotonic() - oldest > _GIVE_BACK_SECONDS:
                self.release()
        if not self.link.is_up:
            return count + self._wait_for_link(connected_ids)
        if self.pace.is_paused:
            return count
        # Repeats come first: they are the oldest, and each repetition counts as a try.
        self.pace.is_short = False
        if self.link.capacity > 0:
            count += self._repeat(self.link.capacity)
        if (capacity := self.link.capacity) > 0 and not self.pace.is_short:
            count += self._send(capacity)
        should_grow = self.link.can_grow and self.link.capacity <= 0 and self._next_growth.take()
        if should_grow and (self._packs or store.has_work(self.gateway.id)):
            self._in_loop(self.link.wake)  # idle connections that were unbound are opened again
        return count

    def respond(self) -> int:
        """Write down the gateway's responses; returns how many."""
        self._responses.extend(self.link.take())
        count = 0
        while self._responses:
            batch = list(islice(self._responses, _RESPOND_AT_ONCE))
            failpoint("sms_sender_before_respond")
            # Remove the responses only after this: if it raises, the next turn writes them.
            store.respond(batch, MAX_TRIES)
            for response in batch:
                self._responses.popleft()
                self._heartbeat.done += response.verdict == ACCEPTED
            self.pace.slow_down(batch)
            count += len(batch)
        return count

    def release(self) -> None:
        """Give back the messages that were claimed and not sent."""
        claimed_ids = list(self._claims)
        if not claimed_ids:
            return
        self._packs.clear()
        self._claims.clear()
        store.release(self.gateway.id, self._holder, claimed_ids)

    # -- sending ---------------------------------------------------------------------------------
    def _repeat(self, capacity: int) -> int:
        """Write Submits without an answer once more, also Submits of a process that is gone."""
        rate = self.gateway.row.speed_limit
        if not self._next_repeat.is_due or not self.pace.can_repeat(rate):
            return 0
        began = time.monotonic()
        # With a speed limit one Submit at a time: its number of users is known only afterwards.
        limit = 1 if rate else capacity
        due_submits = store.repeat(self.gateway.id, self.patience, self.gateway.row.resends, limit)
        if len(due_submits) < limit:
            self._next_repeat.restart()
        if rate:
            self.pace.charge(sum(map(user_count, (frame for _name, frame in due_submits))))
        self._write(
            [
                PendingSubmit(name, frame, began, tries=1, is_repeated=True)
                for name, frame in due_submits
            ]
        )
        return len(due_submits)

    def _send(self, capacity: int) -> int:
        """Send the next packs that fit, as far as the speed limit lets them go."""
        waiting_count = sum(len(pack.part_numbers) for pack in self._packs)
        if waiting_count < capacity and not (waiting_count and self.gateway.row.speed_limit):
            self._claim(capacity)
        fitting: list[Pack] = []
        used_count = 0
        for pack in self._packs:
            if fitting and used_count + len(pack.part_numbers) > capacity:
                break
            fitting.append(pack)
            used_count += len(pack.part_numbers)
        packs = self.pace.affordable(fitting, self.gateway.row.speed_limit)
        for _ in packs:
            self._packs.popleft()
        return self._submit(packs) if packs else 0

    def _claim(self, capacity: int) -> None:
        """Claim enough messages to fill the capacity: more if the last claims packed well, else
        fewer. A message that cannot be sent ends without the others."""
        self._claim_size = min(MAX_CLAIMED, max(capacity, self._claim_size))
        limit = self._claim_size
        if rate := self.gateway.row.speed_limit:  # messages of a quarter of a second
            limit = min(limit, 1 + int(rate / 4))
        claimed_messages = store.claim(self.gateway.id, self._holder, limit, LEASE_SECONDS)
        if not claimed_messages:
            return
        claimed_at, now = time.monotonic(), time.time()
        new_messages = [item for item in claimed_messages if item.mt.id not in self._claims]
        expired_ids = [item.mt.id for item in new_messages if 0 < item.mt.expire_at <= now]
        store.end(self.gateway.id, self._holder, [(id, "expired", "") for id in expired_ids])
        sendable = [item for item in new_messages if not 0 < item.mt.expire_at <= now]
        self._claims.update((item.mt.id, (item, claimed_at)) for item in sendable)
        self._packs.extend(
            bisect.isolate(
                sendable,
                lambda half: make_packs(half, self.gateway),
                lambda item, error: self._end_unsendable([item.mt], error),
                _is_blameless,
            )
        )
        is_filled = sum(len(pack.part_numbers) for pack in self._packs) >= capacity
        size = self._claim_size
        self._claim_size = max(capacity, size // 2) if is_filled else size * 2

    def _submit(self, packs: list[Pack]) -> int:
        """Store Submits, then write them. After this Redis repeats them, even if this process
        ends."""
        tries = {mt.id: self._claims.pop(mt.id)[0].tries for pack in packs for mt in pack.messages}
        new_submits = bisect.isolate(
            packs,
            lambda half: make_submits(half, self.gateway, self._counters),
            lambda pack, error: self._end_unsendable(pack.messages, error),
            _is_blameless,
        )
        if not new_submits:
            return len(packs)
        failpoint("sms_sender_before_submit")
        report_wait = float(self.gateway.row.report_hours) * 3600
        began = time.monotonic()
        # Leaves out Submits with a message that another sender has by now, or that has ended.
        writable = store.submit(
            self.gateway.id, self._holder, new_submits, self.patience, report_wait
        )
        failpoint("sms_sender_after_submit")
        self._write(
            [
                PendingSubmit(new.name, new.frame, began, max(tries[m.id] for m in new.members))
                for new in writable
            ]
        )
        # Release last: a Submit that is stored but not written waits until its answer would be
        # late.
        written_names = {new.name for new in writable}
        released_ids = {
            m.id for new in new_submits if new.name not in written_names for m in new.members
        }
        store.release(self.gateway.id, self._holder, sorted(released_ids))
        return len(new_submits)

    def _write(self, submits: list[PendingSubmit]) -> None:
        if submits:
            self.link.give(submits)
            self._in_loop(self.link.put, submits)

    # -- not sending -----------------------------------------------------------------------------
    def _wait_for_link(self, connected_ids: Callable[[], Collection[int]]) -> int:
        """Wake a sleeping link when there is work. While it is down other gateways may send."""
        # A sleeping link gets no messages, because its gateway may have gone.
        if self.link.is_asleep and self.link.connections:
            if self._claims or store.has_work(self.gateway.id):
                self._in_loop(self.link.wake)
            return 0
        down_since = self.link.down_since
        if down_since is None or time.monotonic() - down_since <= DOWN_SECONDS:
            self._walk = Walk(self.gateway.id, self._holder)  # each outage has a walk of its own
            return 0
        self.release()
        # Another sender may have a link to this gateway.
        return 0 if self.gateway.id in connected_ids() else self._walk.turn(connected_ids)

    def _end_unsendable(self, messages: Iterable[Mt], error: Exception) -> None:
        """End messages that fit no Submit, however often they are tried."""
        for message in messages:
            facts = log_facts(message.trace)
            log.warning("message_cannot_be_sent", id=message.id, why=str(error)[:200], **facts)
            ending = (message.id, "failed", f"cannot be sent: {error}"[:200])
            store.end(self.gateway.id, self._holder, [ending])
            self._claims.pop(message.id, None)
            self._heartbeat.failed += 1


def _is_blameless(error: Exception) -> bool:
    return not isinstance(error, _POISON)
