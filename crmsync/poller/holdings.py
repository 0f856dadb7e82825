"""Which policies this poller holds: each belongs to one poller at a time, by a lease.

Pollers share them evenly; those of one that was killed are free when its lease is over.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection

from crmsync import models
from msgplatform.core.connections import work_redis
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import claims, sql

LEASE_SECONDS = 30.0
_RENEW_SECONDS = 8.0
_LOOK_SECONDS = 2.0
_pollers = Presence(work_redis, "crm:poller", bool, LEASE_SECONDS)


class Holdings:
    """`token` is what rows of held policies carry. `let_go(ids)` stops the work on some; it
    returns when nobody works on them any more."""

    def __init__(self, let_go: Callable[[Collection[int]], None]) -> None:
        self.token = uuid.uuid4().hex
        self.held: set[int] = set()
        self._let_go = let_go
        self._next_renew, self._next_look = Every(_RENEW_SECONDS), Every(_LOOK_SECONDS)

    def turn(self, enabled: Collection[int]) -> None:
        """Renew what is held, give up what is too much or not wanted, take what is free. Raises
        RedisError and OperationalError; what is held stays so until its lease is over."""
        if self._next_renew.take():
            self._renew()
        if not self._next_look.take():
            return
        share = self._share(len(enabled))
        surplus = sorted(self.held - set(enabled))
        surplus += sorted(self.held & set(enabled))[share:]
        if surplus:
            self.give_up(surplus)
        missing = set(enabled) - self.held
        if missing and len(self.held) < share:
            self._take(missing, share - len(self.held))

    def look_soon(self) -> None:
        """At the next turn, whatever was before."""
        self._next_renew.at_once()
        self._next_look.at_once()

    def give_up(self, policies: Collection[int]) -> None:
        """Let other pollers have them at once."""
        self._let_go(policies)
        self.held -= set(policies)
        rows = models.Policy.objects.filter(pk__in=policies, claimed_by=self.token)
        sql.retrying(lambda: rows.update(claimed_by="", lease_until=None))

    def end(self) -> None:
        """This poller ends: all that it held is free."""
        if self.held:
            self.give_up(self.held.copy())
        _pollers.withdraw(self.token)

    def _share(self, policies: int) -> int:
        _pollers.report({self.token: True})
        return math.ceil(policies / max(1, len(_pollers.read())))

    def _renew(self) -> None:
        if not self.held:
            return
        rows = models.Policy.objects.filter(pk__in=self.held, claimed_by=self.token)
        claim = claims.Claim(self.token, sorted(self.held), sql.now())
        if claims.renew(models.Policy, claim, LEASE_SECONDS) < len(self.held):
            lost = self.held - set(rows.values_list("pk", flat=True))
            self._let_go(lost)
            self.held -= lost

    def _take(self, missing: Collection[int], most: int) -> None:
        now = sql.now()
        free = models.Policy.objects.filter(pk__in=missing).exclude(lease_until__gt=now)
        candidates = list(free.order_by("pk").values_list("pk", flat=True)[:most])
        if not candidates:  # a look writes nothing
            return
        rows = models.Policy.objects.all()
        made = claims.claim_ids(rows, candidates, lease=LEASE_SECONDS, set={})
        if not made:
            return
        # One token for all, so that one statement renews them.
        models.Policy.objects.filter(pk__in=made.ids, claimed_by=made.token).update(
            claimed_by=self.token
        )
        self.held |= set(made.ids)
