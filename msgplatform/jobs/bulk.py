"""Runs the bulk jobs of every flow, page by page, each in one process at a time. Between pages the
runner rolls up and deletes counters, deletes expired sessions and old traces, and does the upkeep
of features (`upkeep.py`).

    pending ── claim ──▶ running ── the last page ──▶ done
    running ── its flow raises ──▶ failed
    pending or running ── pause, or a step that must wait ──▶ paused ── resume ──▶ pending
    pending, running or paused ── cancel ──▶ cancelled

Jobs take turns: the next page is of the job that has waited longest, so that a replay of millions
does not hold up a later job. The cursor is saved after each page, under the job's claim: a killed
runner's job goes on after the last saved page, and repeating a page changes nothing.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.module_loading import import_string

from msgplatform.core import features, flows, logging
from msgplatform.core.archive.copying import NotVerified
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.data import claims, ids
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.jobs.models import BulkJob
from msgplatform.jobs.outcomes import Batch, Outcomes
from msgplatform.jobs.upkeep import DeletedRows
from msgplatform.models import MessageTrace
from msgplatform.monitor import counters

log = logging.get(__name__)

PAGE = 500
LEASE_SECONDS = 30.0  # a page takes a second or two; a killed runner's job waits this long
_State = BulkJob.State


def expired_sessions() -> QuerySet[Any]:
    """The expired sessions of console users: Django leaves their rows."""
    return Session.objects.filter(expire_date__lt=timezone.now()).order_by("expire_date")


def old_traces() -> QuerySet[Any]:
    """Rows of messages that were accepted more than TRACE_DAYS ago: the tool that shows traces has
    deleted their traces, too."""
    first_id = ids.first_id_at(timezone.now() - timedelta(days=settings.TRACE_DAYS))
    return MessageTrace.objects.filter(id__lt=first_id).order_by("id")


class BulkRunner(Worker):
    role = "bulk"

    def __init__(self) -> None:
        super().__init__()
        self._housekeeping = counters.Housekeeping()
        self._outcomes = Outcomes()
        self._upkeep = [
            DeletedRows(expired_sessions),
            DeletedRows(old_traces),
            *(import_string(name)() for name in features.upkeep),
        ]

    def start(self) -> None:
        for task in self._upkeep:
            task.start()

    def stop(self) -> None:
        for task in self._upkeep:
            task.stop()

    def turn(self) -> bool:
        """Do one page of one job and, when they are due, counters, outcomes and upkeep. True if
        there may be more work. An error of a part does not stop the other parts; the first error is
        raised at the end."""
        may_have_more, errors = False, list[Exception]()
        turns: list[Callable[[], bool | None]] = [
            self._housekeeping.turn_if_due, self._outcomes.turn_if_due,
            *(task.turn for task in self._upkeep), self._turn_of_jobs,
        ]  # fmt: skip
        for turn in turns:
            try:
                may_have_more |= bool(turn())
            except Exception as error:
                is_of_database = isinstance(error, OperationalError | InterfaceError)
                if is_of_database and bisect.is_unanswered(error):
                    raise  # the other parts would wait for the database, too
                if errors:
                    log.exception("turn_failed", role=self.role)
                errors.append(error)
        if errors:
            raise errors[0]
        return may_have_more

    def _turn_of_jobs(self) -> bool:
        """Do one page of one job. True if there was a job."""
        open_jobs = BulkJob.objects.filter(state__in=[_State.PENDING, _State.RUNNING])
        claim = claims.claim(
            open_jobs.order_by("lease_until", "id"),  # NULL first: a new job
            limit=1,
            lease=LEASE_SECONDS,
            changes={"state": _State.RUNNING},
        )
        if not claim.ids:
            return False
        job = BulkJob.objects.get(pk=claim.ids[0])
        try:
            self._do_page(job)
        except Exception as error:
            row, reason = _claimed_row(job), str(error)[:2000]
            if isinstance(error, UNAVAILABLE) and not isinstance(error, NotVerified):
                # The page is repeated when the lease is over. Until then the job shows the error;
                # the next page that succeeds removes it.
                with suppress(DatabaseError):
                    row.update(error=_waiting_error(_lasting_error(job), reason), waits=True)
            else:
                row.filter(state__in=[_State.RUNNING, _State.PENDING]).update(
                    state=_State.FAILED, error=reason, finished_at=Now()
                )
            raise
        return True

    def _do_page(self, job: BulkJob) -> None:
        flow = flows.get(job.flow)
        if flow is None:
            raise ValueError(f"there is no flow named {job.flow}")
        action = flow.action(job.action)
        # Names of the filter are read for each page: one may have passed to another system.
        sets = action.owner_sets(job.filter) if job.biz_id else ()
        if any(owners and not owners & {None, job.biz_id} for owners in sets):
            raise ValueError("the filter does not mean the business system of the start any more")
        limit = min(PAGE, job.rate) if job.rate else PAGE
        batch = Batch(job)
        # If the runner is killed before the update below, the page is repeated and changes nothing.
        step = action.step(job.filter, job.cursor, limit, batch.note)
        self.heartbeat.done += step.done
        is_last = not step.cursor
        final_values = {"state": _State.DONE, "finished_at": timezone.now()}
        error = step.left_because[:2000] or _lasting_error(job)
        if step.waits_because:
            error = _waiting_error(error, step.waits_because[:2000])
        with transaction.atomic():
            # A pause or cancel during the page wins, but the page counts. The last page ends a
            # paused job too, because there is nothing to resume.
            if is_last:
                _claimed_row(job).exclude(state=_State.CANCELLED).update(**final_values)
            if step.waits_because:
                _claimed_row(job).filter(state=_State.RUNNING).update(state=_State.PAUSED)
            _claimed_row(job).update(
                cursor=step.cursor,
                done=F("done") + step.done,
                claimed_by="",
                error=error,
                waits=bool(step.waits_because),
                # The job's rate holds for all runners: none claims the job before its next page is
                # due. Without a rate no duration is added: SQLite would write the time in another
                # form, which sorts later than the same moment.
                lease_until=Now() + timedelta(seconds=step.done / job.rate) if job.rate else Now(),
            )
        batch.finish()


def _lasting_error(job: BulkJob) -> str:
    """Why messages were left alone, without the reason why the job waits."""
    return job.error.rpartition("\n")[0] if job.waits else job.error


def _waiting_error(lasting_error: str, reason: str) -> str:
    return f"{lasting_error}\n{' '.join(reason.split())}".lstrip()


def _claimed_row(job: BulkJob) -> QuerySet[BulkJob]:
    """The job's row while we hold it."""
    return BulkJob.objects.filter(pk=job.pk, claimed_by=job.claimed_by)
