"""Marker: writes the result of each delivery (`marks.py`), with the log of attempts.

A batch of results is one transaction. Every batch can be repeated, and its jobs are forgotten after
the commit. If a marker dies in between, another marker takes the jobs.
"""

from collections.abc import Sequence

import msgspec
from django.db import transaction
from django.db.models.functions import Now
from django.utils.translation import gettext_noop as _

from msgplatform.core import alerts, logging
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.timer import Gather
from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.failpoints import failpoint
from msgplatform.core.lazy_text import lazy_message
from msgplatform.core.queues import jobs as queues
from msgplatform.core.tracing import exemplars, spans
from msgplatform.core.tracing.context import log_facts, parse
from notify import orders
from notify.directory import Subscriptions
from notify.marker import marks
from notify.models import ReceiveMsg
from notify.monitor import counters, failures
from notify.orders import Result

log = logging.get(__name__)

# The batch of a killed marker comes back after this long; that of a slow marker is marked twice,
# which changes nothing.
CLAIM_SECONDS = 15.0
_JOBS_PER_TURN = 8
# Seconds that a turn waits for more results under load.
GATHER_SECONDS = 0.1
FULL_BATCH = 500
_Status = ReceiveMsg.Status


class Marker(Worker):
    role = "marker"
    idle_seconds = 1.0  # no signal wakes the marker, and people wait for results

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions = Subscriptions()
        self.event_types = counters.CatalogueSubjects()
        self._jobs: list[queues.Claimed] = []
        self._locked_results: list[Result] = []  # those of a batch that come last, in a job anew
        self._gather = Gather(FULL_BATCH, GATHER_SECONDS)

    def turn(self) -> bool:
        """Mark up to a few thousand results; True if there were any."""
        # Jobs that an outage interrupted come first: they are the oldest, and claimed already.
        self._jobs = self._jobs or self._claim()
        if not self._jobs:
            return False
        self.subscriptions.refresh()
        done_before = self.heartbeat.done
        while self._jobs:
            together, results = 0, list[Result]()
            while together < len(self._jobs) and len(results) < FULL_BATCH:
                results += _read(self._jobs[together])
                together += 1
            self._locked_results = []
            try:
                bisect.isolate(results, self.mark, self._set_aside)
            except bisect.ItemsLocked as error:
                self._locked_results += error.items
                log.warning("results_wait", count=len(error.items), why=str(error)[:200])
            failpoint("marker_after_commit_before_done")
            if self._locked_results:
                queues.put(orders.MARKER_QUEUE, [self._locked_results], ttl=None)
            queues.remove_orders(self._jobs[:together])
            del self._jobs[:together]
            if results and len(self._locked_results) == len(results):
                self.stopping.wait(self.idle_seconds)
        if pause := self._gather.note_batch(self.heartbeat.done - done_before):
            self.stopping.wait(pause)
        return True

    def _claim(self) -> list[queues.Claimed]:
        jobs: list[queues.Claimed] = []
        while len(jobs) < _JOBS_PER_TURN:
            job = queues.claim(orders.MARKER_QUEUE, CLAIM_SECONDS)
            if job is None:
                break
            jobs.append(job)
        self.heartbeat.lag = jobs[0].waited if jobs else 0.0
        return jobs

    def mark(self, results: Sequence[Result]) -> Sequence[Result]:
        """Apply a batch in one transaction. After an error nothing is applied, unless only the
        answer to the COMMIT was lost. In both cases the batch can be repeated."""
        cache = self.subscriptions
        failing = {result.subscription for result in results if result.outcome == "failed"}
        if any(cache.get(pk) is None and not cache.is_unusable(pk) for pk in failing):
            cache.refresh(at_once=True)  # a subscription is newer than the cache
        self.event_types.refresh()
        began_at = spans.now()
        # A delivery that was given back unsent is no attempt.
        attempts = [result for result in results if result.outcome != "unsent"]
        # Outside of the transaction: a rollback must not undo the record of the ids given out.
        block = ids.reserve(len(attempts)) if attempts else None
        tally = self._mark(results, attempts, block)
        self._after_commit(len(results), tally)
        unreadable = [result for result in results if result.error == orders.ENCRYPTED]
        if unreadable:  # a sender's machine lacks the key
            text = _(
                "%(why)s. Such deliveries wait, and count for no consumer. Add the key to "
                "ENCRYPTION_KEY of that machine, and restart its programs."
            )
            alerts.raise_alert(
                "notify.poison",
                lazy_message("A sender cannot decrypt payloads: ENCRYPTION_KEY lacks their key"),
                lazy_message(text, why=unreadable[0].detail[:500]),
                key="notify.encrypted",
            )
        if began_at:
            # Record the marks of results that are stored, of messages that are traced.
            steps = [
                spans.Step(context, {"delivery": str(result.id), "outcome": result.outcome})
                for result in results
                if (context := parse(result.trace))
            ]
            spans.record_steps("notify mark", began_at, steps, len(results))
        return results

    def _mark(
        self, results: Sequence[Result], attempts: Sequence[Result], block: ids.Block | None
    ) -> counters.Tally:
        return transactions.retrying(
            lambda: marks.apply(
                results, attempts, block, self.subscriptions.known, self.event_types
            )
        )

    def _after_commit(self, result_count: int, tally: counters.Tally) -> None:
        """Do the work that may be late, or be lost with this process, without harm."""
        self.heartbeat.done += result_count
        counters.add_totals(tally.counts, tally.seconds)
        exemplars.note(tally.traced)

    # -- our own fault ---------------------------------------------------------------------------
    def _set_aside(self, result: Result, error: Exception) -> alerts.AlertEvent:
        """Mark a result that cannot be written, without its attempt in the log; if that fails too,
        mark the delivery as poison. Returns the alert."""
        try:
            tally = self._mark([result], (), None)
        except Exception as second_error:  # the first error is the reason
            if bisect.is_unavailable(second_error):
                raise
            if transactions.is_of_lock(second_error):
                self._locked_results.append(result)
                text = _("The result of delivery %(id)s waits for a lock on its row: %(why)s")
            else:
                self._poison(result, error)
                text = _("Delivery %(id)s is poison: its result cannot be written: %(why)s")
        else:
            self._after_commit(1, tally)
            text = _("Delivery %(id)s is marked, but its attempt could not be logged: %(why)s")
        return alerts.AlertEvent(
            "notify.poison",
            lazy_message(
                "A result of subscription %(id)d could not be written", id=result.subscription
            ),
            lazy_message(text, id=str(result.id), why=str(error)[:1000]),
            key=f"notify.poison:{result.subscription}",
        )

    def _poison(self, result: Result, error: Exception) -> None:
        rows = ReceiveMsg.objects.filter(id=result.id, claimed_by=result.claim)
        try:
            now, name = sql.now(), type(error).__name__
            with transaction.atomic():
                poisoned_count = rows.exclude(status=_Status.DELIVERED).update(
                    status=_Status.POISON, error=name, claimed_by="", updated_at=Now()
                )
                poisoned_ids = [result.id] * poisoned_count
                failures.count_ended(
                    _Status.POISON, result.subscription, poisoned_ids, name, now, self.event_types
                )
        except Exception as second_error:
            if bisect.is_unavailable(second_error):
                raise
            # The result's id is not valid, so there is no row to set aside.
            log.exception("poison_not_marked", id=result.id, **log_facts(result.trace))


def _read(job: queues.Claimed) -> list[Result]:
    """The job's results. A job that cannot be read is dropped with an error in the log; its
    deliveries are queued again when their leases end."""
    try:
        return msgspec.convert(job.data, list[Result])
    except msgspec.ValidationError:
        log.exception("results_unreadable", job=job.id)
        return []
