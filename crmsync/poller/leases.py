"""Which policies this poller holds: each belongs to one poller at a time, by a lease.

    free ── taken ──> held ── renewed every 8 s ──> held
     ^                 │
     └── released, or the poller was killed and its lease is over

Pollers share the policies evenly: each reports that it is there, and takes no more than its share.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection

from crmsync import models
from msgplatform.core.connections import work_redis
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import claims, sql, transactions

LEASE_SECONDS = 30.0
_RENEW_SECONDS = 8.0  # two renewals may fail before a lease is over
_LOOK_SECONDS = 2.0
_pollers = Presence(work_redis, "crm:poller", bool, LEASE_SECONDS)


class PolicyLeases:
    """For the loop of one poller. `token` is what the rows of held policies carry.

    `stop_work(ids)` stops the work on some policies; it returns when nobody works on them any more.
    """

    def __init__(self, stop_work: Callable[[Collection[int]], None]) -> None:
        self.token = uuid.uuid4().hex
        self.held: set[int] = set()
        self._stop_work = stop_work
        self._next_renew, self._next_look = Every(_RENEW_SECONDS), Every(_LOOK_SECONDS)

    def turn(self, enabled: Collection[int]) -> None:
        """Renew what is held, release what is too much or switched off, take what is free.

        Raises RedisError and OperationalError; what is held stays so until its lease is over.
        """
        if self._next_renew.take():
            self._renew()
        if not self._next_look.take():
            return
        _pollers.report({self.token: True})
        share = math.ceil(len(enabled) / max(1, len(_pollers.read())))
        surplus = sorted(self.held - set(enabled))
        surplus += sorted(self.held & set(enabled))[share:]
        if surplus:
            self.release(surplus)
        missing = set(enabled) - self.held
        if missing and len(self.held) < share:
            self._take(missing, share - len(self.held))

    def release(self, policies: Collection[int]) -> None:
        """Let other pollers have them at once."""
        # The work ends first: another poller may begin as soon as the row is free.
        self._stop_work(policies)
        self.held -= set(policies)
        rows = models.Policy.objects.filter(pk__in=policies, claimed_by=self.token)
        transactions.retrying(lambda: rows.update(claimed_by="", lease_until=None))

    def end(self) -> None:
        """This poller ends: everything that it held is free."""
        if self.held:
            self.release(self.held.copy())
        _pollers.withdraw(self.token)

    def _renew(self) -> None:
        if not self.held:
            return
        rows = models.Policy.objects.filter(pk__in=self.held, claimed_by=self.token)
        claim = claims.Claim(self.token, sorted(self.held), sql.now())
        if claims.renew(models.Policy, claim, LEASE_SECONDS) < len(self.held):
            # This process was stopped for longer than a lease: others have taken some of them.
            lost = self.held - set(rows.values_list("pk", flat=True))
            self._stop_work(lost)
            self.held -= lost

    def _take(self, missing: Collection[int], most: int) -> None:
        now = sql.now()
        free = models.Policy.objects.filter(pk__in=missing).exclude(lease_until__gt=now)
        candidates = list(free.order_by("pk").values_list("pk", flat=True)[:most])
        if not candidates:  # so that a look that finds nothing writes nothing
            return
        rows = models.Policy.objects.all()
        made = claims.claim_ids(rows, candidates, lease=LEASE_SECONDS)
        if not made:
            return
        # One token for all, so that one statement renews them.
        models.Policy.objects.filter(pk__in=made.ids, claimed_by=made.token).update(
            claimed_by=self.token
        )
        self.held |= set(made.ids)
