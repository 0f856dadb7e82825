"""Marker: writes back what became of each copy (`statements.py`), with the log of attempts.

A batch of results is one transaction; every batch can be repeated, and its job is forgotten after
the commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import msgspec
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _

from msgplatform.core import alerts, logging
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.away import AWAY
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.gather import Gather
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import ids, sql
from msgplatform.core.failpoints import failpoint
from msgplatform.core.queues import jobs as queues
from notify import orders
from notify.directory import Subscriptions
from notify.marker import attempts, failing_subscriptions, statements
from notify.models import ReceiveMsg
from notify.monitor import alert_events, counters, given_up
from notify.orders import Result

log = logging.get(__name__)

# Of a killed marker the batch comes back after this long; one that is merely slow is repeated,
# which changes nothing.
CLAIM_SECONDS = 15.0
_JOBS_PER_TURN = 8
# Under load a turn waits so long for more results.
GATHER_SECONDS = 0.1
FULL_BATCH = 500
# Alerts are brought in line at once after what marking changed, and this often for what time did.
LOOK_EVERY_SECONDS = 60.0
_Status = ReceiveMsg.Status


@dataclass(frozen=True, slots=True)
class _Marked:
    """What is left to do when a batch has been committed."""

    tally: counters.Tally
    tell: bool


class Marker(Worker):
    role = "marker"

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions = Subscriptions()
        self._jobs: list[queues.Claimed] = []
        self._next_look = Every(LOOK_EVERY_SECONDS)
        self._gather = Gather(FULL_BATCH, GATHER_SECONDS)

    def turn(self) -> bool:
        """Mark up to a few thousand results; true when there were any."""
        if self._next_look.is_due:
            self._look_after()
        # What an outage interrupted comes first: it is the oldest, and only we have it.
        self._jobs = self._jobs or self._claim()
        if not self._jobs:
            return False
        self.subscriptions.refresh()
        marked = self.heartbeat.done
        while self._jobs:
            together, results = 0, list[Result]()
            while together < len(self._jobs) and len(results) < FULL_BATCH:
                results += _read(self._jobs[together])
                together += 1
            try:
                bisect.isolate(results, self._mark, self._set_aside, _is_blameless)
            except sql.Locked as error:
                log.warning("results_wait", jobs=together, why=str(error)[:200])
                queues.put_last(self._jobs[:together])
            else:
                failpoint("marker_after_commit_before_done")
                queues.done(self._jobs[:together])
            del self._jobs[:together]
        if pause := self._gather.took(self.heartbeat.done - marked):
            self.stopping.wait(pause)
        return True

    def _claim(self) -> list[queues.Claimed]:
        jobs: list[queues.Claimed] = []
        while len(jobs) < _JOBS_PER_TURN:
            job = queues.claim(orders.MARKER_QUEUE, CLAIM_SECONDS)
            if job is None:
                break
            jobs.append(job)
        oldest = jobs[0].enqueued_at if jobs else 0.0
        self.heartbeat.lag = max(0.0, timezone.now().timestamp() - oldest) if oldest else 0.0
        return jobs

    def _mark(self, results: Sequence[Result]) -> Sequence[Result]:
        """Apply a batch."""
        self._know_subscriptions(results)
        made = attempts.made(results)
        block = ids.reserve(len(made)) if made else None
        marked = sql.retrying(lambda: self._mark_once(results, made, block))
        self._marked(len(results), marked)
        return results

    def _mark_once(
        self, results: Sequence[Result], made: Sequence[Result], block: ids.Block | None
    ) -> _Marked:
        with sql.without_patience(), transaction.atomic(durable=True):
            now = sql.now()
            copies = statements.lock(results)
            rows = failing_subscriptions.read(result.subscription for result in results)
            of = partial(_of_outcome, results)
            delivered = statements.delivered(of("delivered"), copies)
            failed, exhausted = statements.failed(
                of("failed"), copies, self._schedule(rows), now, partial(_failing_since, rows)
            )
            statements.unsent(of("unsent"), copies)
            if block:
                # Of copies that are there: the archive has taken the others with their log.
                attempts.write([result for result in made if result.id in copies], block)
            tell = failing_subscriptions.update([*delivered, *failed], rows, now)
            tally = counters.Tally({pk: row.biz_id for pk, row in rows.items()})
            for result in delivered:
                tally.delivered(result, copies[result.id].created_at)
            tally.failed(failed, exhausted)
            # Subscriptions before counters, as everybody locks them.
            given_up.add(Counter(result.subscription for result in exhausted), now)
            counters.add(tally.counts, now)
            failpoint("marker_before_commit")
        return _Marked(tally, tell)

    def _marked(self, results: int, marked: _Marked) -> None:
        """After the commit: what may be late, or lost with this process, without harm."""
        self.heartbeat.done += results
        counters.add_totals(marked.tally.counts, marked.tally.seconds)
        if marked.tell:
            self._look_after()

    def _know_subscriptions(self, results: Iterable[Result]) -> None:
        """Read them again, once and outside of the transaction, when one of them is new."""
        known = self.subscriptions
        ids_seen = {result.subscription for result in results if result.outcome == "failed"}
        if any(known.get(pk) is None and not known.is_unusable(pk) for pk in ids_seen):
            known.refresh(at_once=True)

    def _schedule(self, rows: Mapping[int, failing_subscriptions.Row]) -> statements.Schedule:
        """Of a subscription that is gone: no further attempt. Of one that cannot be used: None."""

        def schedule(subscription_id: int) -> Sequence[float] | None:
            subscription = self.subscriptions.get(subscription_id)
            if subscription:
                return subscription.schedule
            return None if subscription_id in rows else ()

        return schedule

    # -- our own fault ---------------------------------------------------------------------------
    def _set_aside(self, result: Result, error: Exception) -> alerts.AlertEvent:
        """One result that cannot be written: without its line in the log, or else as poison."""
        try:
            marked = sql.retrying(lambda: self._mark_once([result], (), None))
        except (*AWAY, sql.Locked):
            raise
        except Exception:  # noqa: BLE001 - the first error is the one that says why
            self._poison(result, error)
            what = _("Delivery %(id)s is set aside, its result cannot be written: %(why)s")
        else:
            self._marked(1, marked)
            what = _("Delivery %(id)s is marked, but its attempt could not be logged: %(why)s")
        return alerts.AlertEvent(
            "notify.poison",
            _("A result of subscription %s could not be written") % result.subscription,
            what % {"id": result.id, "why": str(error)[:1000]},
            key=f"notify.poison:{result.subscription}",
        )

    def _poison(self, result: Result, error: Exception) -> None:
        rows = ReceiveMsg.objects.filter(id=result.id, claimed_by=result.claim)
        try:
            rows.exclude(status=_Status.DELIVERED).update(
                status=_Status.POISON, error=type(error).__name__, claimed_by="", updated_at=Now()
            )
        except AWAY:
            raise
        except Exception:
            # Not even its id is one: there is no row to set aside.
            log.exception("poison_not_marked", id=result.id)

    # -- now and then ----------------------------------------------------------------------------
    def _look_after(self) -> None:
        """Bring alerts in line with the subscriptions, and publish what was not published."""
        self._next_look.restart()
        try:
            failing_subscriptions.tell()
            alert_events.announce_missed()
        except Exception:
            # It is done again within a minute; marking does not wait for it.
            log.exception("alerts_not_brought_in_line")


def _is_blameless(error: Exception) -> bool:
    """Another marker, which may be frozen, has locked what these results are written to."""
    return isinstance(error, sql.Locked) or bisect.is_unavailable(error)


def _failing_since(
    rows: Mapping[int, failing_subscriptions.Row], subscription: int
) -> datetime | None:
    row = rows.get(subscription)
    return row.failing_since if row else None


def _of_outcome(results: Iterable[Result], outcome: str) -> list[Result]:
    return [result for result in results if result.outcome == outcome]


def _read(job: queues.Claimed) -> list[Result]:
    """The job's results; an unreadable job is dropped with an error, the leases bring it back."""
    try:
        return msgspec.convert(job.data, list[Result])
    except msgspec.ValidationError:
        log.exception("results_unreadable", job=job.id)
        return []
