"""DataHandler: serves CRMs, each with workers of its own, so that none delays another.

A CRM is served by one process at a time. The loop decides which CRMs this process serves, renews
the leases of claimed orders and reports; workers (threads) claim the orders, send and mark them.
"""

import hashlib
import threading
import time
import uuid
from collections.abc import Iterable
from typing import Any

import msgspec
from django.conf import settings

from crmsync import presence, signals
from crmsync.adapters.client import CALL_SECONDS
from crmsync.directory import Crm, Crms
from crmsync.handler.crm_worker import CrmWorkers
from crmsync.models import RecoveryEntry
from crmsync.orders import DeadQueue, MainQueue, RetryQueue
from msgplatform.core import personal
from msgplatform.core.connections import OutOfMemoryError, work_redis
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.heartbeats import alive
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import chunks
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.queues import owners
from msgplatform.core.rates import breaker

# Seconds of a CRM's ownership, which its handler renews. After a kill others wait this long.
OWNERSHIP_SECONDS = 5.0
# A signal wakes the loop for new orders, but not when a limit ends or a CRM loses its owner.
_TURN_SECONDS = 0.1
_IDLE_TURN_SECONDS = 1.0
_REPORT_SECONDS = 2.0
_RENEW_SECONDS = 0.5
# Seconds until the threads of a CRM without work end.
_IDLE_SECONDS = 60.0
# A handler that has its share takes a further CRM this often: handlers with fewer come first.
_MORE_SECONDS = 1.0
# The mirror of the dead records: maximum of entries, seconds between checks, entries in a job.
_MAX_MIRRORED = 10_000
_MIRROR_SECONDS = 30.0
_IN_ONE_JOB = 500
_MIRROR_FORMAT = 3  # a mirror of another format is made anew
_MIRRORED_COLUMNS = (
    "id", "record_id", "key", "version", "operation_id", "error_class", "field", "reason",
    "attempts",
)  # fmt: skip


