"""Poll: holds policies, reads what changed at their sources and queues it for the CRMs.

Each policy that it holds has a thread (`policy_poll`). The loop keeps the leases, begins and stops
those threads, reports, and raises alerts; deleting what is old has a thread of its own.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Collection

from crmsync.directory import Crms, Policies
from crmsync.monitor import poller_status
from crmsync.monitor.alert_conditions import AlertConditions
from crmsync.poller.leases import PolicyLeases
from crmsync.poller.policy_poll import PolicyPoll
from crmsync.retention import Housekeeping
from msgplatform.core import logging
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.queues import names, recovery

log = logging.get(__name__)

_REPORT_SECONDS = 1.0
_RECOVER_SECONDS = 10.0
_ALERT_SECONDS = 10.0
_CLEAN_SECONDS = 30.0
# How long the threads of released policies may finish the round that they have begun. Shorter than
# a lease: the loop that waits renews the others.
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
        self._cleaner = ThreadLoop("cleaner", self._clean)  # a statement there may take long
        self._alert_conditions, self._next_alerts = AlertConditions(), Every(_ALERT_SECONDS)

    def start(self) -> None:
        # What was imported stays for ever, and rows are freed without the collector: let it run
        # seldom.
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        self._cleaner.start()

    def turn(self) -> bool:
        """Never says that it worked: the policies' threads do the work."""
        self.policies.refresh()
        self.crms.refresh()
        enabled = [policy.id for policy in self.policies.known.values() if policy.enabled]
        self.leases.turn(enabled)
        for policy_id in self.leases.held - self._polls.keys():
            poll = PolicyPoll(policy_id, self.leases.token, self.policies, self.crms, self._worked)
            loop = ThreadLoop(f"policy-{policy_id}", poll.turn, longest_pause=10.0)
            self._polls[policy_id] = poll, loop
            loop.start()
        if self._next_report.take():
            poller_status.report({key: poll.facts() for key, (poll, _) in self._polls.items()})
        if self._next_recover.take():
            # Orders that killed handlers had claimed; the database has the records of all of them.
            recovery.recover(put_back=names.has_only_copies)
        if self._next_alerts.take():
            self._alert_conditions.reconcile()
        return False

    def drain(self, deadline: float) -> None:
        self._cleaner.stop()
        self.stop_threads(list(self._polls))

    def stop(self) -> None:
        self.leases.end()

    def stop_threads(self, policies: Collection[int]) -> None:
        """End the threads of these policies. One that hangs at its source for longer can store
        nothing more: its claim is no longer on the policy's row."""
        loops = [self._polls.pop(key)[1] for key in policies if key in self._polls]
        for loop in loops:
            loop.stop()
        end = time.monotonic() + _ROUND_SECONDS  # for all of them together
        for loop in loops:
            loop.stop(wait=max(0.01, end - time.monotonic()))
        poller_status.withdraw(list(policies))

    def _clean(self) -> float:
        return 0.0 if self._housekeeping.turn_if_due() else _CLEAN_SECONDS

    def _worked(self, rounds: int) -> None:
        self.heartbeat.done += rounds
