"""Marker: writes back what became of each copy, set by set.

Marks are monotonic. A success applies whatever the state. A failure, or an unsent copy, applies
only while the row still carries this claim: after a requeue or a reclaim it belongs to somebody
else. So every batch can be repeated; the job is forgotten after the commit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import msgspec
from django.db import transaction
from django.db.models import Case, DateTimeField, F, QuerySet, Value, When
from django.db.models.functions import Greatest, Now
from django.db.utils import DataError, IntegrityError
from django.utils import timezone

from msgplatform.core import alerts, backoff, logging, queue_names, queues, sql
from msgplatform.core.daemon import Worker
from msgplatform.core.failpoints import failpoint
from notify import counters
from notify.models import ReceiveMsg
from notify.orders import Result
from notify.subscriptions import Subscriptions

log = logging.get(__name__)

# A timeout or a 429 says that the consumer is overloaded: do not come back within a minute.
OVERLOAD_FLOOR_SECONDS = 60.0
CLAIM_SECONDS = 60.0
_JOBS_PER_TURN = 8
_Status = ReceiveMsg.Status


class Marker(Worker):
    role = "marker"

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions = Subscriptions()

    def turn(self) -> bool:
        """Mark up to a few thousand results; true when there were any."""
        jobs = self._claim()
        if not jobs:
            return False
        self.subscriptions.refresh()
        for job in jobs:
            self._mark(_read(job))
            failpoint("marker_after_commit_before_done")
            queues.done([job])
        return True

    def _claim(self) -> list[queues.Claimed]:
        jobs = []
        for _ in range(_JOBS_PER_TURN):
            job = queues.claim(queue_names.NOTIFY_MARKER, CLAIM_SECONDS)
            if job is None:
                break
            jobs.append(job)
        if jobs and jobs[0].enqueued_at:
            self.heartbeat.lag = max(0.0, timezone.now().timestamp() - jobs[0].enqueued_at)
        return jobs

    def _mark(self, results: Sequence[Result]) -> None:
        """Apply a batch; on bad data halve it down to the one result that is to blame."""
        try:
            sql.retrying(lambda: self._mark_once(results))
        except (DataError, IntegrityError, OverflowError) as error:
            if len(results) == 1:
                self._poison(results[0], error)
                return
            middle = len(results) // 2
            self._mark(results[:middle])
            self._mark(results[middle:])
        else:
            self.heartbeat.done += len(results)

    def _mark_once(self, results: Sequence[Result]) -> None:
        by_outcome: dict[str, list[Result]] = defaultdict(list)
        for result in results:
            by_outcome[result.outcome].append(result)
        counts: counters.Counts = Counter()
        with transaction.atomic(durable=True):
            self._delivered(by_outcome["delivered"], counts)
            self._failed(by_outcome["failed"], counts)
            _unsent(by_outcome["unsent"])
            counters.add(counts)
            failpoint("marker_before_commit")

    def _delivered(self, results: Iterable[Result], counts: counters.Counts) -> None:
        for (subscription, attempt, status), ids in _grouped(
            results, lambda r: (r.subscription, r.attempt, r.http_status)
        ):
            changed = (
                ReceiveMsg.objects.filter(id__in=ids)
                .exclude(status=_Status.DELIVERED)
                .update(
                    status=_Status.DELIVERED,
                    send_times=Greatest(F("send_times"), Value(attempt)),
                    http_status=status,
                    error="",
                    claimed_by="",
                    updated_at=Now(),
                )
            )
            counts[subscription, "delivered"] += changed

    def _failed(self, results: Iterable[Result], counts: counters.Counts) -> None:
        again: list[tuple[Result, float]] = []
        for result in results:
            delay = self._delay(result)
            if delay is None:
                self._exhausted(result, counts)
            else:
                again.append((result, delay))
        _retry_later(again, counts)

    def _delay(self, result: Result) -> float | None:
        """Seconds until the next attempt; None when the schedule is used up."""
        subscription = self.subscriptions.get(result.subscription)
        schedule = subscription.schedule if subscription else ()
        if result.attempt > len(schedule):
            return None
        delay = backoff.delay(result.attempt, schedule)
        if result.http_status == 429 or result.error == "timeout":
            delay = max(delay, min(OVERLOAD_FLOOR_SECONDS, max(schedule)))
        return max(delay, result.retry_after)

    def _exhausted(self, result: Result, counts: counters.Counts) -> None:
        changed = _still_claimed(result.claim, [result.id]).update(
            status=_Status.EXHAUSTED,
            send_times=result.attempt,
            http_status=result.http_status,
            error=result.error,
            claimed_by="",
            updated_at=Now(),
        )
        counts[result.subscription, "failed"] += changed
        counts[result.subscription, "exhausted"] += changed

    def _poison(self, result: Result, error: Exception) -> None:
        """Our own fault: step aside and tell, the rest of the batch goes on."""
        log.error("poison_result", id=result.id, why=str(error)[:200])
        ReceiveMsg.objects.filter(id=result.id).exclude(status=_Status.DELIVERED).update(
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


def _grouped(
    results: Iterable[Result], key: Callable[[Result], tuple]
) -> Iterable[tuple[tuple, list[int]]]:
    groups: dict[tuple, list[int]] = defaultdict(list)
    for result in results:
        groups[key(result)].append(result.id)
    return groups.items()


def _still_claimed(claim: str, ids: Sequence[int]) -> QuerySet[ReceiveMsg]:
    return ReceiveMsg.objects.filter(id__in=ids, claimed_by=claim, status=_Status.QUEUED)


def _retry_later(again: Sequence[tuple[Result, float]], counts: counters.Counts) -> None:
    """Back to pending, each with its own time: jitter keeps a herd from coming back together."""
    delays = {result.id: delay for result, delay in again}
    grouped = _grouped(
        (result for result, _ in again),
        lambda r: (r.claim, r.subscription, r.attempt, r.http_status, r.error),
    )
    for (claim, subscription, attempt, status, error), ids in grouped:
        changed = _still_claimed(claim, ids).update(
            status=_Status.PENDING,
            send_times=attempt,
            http_status=status,
            error=error,
            claimed_by="",
            next_at=_due_times(delays, ids),
            updated_at=Now(),
        )
        counts[subscription, "failed"] += changed


def _due_times(delays: dict[int, float], ids: Sequence[int]) -> Case:
    now = sql.now()
    whens = [When(id=row_id, then=Value(now + timedelta(seconds=delays[row_id]))) for row_id in ids]
    return Case(*whens, default=Now(), output_field=DateTimeField())


def _unsent(results: Iterable[Result]) -> None:
    for (claim,), ids in _grouped(results, lambda r: (r.claim,)):
        _still_claimed(claim, ids).update(
            status=_Status.PENDING, claimed_by="", next_at=Now(), updated_at=Now()
        )
