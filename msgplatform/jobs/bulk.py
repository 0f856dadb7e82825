"""Works off bulk jobs of every flow, page by page, one process a job at a time; keeps counters,
and deletes expired sessions.

The cursor is saved after each page, under the job's claim: a killed runner's job is taken up
again at the last saved page, and a page that is repeated changes nothing.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from msgplatform.core import flows, logging
from msgplatform.core.daemons.away import AWAY
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.data import claims
from msgplatform.jobs import counters
from msgplatform.jobs.sessions import ExpiredSessions
from msgplatform.models import BulkJob

log = logging.get(__name__)

PAGE = 500
LEASE_SECONDS = 30.0
_State = BulkJob.State


class BulkRunner(Worker):
    role = "bulk"

    def __init__(self) -> None:
        super().__init__()
        self._housekeeping = counters.Housekeeping()
        self._expired_sessions = ExpiredSessions()

    def turn(self) -> bool:
        """One page of one job; true when there was one. Now and then, the days' counters and
        expired sessions."""
        self._housekeeping.turn_if_due()
        self._expired_sessions.turn_if_due()
        open_jobs = BulkJob.objects.filter(state__in=[_State.PENDING, _State.RUNNING])
        if not open_jobs.exists():
            return False
        claim = claims.claim(
            open_jobs.order_by("id"), limit=1, lease=LEASE_SECONDS, set={"state": _State.RUNNING}
        )
        if not claim.ids:
            return False
        job = BulkJob.objects.get(pk=claim.ids[0])
        try:
            self._page(job)
        except AWAY:
            raise
        except Exception as error:
            # The job steps aside and says why; the next one goes on.
            _mine(job).update(state=_State.FAILED, error=str(error)[:2000], finished_at=Now())
            raise
        return True

    def _page(self, job: BulkJob) -> None:
        flow = flows.get(job.flow)
        if flow is None:
            raise ValueError(f"there is no flow named {job.flow}")
        limit = min(PAGE, job.rate) if job.rate else PAGE
        step = flow.bulk_step(job.action, job.filter, job.cursor, limit)
        self.heartbeat.done += step.done
        finished = not step.cursor
        _mine(job).update(
            cursor=step.cursor,
            done=F("done") + step.done,
            claimed_by="",
            # The pace of all runners together: nobody can claim the job before its next page.
            lease_until=Now() + timedelta(seconds=step.done / job.rate) if job.rate else None,
            **({"state": _State.DONE, "finished_at": timezone.now()} if finished else {}),
        )


def _mine(job: BulkJob) -> QuerySet[BulkJob]:
    """Still ours and still running: a pause or cancel from the console wins over a page."""
    return BulkJob.objects.filter(
        pk=job.pk, claimed_by=job.claimed_by, state__in=[_State.RUNNING, _State.PENDING]
    )
