"""DistributionCenter: puts orders into the queues of a CRM, no more than the CRM can take."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings

from crmsync import copies, orders, presence
from crmsync.directory import Crm
from crmsync.models import Operation, Policy, Record, RecoveryEntry
from crmsync.models.operations import UNKNOWN
from crmsync.monitor import counters
from crmsync.orders import Entry, MainQueue, Order, Queue, RetryQueue
from crmsync.poller.decisions import Round, StoredRound
from crmsync.poller.due import Due
from msgplatform.core.connections import LOST, RedisError
from msgplatform.core.data import claims, sql
from msgplatform.core.failpoints import failpoint
from msgplatform.core.tracing import spans

# Orders that wait for a CRM beside those in flight: no worker should be idle.
_AHEAD = 3
# The share of its lease that an order takes at the measured rate: records that are sent after the
# end of the lease would be claimed and sent again.
_SHARE_OF_LEASE = 0.1
# Records in an order: the minimum, because each order costs several statements, and the first size
# while the CRM's speed is unknown.
_MIN, _FIRST, _FIRST_OF_ALL = 20, 100, 500
QUEUE = "queue"  # the error class of records that a queue refused


class DistributionCenter:
    """Puts the work of one policy into its CRM's queues."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        # True if the recovery log may have open entries of work that the queue refused; also an
        # earlier process may have left some.
        self._has_refusals = True
        # True if records may be held by the guard.
        self.has_held = True

    def capacity(self, crm: Crm, live: presence.LiveCrm | None) -> int:
        """The number of records that may be queued now; 0: none yet. Raises RedisError."""
        waiting = MainQueue(crm.name).depth() + RetryQueue(crm.name).depth()
        if live and live.held_for > 1:
            return 0
        if live and live.is_open:  # the breaker lets one call through: one order, for that probe
            return 0 if waiting or live.retry_in > 1 else _MIN
        if waiting >= _AHEAD + crm.concurrency:
            return 0
        if not live or not live.per_second:  # the first orders show how fast the CRM is
            return _FIRST if waiting else _FIRST_OF_ALL
        records_in_time = live.per_second * settings.CRM_LEASE_SECONDS * _SHARE_OF_LEASE
        return max(_MIN, min(orders.MAX_ENTRIES, int(records_in_time)))

    def distribute(self, crm: Crm, poll_round: Round, result: StoredRound) -> None:
        """Queue the records of a round, after its commit. Raises RedisError."""
        # A poller that dies here leaves records that are queued in the database only: they are due
        # when their lease is over.
        failpoint("after_store_before_queue")
        self.has_held = self.has_held or result.held > 0
        began_at = spans.now()
        queue, operations = MainQueue(crm.name), result.operations
        claim, lease_until = poll_round.claim, result.lease_until
        self._put(queue, crm, result.entries, claim, lease_until, result.size, operations)
        keys = [entry.request.key for entry in result.entries]
        counters.record_spans("poll", began_at, self._policy.id, crm.name, keys)

    def retry(self, crm: Crm, due: Due) -> None:
        """Queue records that are due again. Raises RedisError."""
        self.has_held = self.has_held or due.held > 0
        if not due.entries:  # all of them are held
            return
        self._put(RetryQueue(crm.name), crm, due.entries, due.claim, due.lease_until)
        if self._has_refusals:
            # The queue takes work again. The refused records were due first, or are due when their
            # lease is over.
            entries = RecoveryEntry.open_entries(
                policy_id=self._policy.id, record_id=None, error_class=QUEUE
            )
            entries.update(state=RecoveryEntry.State.SOLVED, handled_at=sql.now())
            self._has_refusals = False

    def _put(
        self,
        queue: Queue,
        crm: Crm,
        entries: Sequence[Entry],
        claim: str,
        lease_until: float,
        size: int | None = None,
        operations: Sequence[Operation] = (),
    ) -> None:
        """Copy these operations, and queue the entries. Entries that the queue refuses come into
        the recovery log, and their records are due at once. If no answer came, the queue may have
        taken them, and a handler may be sending them. It finds another claim on the records before
        its next call, and they stay queued until their lease, and every open call, is over."""
        try:
            for operation in operations:
                copies.keep(operation)
            new_orders = [
                Order(self._policy.id, crm.id, claim, lease_until, part)
                for part in (orders.split(entries, size) if entries else ())
            ]
            if new_orders:
                queue.put(new_orders)
        except RedisError as error:
            self._has_refusals = True
            now = sql.now()
            operation_ids = {entry.operation for entry in entries}
            rows = RecoveryEntry.open_entries(operation_id__in=operation_ids, record_id=None)
            reported_ids = set(rows.values_list("operation_id", flat=True))
            RecoveryEntry.objects.bulk_create(
                RecoveryEntry(
                    policy_id=self._policy.id, crm_id=crm.id, operation_id=operation_id,
                    error_class=QUEUE, created_at=now,
                    reason=f"The queue of {crm.name} did not take it: {error}"[:500],
                )
                for operation_id in sorted(operation_ids - reported_ids)
            )  # fmt: skip
            changes: dict[str, Any] = {"claimed_by": ""}
            if not isinstance(error, LOST):
                waiting = Record.State.WAITING
                changes |= {"state": waiting, "next_at": now, "error_class": UNKNOWN}
            records = Record.objects.filter(pk__in=[entry.record for entry in entries])
            claims.update_by_key(records.filter(claimed_by=claim), changes)
            raise
