"""How fast one sender may write to a gateway: its share of the speed limit, and pauses."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gateway.connections import sms_redis
from gateway.lifecycle import keys
from gateway.lifecycle.messages import Response
from gateway.sender.packing import Pack
from gateway.sender.pending_submits import AGAIN, UNANSWERED
from msgplatform.core.rates.backoff import Backoff
from msgplatform.core.rates.shared import SharedRateLimit

_MAX_BUSY = 5.0  # seconds: a gateway that is free again is used again soon
# A pack that costs more than this many seconds' worth goes on credit, and is paid for after.
_CREDIT_SECONDS = 10


class Pace:
    """The limit itself is in Redis, shared by all senders; this is what was taken from it."""

    def __init__(self, gateway: int) -> None:
        self._limit = SharedRateLimit(sms_redis, keys.speed(gateway))
        self._credit = 0.0  # short messages that may go
        self.is_short = False  # of credit: ask again before the limit's burst (0.1 s) is over
        self._busy = Backoff(first=0.1, factor=2, cap=_MAX_BUSY)
        self._busy_until = 0.0

    @property
    def pauses(self) -> bool:
        return time.monotonic() < self._busy_until

    def slow_down(self, responses: Sequence[Response]) -> None:
        """Pause for a gateway that is too busy, longer and longer until it accepts all again.

        Otherwise a long queue would be refused again and again, up to its messages' last try.
        """
        if any(response.verdict in (AGAIN, UNANSWERED) for response in responses):
            self._busy_until = time.monotonic() + self._busy.next()
        else:
            self._busy.reset()

    def affordable(self, packs: list[Pack], rate: float) -> list[Pack]:
        """The first of the packs, as many as `rate` short messages a second let go; 0: all."""
        self.is_short = False
        if not rate:
            return packs
        missing_credit = sum(map(cost, packs)) - int(self._credit)
        # Redis is asked for what is missing only: credit of earlier turns is used first.
        if missing_credit > 0:
            allowance, _ = self._limit.take(rate, missing_credit)
            self._credit += allowance
        affordable_packs: list[Pack] = []
        for pack in packs:
            if self._credit < min(cost(pack), max(1.0, _CREDIT_SECONDS * rate)):
                break
            self._credit -= cost(pack)
            affordable_packs.append(pack)
        self.is_short = len(affordable_packs) < len(packs)
        return affordable_packs


def cost(pack: Pack) -> int:
    """Short messages: each part to each recipient is one."""
    return len(pack.todo) * len(pack.messages)
