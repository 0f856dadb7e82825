"""Messages whose gateway is down or switched off: other ways for them, or their time is over.

What was in a Submit stays with its gateway: that one may have accepted it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from django.conf import settings

from gateway.lifecycle import store
from gateway.lifecycle.messages import Claimed
from msgplatform.core import logging
from msgplatform.core.daemons.timer import Every

log = logging.get(__name__)

LOOK_SECONDS = 5.0
_BATCH = 1000
_MOST_BATCHES = 20  # in a round: messages without another way are looked at again and again


def reroute(
    gateway: int, holder: str, claimed: Iterable[Claimed], up: Collection[int]
) -> list[Claimed]:
    """End what is expired, and move what another of its gateways may send; the messages that stay.

    `up` are the gateways that take Submits from some process.
    """
    now = time.time()
    expired: list[tuple[str, str, str]] = []
    stay: list[Claimed] = []
    moved: dict[int, list[str]] = {}
    for item in claimed:
        mt = item.mt
        target = next((other for other in mt.gateways if other != gateway and other in up), 0)
        if 0 < mt.expire_at <= now:
            expired.append((mt.id, "expired", ""))
        elif target and not item.was_sent:  # else this gateway may have accepted it
            moved.setdefault(target, []).append(mt.id)
        else:
            stay.append(item)
    store.end(gateway, holder, expired)
    for target, ids in moved.items():
        store.release(gateway, holder, ids, to=target)
        log.info("rerouted", gateway=gateway, to=target, count=len(ids))
    return stay


class Stranded:
    """Messages of gateways that no link serves: switched off, or without their own process.

    Every sender that serves all gateways looks after them; leases keep the senders apart.
    """

    def __init__(self, holder: str) -> None:
        self._holder = holder
        self._next = Every(LOOK_SECONDS)
        self._absent: frozenset[int] = frozenset()  # at the last look

    def turn_if_due(
        self,
        closed: Collection[int],
        absent: Callable[[], Collection[int]],
        up: Callable[[], Collection[int]],
    ) -> int:
        """How many messages of these gateways found another way or their end: of those that are
        `closed`, and of those whose process is `absent` for the second time: it may be starting.

        What only that one may send waits for it.
        """
        if not self._next.take():
            return 0
        moved = 0
        absent_now = frozenset(absent())
        gone, self._absent = self._absent & absent_now, absent_now
        for gateway in (*closed, *gone):
            bound = up()
            waiting: list[str] = []
            for _ in range(_MOST_BATCHES):
                lease = float(settings.SMS_LEASE_SECONDS)
                claimed = store.claim(gateway, self._holder, _BATCH, lease)
                stay = reroute(gateway, self._holder, claimed, bound)
                waiting += [item.mt.id for item in stay]
                moved += len(claimed) - len(stay)
                if len(claimed) < _BATCH:
                    break
            # Only now: given back at once, the next batch would be the same messages again.
            store.release(gateway, self._holder, waiting)
        return moved