class DataHandler(Worker):
    role = "sync_handler"
    wake_signal = signals.HANDLER

    def __init__(self, policy: breaker.Policy | None = None) -> None:
        super().__init__()
        self.name = uuid.uuid4().hex
        self.crms = Crms()
        self._policy = policy or breaker.Policy(
            cap=settings.CRM_BREAKER_SECONDS, probe_timeout=2 * CALL_SECONDS
        )
        # The loop changes both; the thread that renews leases only reads them.
        self._served: dict[int, CrmWorkers] = {}
        self._ending: list[CrmWorkers] = []  # CRMs whose workers finish their orders
        self._counting = threading.Lock()
        # A thread of its own: when an unavailable Redis holds up the loop, leases must not run out.
        self._renewer = ThreadLoop("crm-leases", self._renew_leases, every=_RENEW_SECONDS)
        self._next_report = Every(_REPORT_SECONDS)
        self._handlers = 1
        self._next_more = Every(_MORE_SECONDS)
        self._next_more.restart()
        # A thread of its own: thousands of dead records take longer than an ownership lasts.
        self._mirror = ThreadLoop("crm-dead-records", self._mirror_dead, every=_MIRROR_SECONDS)
        self._reported: list[int] = []

    def start(self) -> None:
        self._renewer.start()
        self._mirror.start()

    def turn(self) -> bool:
        self.crms.refresh()
        self._ending = [workers for workers in self._ending if not workers.has_ended]
        for pk, workers in list(self._served.items()):
            # The settings have changed, there was no work for long, or each call hangs.
            is_unfit = workers.is_unused(_IDLE_SECONDS) or workers.is_hung
            if self.crms.get(pk) != workers.crm or is_unfit:
                workers.stop()
                self._ending.append(workers)
                del self._served[pk]
        if self._next_report.take():
            self._report()
        self._own()
        # Wait here and return True: the daemon's own pauses would grow, but a CRM with new work
        # must be owned soon.
        is_busy = any(workers.is_busy or workers.is_held for workers in self._served.values())
        self.stopping.wait_for_work(_TURN_SECONDS if is_busy else _IDLE_TURN_SECONDS)
        return True

    def drain(self, deadline: float) -> None:
        """Finish the claimed orders: records of a call that is cut off must be looked up."""
        all_workers = [*self._served.values(), *self._ending]
        for workers in all_workers:
            workers.stop()
        if any(workers.is_busy for workers in all_workers):
            deadline = max(deadline, time.monotonic() + CALL_SECONDS)
        for workers in all_workers:
            workers.wait(deadline)

    def stop(self) -> None:
        self._renewer.stop()
        self._mirror.stop()
        for workers in self._served.values():
            workers.stop()
        try:
            names = [_owned_name(workers.crm) for workers in self._served.values()]
            owners.disown(names, self.name)
            presence.crms.withdraw(*self._reported)
        except UNAVAILABLE:
            return  # the CRMs of this handler are free after OWNERSHIP_SECONDS

    # -- which CRMs ------------------------------------------------------------------------------
    def _own(self) -> None:
        """Serve the CRMs that have work and that no other handler serves."""
        # Earlier workers have to end first: two adapters must not send the same records.
        ending_ids = {workers.crm.id for workers in self._ending}
        crms = {
            _owned_name(crm): crm
            for crm in self.crms.known.values()
            if crm.takes_work and crm.id not in ending_ids
        }
        self._renew_ownership()
        owned_ids = {pk for pk, workers in self._served.items() if workers.is_owned()}
        capacity = max(0, -(-len(crms) // self._handlers) - len(owned_ids))
        if self._next_more.take():
            capacity = len(crms)
        groups = {
            name: [MainQueue(crm.name).name, RetryQueue(crm.name).name]
            for name, crm in crms.items()
            if capacity or crm.id in owned_ids
        }
        names = owners.own_groups(groups, self.name, OWNERSHIP_SECONDS)
        surplus = [name for name in names if crms[name].id not in owned_ids][capacity:]
        owners.disown(surplus, self.name)
        for crm in (crms[name] for name in names if name not in surplus):
            if crm.id not in self._served:
                before = presence.crms.read_by_id().get(crm.id)
                workers = CrmWorkers(crm, self._policy, before, self._count)
                # Start first: if the system has no thread left, the next turn tries again.
                workers.start()
                self._served[crm.id] = workers
            # Shorter than in Redis: these workers must stop before another handler may begin.
            self._served[crm.id].own(OWNERSHIP_SECONDS - 2 * _TURN_SECONDS)
            self._served[crm.id].wake()

    def _renew_ownership(self) -> None:
        """Stay the owner of CRMs with an order in flight or with held calls, even without work in
        the queues: only this process knows of these. No other handler serves a CRM before its
        earlier workers have ended, or all of them hang."""
        owned_workers = [
            workers
            for workers in self._served.values()
            if (workers.is_busy or workers.is_held) and workers.is_owned()
        ]
        # Also after a lapse: nothing else takes a CRM again for workers that end.
        owned_workers += [workers for workers in self._ending if not workers.is_hung]
        names = [_owned_name(workers.crm) for workers in owned_workers]
        lost_names, _lapsed = owners.renew(names, self.name, OWNERSHIP_SECONDS)
        for workers in owned_workers:
            if _owned_name(workers.crm) not in lost_names:
                workers.own(OWNERSHIP_SECONDS - 2 * _TURN_SECONDS)

    def _renew_leases(self) -> None:
        """Called in a thread of its own."""
        for workers in (*list(self._served.values()), *self._ending):
            workers.renew_leases()

    def _mirror_dead(self) -> None:
        """Called in a thread of its own."""
        self.crms.refresh()
        mirror_dead_records(self.crms.known.values())

    # -- reports ---------------------------------------------------------------------------------
    def _count(self, records: int) -> None:
        """Called in the workers' threads."""
        with self._counting:
            self.heartbeat.done += records

    def _report(self) -> None:
        presence.crms.withdraw(*[pk for pk in self._reported if pk not in self._served])
        states = {
            pk: workers.limits.state()
            for pk, workers in self._served.items()
            if workers.is_owned() or workers.is_busy
        }
        presence.crms.report(states)
        self._reported = list(states)
        self._handlers = max(1, sum(beat.role == self.role for beat in alive()))


def _owned_name(crm: Crm) -> str:
    """The name under which a CRM's main and retry queue are owned together."""
    return f"crm-{crm.name}"


def mirror_dead_records(crms: Iterable[Crm]) -> None:
    """Mirror the dead records of each CRM in its queue `crm-dead-<crm>`, for people who look at
    queues, where the mirror is missing or old. Phone numbers and e-mail addresses are masked: the
    erasure of a person's data does not wait for a queue that never ends.

    Raises RedisError, and what an unavailable database raises.
    """
    # One handler at a time. Half of the interval, so that the next turn is not skipped.
    try:
        if not work_redis().set("crm:dead", 1, nx=True, px=int(_MIRROR_SECONDS * 500)):
            return
    except OutOfMemoryError:  # no work stands still: the database has the records
        return
    for crm in crms:
        entries = RecoveryEntry.open_entries(crm_id=crm.id, record_id__isnull=False)
        rows = list(entries.order_by("-id").values(*_MIRRORED_COLUMNS)[:_MAX_MIRRORED])
        # An unchanged mirror costs one query and no write. An erasure may change a reason.
        content = msgspec.json.encode((_MIRROR_FORMAT, rows))
        content_hash = hashlib.sha256(content).hexdigest()
        key, queue = f"crm:dead:{crm.id}", DeadQueue(crm.name)
        stored_hash: Any = work_redis().get(key)
        job_count = -(-len(rows) // _IN_ONE_JOB)
        if stored_hash == content_hash.encode() and queue.depth() == job_count:
            continue
        masked_rows = [
            personal.mask_sentences(row) | {"key": personal.mask_key(row["key"])} for row in rows
        ]
        queue.replace([list(part) for part in chunks(masked_rows, _IN_ONE_JOB)])
        work_redis().set(key, content_hash)
