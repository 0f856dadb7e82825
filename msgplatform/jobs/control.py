"""Starting, pausing, resuming and cancelling bulk jobs. The callers check permissions."""

from collections.abc import Mapping
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone

from msgplatform.core import flows
from msgplatform.core.errors import Conflict, InvalidInput, NotNow
from msgplatform.core.flows.bulk_pages import Counted
from msgplatform.jobs.models import BulkJob
from msgplatform.models import AuditLog

_State = BulkJob.State


def count(flow_name: str, action: str, filter_values: Mapping[str, Any]) -> Counted:
    """Count the messages that a job would change, up to a bound. Raises InvalidInput."""
    flow = flows.get(flow_name)
    if flow is None or not flow.actions:
        names = ", ".join(other.name for other in flows.all() if other.actions)
        raise InvalidInput(f"There is no such flow. Use one of: {names}.", "flow")
    return flow.action(action).count(filter_values)


class JobRequest(msgspec.Struct, frozen=True):
    """A request to start a job.

    `rate` is messages a second, 0 for no limit. `cursor` is the job's first page, '' for the first
    of all. A second request with the same `request_key` (at most 32 characters; None: no check)
    starts no job. `system_id` is the business system of all its messages, None for several: people
    who are limited to business systems see only the jobs of their systems. `sent_filter` is the
    filter before its times got a zone: a job that the release before has started has it.
    """

    flow: str
    action: str
    filter: Mapping[str, Any]
    rate: int = 0
    request_key: str | None = None
    cursor: str = ""
    system_id: int | None = None
    sent_filter: Mapping[str, Any] | None = None


def find_started(request: JobRequest) -> BulkJob | None:
    """The job that an earlier request with the same key started, or None. Raises Conflict if that
    request asked for another job."""
    if request.request_key is None:
        return None
    job = BulkJob.objects.filter(started_from=request.request_key).first()
    if job is None:
        return None
    is_equal = (job.flow, job.action, job.rate) == (request.flow, request.action, request.rate)
    if not is_equal or job.filter not in (request.filter, request.sent_filter):
        raise Conflict
    return job


def start(request: JobRequest, size: Counted, actor: str) -> BulkJob:
    """Create a job for `run_bulk`, with its line in the audit log; `size` is the answer of `count`.
    Raises IntegrityError if another request with this key starts a job at the same time."""
    with transaction.atomic():
        job = BulkJob.objects.create(
            flow=request.flow,
            action=request.action,
            filter=dict(request.filter),
            biz_id=request.system_id,
            total=size.count,
            more=size.more,
            rate=request.rate,
            cursor=request.cursor,
            started_from=request.request_key,
            created_by=actor,
        )
        AuditLog.record(
            actor, f"bulk_{request.action}", f"{request.flow} #{job.pk}",
            filter=job.filter, count=size.count, more=size.more, rate=request.rate,
        )  # fmt: skip
    return job


def change(job_id: int, state: str, actor: str) -> tuple[BulkJob, bool]:
    """Bring a job into a state of `BulkJob.FROM`, with its line in the audit log. Returns the job,
    and whether its state has changed.

    Raises BulkJob.DoesNotExist, and NotNow for a job that has ended.
    """
    with transaction.atomic():
        job = BulkJob.objects.select_for_update().get(pk=job_id)
        if job.state == state or (state, job.state) == (_State.PENDING, _State.RUNNING):
            return job, False
        if job.state not in BulkJob.FROM[state]:
            raise NotNow(f"This job has ended: it is {job.state}.")
        changes = {"state": [job.state, state]}
        AuditLog.record(actor, f"bulk_{state}", job.audit_target, changes=changes)
        job.state = state
        if state == _State.CANCELLED:
            job.finished_at = timezone.now()
        job.save(update_fields=["state", "finished_at"])
    return job, True
