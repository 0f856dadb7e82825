"""Poll: holds policies, reads changes of their sources and queues them for the CRMs.

Each held policy has a thread (`policy_poll`). The loop keeps the leases, starts and stops those
threads, and reports; another thread deletes old rows. Each policy belongs to one poller at a time:

    free ── taken ──> held ── renewed every 8 s ──> held
     ^                 │
     └── released, or the poller was killed and its lease is over

Pollers share the policies evenly: each reports its presence, and takes no more than its share.
"""

import gc
import math
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress

from crmsync import presence
from crmsync.directory import Crms, Policies
from crmsync.models import Policy
from crmsync.poller.policy_poll import PolicyPoll
from crmsync.retention import Housekeeping
from msgplatform.core import flows, logging
from msgplatform.core.connections import RedisError, briefly, work_redis
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import claims, sql, transactions
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.queues import recovery

log = logging.get(__name__)

LEASE_SECONDS = 30.0
RENEW_SECONDS = 8.0  # two renewals may fail before a lease is over
_LOOK_SECONDS = 2.0
_pollers = Presence(work_redis, "crm:poller", bool, lambda _report: LEASE_SECONDS)


class PolicyLeases:
    """The leases of one poller, used by its loop. `tokens`: policy → the token in the policy's row.
    A policy gets a new token each time it is taken: a thread that has hung since an earlier time
    stores nothing.

    `stop_work(ids)` stops the work on these policies, and returns when no thread works on them.
    """

    def __init__(self, stop_work: Callable[[Collection[int]], None]) -> None:
        self.tokens: dict[int, str] = {}
        self._poller = uuid.uuid4().hex
        self._stop_work = stop_work
        self._next_renew, self._next_look = Every(RENEW_SECONDS), Every(_LOOK_SECONDS)

    def turn(self, policy_ids: Collection[int]) -> None:
        """Renew leases, release policies beyond the share or switched off, take free ones.

        Raises RedisError and OperationalError; a policy stays held until its lease is over.
        """
        if self._next_renew.take():
            self._renew()
        if not self._next_look.take():
            return
        _pollers.report({self._poller: True})
        share = math.ceil(len(policy_ids) / max(1, len(_pollers.read())))
        surplus = sorted(self.tokens.keys() - set(policy_ids))
        surplus += sorted(self.tokens.keys() & set(policy_ids))[share:]
        if surplus:
            self.release(surplus)
        unheld_ids = set(policy_ids) - self.tokens.keys()
        if unheld_ids and len(self.tokens) < share:
            self._take(unheld_ids, share - len(self.tokens))

    def release(self, policies: Collection[int]) -> None:
        """Release these policies, so that other pollers can take them at once."""
        # The work ends first: another poller may begin as soon as the row is free.
        self._stop_work(policies)
        tokens = {self.tokens.pop(key) for key in policies}
        rows = Policy.objects.filter(pk__in=policies, claimed_by__in=tokens)
        transactions.retrying(lambda: rows.update(claimed_by="", lease_until=None))

    def end(self) -> None:
        """Release every policy, because this poller ends."""
        if self.tokens:
            self.release(list(self.tokens))
        with suppress(RedisError), briefly():  # the report expires by itself
            _pollers.withdraw(self._poller)

    def _renew(self) -> None:
        for token in set(self.tokens.values()):  # policies that were taken together share a token
            policy_ids = sorted(key for key in self.tokens if self.tokens[key] == token)
            claim = claims.Claim(token, policy_ids, sql.now())
            if claims.renew(Policy, claim, LEASE_SECONDS) == len(policy_ids):
                continue
            # This process was stopped for longer than a lease: other pollers have some policies.
            rows = Policy.objects.filter(pk__in=policy_ids, claimed_by=token)
            lost_ids = set(policy_ids) - set(rows.values_list("pk", flat=True))
            self._stop_work(lost_ids)
            for key in lost_ids:
                del self.tokens[key]

    def _take(self, policy_ids: Collection[int], limit: int) -> None:
        now = sql.now()
        free = Policy.objects.filter(pk__in=policy_ids).exclude(lease_until__gt=now)
        candidates = list(free.order_by("pk").values_list("pk", flat=True)[:limit])
        if not candidates:  # a look without result writes nothing
            return
        rows = Policy.objects.all()
        claim = claims.claim_ids(rows, candidates, lease=LEASE_SECONDS)
        self.tokens |= dict.fromkeys(claim.ids, claim.token)


_REPORT_SECONDS = 1.0
_RECOVER_SECONDS = 10.0
_CLEAN_SECONDS = 30.0
# Seconds for threads of released policies to finish their round. Shorter than a lease, because the
# waiting loop renews the other policies.
_ROUND_SECONDS = 20.0


class Poll(Worker):
    role = "sync_poller"

    def __init__(self) -> None:
        super().__init__()
        self.policies, self.crms = Policies(), Crms()
        self.leases = PolicyLeases(self.stop_threads)
        self._polls: dict[int, tuple[PolicyPoll, ThreadLoop]] = {}
        self._next_report, self._next_recover = Every(_REPORT_SECONDS), Every(_RECOVER_SECONDS)
        self._housekeeping = Housekeeping()
        self._cleaner = ThreadLoop("cleaner", self._clean)  # deleting old rows may take long

    def start(self) -> None:
        gc.freeze()  # imported modules live for ever
        self._cleaner.start()

    def turn(self) -> bool:
        """Returns False, always: the policies' threads do the work."""
        self.policies.refresh()
        self.crms.refresh()
        policy_ids = [policy.id for policy in self.policies.known.values() if policy.enabled]
        self.leases.turn(policy_ids)
        for policy_id, token in self.leases.tokens.items():
            if policy_id in self._polls:
                continue
            poll = PolicyPoll(policy_id, token, self.policies, self.crms, self._count_rounds)
            loop = ThreadLoop(f"policy-{policy_id}", poll.turn)
            # Start first: if the system has no thread left, the next turn tries again.
            loop.start()
            self._polls[policy_id] = poll, loop
        if self._next_report.take():
            presence.policies.report({key: poll.facts() for key, (poll, _) in self._polls.items()})
        if self._next_recover.take():
            # Drop orders of killed handlers; the database has all their records.
            recovery.recover(is_only_copy=flows.has_only_copies)
        return False

    def drain(self, deadline: float) -> None:
        self._cleaner.stop()
        self.stop_threads(list(self._polls))

    def stop(self) -> None:
        try:
            self.leases.end()
        except UNAVAILABLE as error:  # then the leases run out
            log.warning("policies_not_released", why=str(error)[:200])

    def stop_threads(self, policies: Collection[int]) -> None:
        """End the threads of these policies. A thread that hangs at its source for longer cannot
        store anything: the policy's row has another token."""
        loops = [self._polls.pop(key)[1] for key in policies if key in self._polls]
        for loop in loops:
            loop.stop()
        end = time.monotonic() + _ROUND_SECONDS  # a deadline for all threads together
        for loop in loops:
            loop.stop(wait=max(0.01, end - time.monotonic()))
        with suppress(RedisError), briefly():  # the reports expire by themselves
            presence.policies.withdraw(*policies)

    def _clean(self) -> float:
        return 0.0 if self._housekeeping.turn_if_due() else _CLEAN_SECONDS

    def _count_rounds(self, rounds: int) -> None:
        self.heartbeat.done += rounds
