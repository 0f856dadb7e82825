"""Starting bulk jobs, and pausing, resuming and cancelling them, for whoever may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from msgplatform.core import flows
from msgplatform.core.errors import Conflict, InvalidInput, NotNow
from msgplatform.models import AuditLog, BulkJob

_State = BulkJob.State
# Change → the state that it leads to; `BulkJob.FROM` has those from which it may come.
CHANGES: Mapping[str, _State] = {
    "pause": _State.PAUSED, "resume": _State.PENDING, "cancel": _State.CANCELLED,
}  # fmt: skip


def count(flow_name: str, action: str, filter: Mapping[str, Any]) -> flows.Counted:
    """How many messages a job would change, counted to a bound. Raises InvalidInput."""
    flow = flows.get(flow_name)
    if flow is None or not flow.actions:
        known = ", ".join(flow.name for flow in flows.all() if flow.actions)
        raise InvalidInput(f"There is no such flow. Use one of: {known}.", "flow")
    if action not in flow.actions:
        known = ", ".join(flow.actions)
        raise InvalidInput(f"There is no such action. Use one of: {known}.", "action")
    return flow.action(action).count(filter)


@dataclass(frozen=True)
class Asked:
    """What a job is to do.

    `rate` is messages a second, 0: as fast as it goes. `cursor` is the page with which it begins,
    '' the first one. A second job with the same `request_key` (at most 32 characters) is not
    started; None: no repeat is recognised.
    """

    flow: str
    action: str
    filter: Mapping[str, Any]
    rate: int = 0
    request_key: str | None = None
    cursor: str = ""


def started(asked: Asked) -> BulkJob | None:
    """The job that this request has started already. Raises Conflict if it asked for something
    else then."""
    if asked.request_key is None:
        return None
    job = BulkJob.objects.filter(started_from=asked.request_key).first()
    if job is None:
        return None
    if (job.flow, job.action, job.filter, job.rate) != (
        asked.flow, asked.action, dict(asked.filter), asked.rate,
    ):  # fmt: skip
        raise Conflict
    return job


def start(asked: Asked, counted: flows.Counted, actor: str) -> BulkJob:
    """A job that `run_bulk` takes up, with its line in the audit log; `counted` is what `count`
    said. Raises IntegrityError if another request of this name starts one at the same time."""
    with transaction.atomic():
        job = BulkJob.objects.create(
            flow=asked.flow,
            action=asked.action,
            filter=dict(asked.filter),
            total=counted.count,
            more=counted.more,
            rate=asked.rate,
            cursor=asked.cursor,
            started_from=asked.request_key,
            created_by=actor,
        )
        AuditLog.objects.create(
            actor=actor,
            action=f"bulk_{asked.action}",
            target=f"{asked.flow} #{job.pk}",
            detail={
                "filter": job.filter,
                "count": counted.count,
                "more": counted.more,
                "rate": asked.rate,
            },
        )
    return job


def change(job_id: int, name: str) -> tuple[BulkJob, bool]:
    """The job after a change of CHANGES, and whether it was in another state before.

    Raises BulkJob.DoesNotExist, and NotNow for one that has ended.
    """
    to = CHANGES[name]
    with transaction.atomic():
        job = BulkJob.objects.select_for_update().get(pk=job_id)
        same = job.state == to or (name == "resume" and job.state == _State.RUNNING)
        if same:
            return job, False
        if job.state not in BulkJob.FROM[to]:
            raise NotNow(f"This job has ended: it is {job.state}.")
        job.state = to
        job.save(update_fields=["state"])
    return job, True
