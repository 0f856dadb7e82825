"""Marker: writes back what became of each copy (`marks.py`), with the log of attempts.

A batch of results is one transaction; every batch can be repeated, and its job is forgotten after
the commit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from msgplatform.core import alerts, ids, logging, queue_names, queues, sql
from msgplatform.core.daemon import AWAY, Worker
from msgplatform.core.failpoints import failpoint
from notify import attempts, counters, marks
from notify.models import ReceiveMsg
from notify.orders import Result
from notify.subscriptions import Subscriptions

log = logging.get(__name__)

# Of a killed marker the batch comes back after this long; one that is merely slow is repeated,
# which changes nothing.
CLAIM_SECONDS = 15.0
_JOBS_PER_TURN = 8
_Status = ReceiveMsg.Status


class Marker(Worker):
    role = "marker"

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions = Subscriptions()
        self._jobs: list[queues.Claimed] = []

    def turn(self) -> bool:
        """Mark up to a few thousand results; true when there were any."""
        # What an outage interrupted comes first: it is the oldest, and only we have it.
        self._jobs = self._jobs or self._claim()
        if not self._jobs:
            return False
        self.subscriptions.refresh()
        while self._jobs:
            self._mark(_read(self._jobs[0]))
            failpoint("marker_after_commit_before_done")
            queues.done([self._jobs[0]])
            del self._jobs[0]
        return True

    def _claim(self) -> list[queues.Claimed]:
        jobs = []
        for _ in range(_JOBS_PER_TURN):
            job = queues.claim(queue_names.NOTIFY_MARKER, CLAIM_SECONDS)
            if job is None:
                break
            jobs.append(job)
        oldest = jobs[0].enqueued_at if jobs else 0.0
        self.heartbeat.lag = max(0.0, timezone.now().timestamp() - oldest) if oldest else 0.0
        return jobs

    def _mark(self, results: Sequence[Result]) -> None:
        """Apply a batch; on bad data halve it down to the one result that is to blame."""
        made = attempts.made(results)
        block = ids.reserve(len(made)) if made else None
        try:
            sql.retrying(lambda: self._mark_once(results, made, block))
        except AWAY:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, one result must not stop all
            if len(results) == 1:
                self._poison(results[0], error)
                return
            middle = len(results) // 2
            self._mark(results[:middle])
            self._mark(results[middle:])
        else:
            self.heartbeat.done += len(results)

    def _mark_once(
        self, results: Sequence[Result], made: Sequence[Result], block: ids.Block | None
    ) -> None:
        by_outcome: dict[str, list[Result]] = defaultdict(list)
        for result in results:
            by_outcome[result.outcome].append(result)
        counts: counters.Counts = Counter()
        with transaction.atomic(durable=True):
            marks.delivered(by_outcome["delivered"], counts)
            marks.failed(by_outcome["failed"], self._schedule, counts)
            marks.unsent(by_outcome["unsent"])
            if block:
                attempts.write(made, block)
            counters.add(counts)
            failpoint("marker_before_commit")

    def _schedule(self, subscription_id: int) -> Sequence[float]:
        """Of a subscription that is gone: no further attempt."""
        subscription = self.subscriptions.get(subscription_id)
        if subscription is None:  # newer than what is known, or gone
            self.subscriptions.refresh(at_once=True)
            subscription = self.subscriptions.get(subscription_id)
        return subscription.schedule if subscription else ()

    def _poison(self, result: Result, error: Exception) -> None:
        """Our own fault: step aside and tell, the rest of the batch goes on."""
        log.error("poison_result", id=result.id, why=str(error)[:200])
        ReceiveMsg.objects.filter(id=result.id, claimed_by=result.claim).update(
            status=_Status.POISON, error=type(error).__name__, claimed_by="", updated_at=Now()
        )
        alerts.raise_alert(
            "notify.poison",
            f"The result of delivery {result.id} could not be written",
            str(error),
            key=f"notify.poison:{result.id}",
        )


def _read(job: queues.Claimed) -> list[Result]:
    """The job's results; an unreadable job is dropped with an error, the leases bring it back."""
    try:
        return msgspec.convert(job.data, list[Result])
    except msgspec.ValidationError:
        log.exception("results_unreadable", job=job.id)
        return []
