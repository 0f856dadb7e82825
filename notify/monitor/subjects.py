"""Subscriptions as the subject of counters and failures; the failures of subscriptions for the page
Failures."""

from datetime import datetime
from typing import Any

from django.utils.translation import gettext_lazy, gettext_noop

from msgplatform.core.flows.health import MAX_FAILURES, Button, Failure
from msgplatform.core.flows.text import ViewLink
from msgplatform.models import FailureGroup
from msgplatform.monitor import failure_groups
from msgplatform.monitor.subjects import Subject
from notify.models import BizReceive, ReceiveMsg
from notify.monitor.counters import FLOW
from notify.monitor.failures import POISON
from notify.subscriptions import sandbox

DELIVER_NOW = Button(
    gettext_lazy("Deliver now"), "admin:notify_bizreceive_deliver", "notify.operate_bizreceive"
)
SUBSCRIPTION = Subject(
    "subscription",
    gettext_lazy("subscription"),
    lambda: BizReceive.objects.select_related("biz", "receive").only(
        "status",
        "biz__name",
        "biz__title",
        "receive__name",
        "receive__title",
        "receive__delivery",
        "receive__url",
    ),
    gettext_noop("subscription %(id)d, which was deleted"),
)


def _open_since(group: FailureGroup) -> datetime:
    """The time of the group's first open failure. It is later than `counted_since` if earlier
    failures were acknowledged."""
    return max(group.since, group.counted_since)


def failures(limit: int = MAX_FAILURES) -> list[Failure]:
    """The failures of each subscription, by answer."""
    groups = failure_groups.open_groups(FLOW, limit)
    samples = ReceiveMsg.objects.filter(id__in=[group.sample for group in groups])
    # A failure whose sample is archived has no message on the page.
    message_ids = dict(samples.values_list("id", "msg_id"))

    # The links filter by subscription. Their bounds must include every open failure.
    place_bounds: dict[int, dict[str, str]] = {}
    for group in sorted(groups, key=lambda group: (group.has_acknowledged, _open_since(group))):
        is_bound = group.has_acknowledged
        bound_values = {"failed_since": _open_since(group).isoformat()} if is_bound else {}
        place_bounds.setdefault(group.subject, bound_values)

    def details(group: FailureGroup, row: BizReceive | None) -> dict[str, Any]:
        status = "poison" if group.answer.startswith(POISON) else "exhausted"
        name = row.full_name if row else str(group.subject)
        in_place = {"subscription": name, "status": status}
        query = {"subscription": str(group.subject), "status": status}
        return {
            "message": str(message_ids.get(group.sample, "")),
            "list_page": ViewLink("console:find", (FLOW,), query),
            "action": "resend",
            "filter": {**in_place, "answer": group.answer, **group.bound("failed_since")},
            "place_filter": {**in_place, **place_bounds[group.subject]},
            "system": row.biz.name if row else "",
            "button": DELIVER_NOW if row and row.status in BizReceive.ACTIVE else None,
            # Failures of a listener or a sandbox need no person.
            "is_quiet": row is not None
            and (row.receive.is_listened or sandbox.is_sandbox(row.receive.url)),
        }

    return SUBSCRIPTION.failures(groups, details)
