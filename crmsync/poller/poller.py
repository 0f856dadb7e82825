"""Poll: holds policies, reads what changed at their sources and gives it to the CRMs.

A thread for each policy that it holds (`policy_poll`), beside the loop that keeps the leases.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Collection

from crmsync import poller_status
from crmsync.directory import Crms, Policies
from crmsync.monitor.alert_conditions import AlertConditions
from crmsync.poller.holdings import Holdings
from crmsync.poller.policy_poll import PolicyPoll
from crmsync.retention import Housekeeping
from msgplatform.core import logging
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.queues import jobs, names

log = logging.get(__name__)

_SAY_SECONDS = 1.0
_RECOVER_SECONDS = 10.0
_ALERT_SECONDS = 10.0
_CLEAN_SECONDS = 30.0
_ROUND_SECONDS = 20.0  # a round that has begun is waited for


class Poll(Worker):
    role = "sync_poller"

    def __init__(self) -> None:
        super().__init__()
        self.policies, self.crms = Policies(), Crms()
        self.holdings = Holdings(self._let_go)
        self._polls: dict[int, tuple[PolicyPoll, ThreadLoop]] = {}
        self._next_say, self._next_recover = Every(_SAY_SECONDS), Every(_RECOVER_SECONDS)
        self._housekeeping = Housekeeping()
        self._cleaner = ThreadLoop("cleaner", self._clean)  # a statement there may take long
        self._alert_conditions, self._next_alerts = AlertConditions(), Every(_ALERT_SECONDS)

    def start(self) -> None:
        # What was imported lives for ever, and rows die by themselves: collect seldom.
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        self._cleaner.start()

    def turn(self) -> bool:
        """Never says that it worked: the policies' threads do the work."""
        self.policies.refresh()
        self.crms.refresh()
        enabled = [policy.id for policy in self.policies.known.values() if policy.enabled]
        self.holdings.turn(enabled)
        for policy_id in self.holdings.held - self._polls.keys():
            self._begin(policy_id)
        if self._next_say.take():
            poller_status.report({key: poll.facts() for key, (poll, _) in self._polls.items()})
        if self._next_recover.take():
            # An order can be made again from the database.
            jobs.recover(put_back=names.holds_only_copies)
        if self._next_alerts.take():
            self._alert_conditions.reconcile()
        return False

    def drain(self, deadline: float) -> None:
        self._cleaner.stop()
        self._let_go(list(self._polls))

    def stop(self) -> None:
        self.holdings.end()

    def _begin(self, policy_id: int) -> None:
        poll = PolicyPoll(policy_id, self.holdings.token, self.policies, self.crms, self._worked)
        loop = ThreadLoop(f"policy-{policy_id}", poll.turn, longest_pause=10.0)
        self._polls[policy_id] = poll, loop
        loop.start()

    def _let_go(self, policies: Collection[int]) -> None:
        """Ends their threads. One that hangs at its source can store nothing more: another
        poller's claim is not its own."""
        loops = [self._polls.pop(key)[1] for key in policies if key in self._polls]
        for loop in loops:
            loop.stop()
        end = time.monotonic() + _ROUND_SECONDS  # of all: the leases of others are to be renewed
        for loop in loops:
            loop.stop(wait=max(0.01, end - time.monotonic()))
        poller_status.withdraw(list(policies))

    def _clean(self) -> float:
        return 0.0 if self._housekeeping.turn_if_due() else _CLEAN_SECONDS

    def _worked(self, rounds: int) -> None:
        self.heartbeat.done += rounds
