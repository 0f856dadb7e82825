"""Make a sandbox for a business system: a consumer, and the subscription that joins the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db import transaction
from django.utils.translation import gettext_noop as _

from msgplatform.core.errors import InvalidInput
from msgplatform.core.lazy_text import lazy_message
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
from notify.subscriptions import sandbox

# Four attempts in two minutes, so that a person who tests failures sees the retries.
SCHEDULE = [5, 30, 60]
IN_FLIGHT = 4
_TAKEN = _("A consumer %(name)s exists already, and is no sandbox.")


def name_of(biz: Biz) -> str:
    """The name of a system's sandbox."""
    return f"sandbox-{biz.name}"[:64]


@transaction.atomic
def make(
    biz: Biz, event_types: Sequence[str], format: str, audit: Callable[..., object]
) -> BizReceive:
    """Make or change the subscription of the system's sandbox to these event types in this format.
    `audit` is called with an action and its target. Raises InvalidInput when another consumer has
    the name."""
    name = name_of(biz)
    consumer, is_new = Receive.objects.get_or_create(
        name=name, defaults={"url": sandbox.URL, "title": f"Sandbox · {biz}"[:200]}
    )
    if not sandbox.is_sandbox(consumer.url):
        raise InvalidInput(lazy_message(_TAKEN, name=name), "system")
    if is_new:
        audit("consumer_added", name)
    row, is_new = BizReceive.objects.get_or_create(
        biz=biz,
        receive=consumer,
        defaults={"schedule": SCHEDULE, "in_flight_limit": IN_FLIGHT},
    )
    row.event_types, row.format = list(event_types), format
    for field, value in {"status": BizReceive.Status.NORMAL, **BizReceive.RESUMED}.items():
        setattr(row, field, value)
    row.save()
    audit(
        "subscription_added" if is_new else "subscription_changed",
        f"{row} #{row.pk}",
        event_types=row.event_types,
        format=format,
    )
    return row


def sandboxes() -> list[BizReceive]:
    """The subscriptions of sandboxes, without discarded ones, by name."""
    rows = BizReceive.objects.select_related("biz", "receive").filter(
        receive__url__icontains=sandbox.HOST
    )
    rows = rows.exclude(status=BizReceive.Status.DISCARDED).order_by("biz__name", "receive__name")
    return [row for row in rows[:500] if sandbox.is_sandbox(row.receive.url)]
