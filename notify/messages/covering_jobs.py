"""Bulk jobs that may have resent a message: a job keeps its filter, not its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.utils.translation import gettext as _

from msgplatform.core import flows
from msgplatform.core.errors import InvalidInput
from msgplatform.messages.engine import read_filter
from msgplatform.models import BulkJob

_MAX_JOBS = 50  # the latest ones: each asks a few statements
_ACTIONS = ("resend", "replay", "replay_failed")


def by_jobs(message: Any, deliveries: Sequence[Any]) -> Iterator[flows.TimelineEntry]:
    """The jobs whose filter covers the message, if a delivery was sent again at all."""
    resent_deliveries = [delivery for delivery in deliveries if delivery.generation]
    if not resent_deliveries:
        return
    jobs = BulkJob.objects.filter(
        flow="notify", action__in=_ACTIONS, created_at__gte=message.created_at
    )
    for job in jobs.order_by("-id")[:_MAX_JOBS]:
        if _covers(job, message, resent_deliveries):
            title = _("Bulk job %(job)d of %(who)s covers it")
            text = title % {"job": job.pk, "who": job.created_by}
            yield flows.TimelineEntry(job.created_at, text, "linked", _link(job))


def _covers(job: BulkJob, message: Any, deliveries: Sequence[Any]) -> bool:
    flow = flows.get(job.flow)
    action = flow and flow.actions.get(job.action)
    if not action:
        return False
    try:
        values = read_filter(action.fields, job.filter)
    except InvalidInput:  # such as a subscription that was deleted since
        return False
    own_ids = {message.pk, *(delivery.pk for delivery in deliveries)}
    subscriptions = {delivery.biz_receive_id for delivery in deliveries}
    return (
        not own_ids.isdisjoint(values.get("ids", own_ids))
        and values.get("biz", message.biz_id) == message.biz_id
        and values.get("event_type", message.event_type) == message.event_type
        and ("subscription" not in values or values["subscription"] in subscriptions)
        and values.get("since", 0) <= message.pk
        and message.pk < values.get("until", message.pk + 1)
    )


def _link(job: BulkJob) -> flows.PageLink:
    flow = flows.get(job.flow)
    action = flow and flow.actions.get(job.action)
    return flows.PageLink.to(job, str(action.title) if action else job.action)
