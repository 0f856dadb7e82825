"""What one gateway is to get: claimed, packed, paced, remembered, and only then written."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable

from django.conf import settings

from gateway import sgip
from gateway.directory import Gateway
from gateway.lifecycle import store
from gateway.lifecycle.messages import Claimed, NewSubmit, Response
from gateway.sender.congestion import Pace
from gateway.sender.packing import Pack, packs, submits
from gateway.sender.rerouting import reroute
from gateway.sender.results import ACCEPTED, MOST_TRIES
from gateway.sender.uplink import Link, Out
from msgplatform.core import logging
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.timer import Every
from msgplatform.core.failpoints import failpoint

log = logging.get(__name__)

LEASE_SECONDS = float(settings.SMS_LEASE_SECONDS)
_GIVE_BACK_SECONDS = LEASE_SECONDS / 3  # well before the lease ends: nobody else holds what we send
MOST_CLAIMED = 1000
DOWN_SECONDS = 5.0  # a link that comes back sooner keeps its messages
_RESPOND_AT_ONCE = 500
# A response that took its whole time is noted before the same bytes are due.
_PATIENCE_MARGIN = 5.0
_REPEAT_EVERY = 1.0
_MOVE_EVERY = 1.0
# What a message that no Submit can carry makes packing and encoding raise.
_POISON = (sgip.SgipError, ValueError, TypeError, ArithmeticError)


class Despatch:
    """One gateway of the sender; all of it runs in the worker's thread.

    `hand_over` brings Submits to the link's loop. `done` and `failed` count Submits by response.
    """

    def __init__(
        self, gateway: Gateway, link: Link, holder: str, hand_over: Callable[[list[Out]], None]
    ) -> None:
        self.gateway, self.link = gateway, link
        self.pace = Pace(gateway.id)
        self.done = self.failed = 0
        self._holder, self._hand_over = holder, hand_over
        self._packs: deque[Pack] = deque()
        self._held: dict[str, tuple[Claimed, float]] = {}  # by id, with the time of the claim
        self._parked = False  # what is held waits for the link, it is not packed
        self._most = 1
        self._next_repeat = Every(_REPEAT_EVERY)
        self._next_move = Every(_MOVE_EVERY)
        self._responses: deque[Response] = deque()

    @property
    def patience(self) -> float:
        """Seconds until Redis hands a Submit out again: later than a link gives it up."""
        return float(self.gateway.row.response_timeout) + _PATIENCE_MARGIN

    @property
    def _report_wait(self) -> float:
        """Seconds for which a Report is awaited."""
        return float(self.gateway.row.report_hours) * 3600

    @property
    def is_busy(self) -> bool:
        """Whether a gateway's response is awaited, or not yet written down."""
        return self.link.open > 0 or bool(self._responses)

    def turn(self, up: Callable[[], Collection[int]]) -> int:
        """One round; how much was done. `up` tells which gateways have a link somewhere."""
        worked = self.respond()
        self._give_back_old()
        down = self.link.down_since
        if not self.link.is_up:
            if down is not None and time.monotonic() - down > DOWN_SECONDS:
                worked += self._other_ways(up)
            return worked
        if self.pace.pauses:
            return worked
        if self.link.room > 0:
            worked += self._repeat(self.link.room)
        if (room := self.link.room) > 0:
            worked += self._send(room)
        return worked

    def respond(self) -> int:
        """Write down what the gateway answered; how many."""
        self._responses.extend(self.link.take())
        count = 0
        while self._responses:
            batch = [self._responses[n] for n in range(min(_RESPOND_AT_ONCE, len(self._responses)))]
            failpoint("sms_sender_before_respond")
            store.respond(batch, MOST_TRIES)
            for response in batch:
                self._responses.popleft()
                accepted = response.verdict == ACCEPTED
                self.done += accepted
                self.failed += not accepted
            self.pace.heed(batch)
            count += len(batch)
        return count

    def release(self) -> None:
        """Give back everything that was claimed and not sent."""
        held = list(self._held)
        if not held:
            return
        self._packs.clear()
        self._held.clear()
        self._parked = False
        store.release(self.gateway.id, self._holder, held)

    # -- sending ---------------------------------------------------------------------------------
    def _repeat(self, room: int) -> int:
        """Submits that nobody answered, also those of a process that is gone."""
        if not self._next_repeat.is_due:
            return 0
        found = store.due(self.gateway.id, self.patience, self.gateway.row.resends, room)
        if len(found) < room:
            self._next_repeat.restart()
        self._give([Out(name, frame, tries=1, repeated=True) for name, frame in found])
        return len(found)

    def _send(self, room: int) -> int:
        waiting = sum(len(pack.todo) for pack in self._packs)
        if waiting < room and not (waiting and self.gateway.row.speed_limit):
            self._claim(room)
        chosen = self._choose(room)
        return self._submit(chosen) if chosen else 0

    def _claim(self, room: int) -> None:
        """As much as fits into the room: more when the last claims packed well, else less."""
        self._most = min(MOST_CLAIMED, max(room, self._most))
        most = self._most
        if rate := self.gateway.row.speed_limit:
            most = min(most, 1 + int(rate / 4))
        claimed = store.claim(self.gateway.id, self._holder, most, LEASE_SECONDS)
        if not claimed:
            return
        at = time.monotonic()
        fresh = self._not_expired([item for item in claimed if item.mt.id not in self._held])
        self._held.update((item.mt.id, (item, at)) for item in fresh)
        made = self._pack(fresh)
        self._packs.extend(made)
        filled = sum(len(pack.todo) for pack in self._packs) >= room
        self._most = max(room, self._most // 2) if filled else self._most * 2

    def _not_expired(self, claimed: list[Claimed]) -> list[Claimed]:
        now = time.time()
        expired = [item for item in claimed if 0 < item.mt.expire_at <= now]
        self._end([(item.mt.id, "expired", "") for item in expired])
        if not expired:
            return claimed
        gone = {item.mt.id for item in expired}
        return [item for item in claimed if item.mt.id not in gone]

    def _pack(self, claimed: list[Claimed]) -> list[Pack]:
        """A message that cannot be sent ends, alone."""
        return bisect.isolate(
            claimed,
            lambda some: packs(some, self.gateway),
            lambda item, error: self._cannot(item.mt.id, error),
            _is_blameless,
        )

    def _choose(self, room: int) -> list[Pack]:
        """The next packs that fit, as far as the speed limit lets them go."""
        fitting: list[Pack] = []
        used = 0
        for pack in self._packs:
            if fitting and used + len(pack.todo) > room:
                break
            fitting.append(pack)
            used += len(pack.todo)
        chosen = self.pace.affordable(fitting, self.gateway.row.speed_limit)
        for _ in chosen:
            self._packs.popleft()
        return chosen

    def _submit(self, chosen: list[Pack]) -> int:
        """Remembered first: from here on Redis repeats them whatever becomes of this process."""
        tries = {
            message.id: self._held.pop(message.id)[0].tries
            for pack in chosen
            for message in pack.messages
        }
        new = self._encode(chosen)
        if not new:
            return len(chosen)
        failpoint("sms_sender_before_submit")
        mine = store.submit(self.gateway.id, self._holder, new, self.patience, self._report_wait)
        failpoint("sms_sender_after_submit")
        self._give([_out(submit, tries) for submit in mine])
        return len(new)

    def _encode(self, chosen: list[Pack]) -> list[NewSubmit]:
        return bisect.isolate(
            chosen, lambda some: submits(some, self.gateway), self._cannot_encode, _is_blameless
        )

    def _give(self, outs: list[Out]) -> None:
        if outs:
            self.link.give(outs)
            self._hand_over(outs)

    # -- not sending -----------------------------------------------------------------------------
    def _cannot(self, message: str, error: Exception) -> None:
        log.warning("message_cannot_be_sent", id=message, why=str(error)[:200])
        self._end([(message, "failed", f"cannot be sent: {error}"[:200])])
        self._held.pop(message, None)
        self.failed += 1

    def _cannot_encode(self, pack: Pack, error: Exception) -> None:
        for message in pack.messages:
            self._cannot(message.id, error)

    def _end(self, endings: Iterable[tuple[str, str, str]]) -> None:
        store.end(self.gateway.id, self._holder, endings)

    def _give_back_old(self) -> None:
        if not self._held:
            return
        _, oldest = next(iter(self._held.values()))
        if time.monotonic() - oldest > _GIVE_BACK_SECONDS or (self._parked and self.link.is_up):
            self.release()

    def _other_ways(self, up: Callable[[], Collection[int]]) -> int:
        """Messages that were never written go where a link is up; the others wait for this one."""
        if not self._next_move.take():
            return 0
        now = time.monotonic()
        bound = up()
        if self.gateway.id in bound or len(self._held) >= MOST_CLAIMED * 5:
            return 0
        claimed = store.claim(self.gateway.id, self._holder, MOST_CLAIMED, LEASE_SECONDS)
        for item in reroute(self.gateway.id, self._holder, claimed, bound):
            self._held[item.mt.id] = (item, now)
            self._parked = True
        if len(claimed) == MOST_CLAIMED:
            self._next_move.at_once()
        return len(claimed)


def _is_blameless(error: Exception) -> bool:
    return not isinstance(error, _POISON)


def _out(submit: NewSubmit, tries: dict[str, int]) -> Out:
    most = max(tries[member.id] for member in submit.members)
    return Out(submit.name, submit.frame, tries=most)


__all__ = ["Despatch"]
