"""Everything about one message, wherever it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

from django.utils import formats, timezone
from django.utils.translation import gettext as _

from msgplatform.api.filters import number
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import File, Page, TimelineEntry
from msgplatform.models import Biz
from notify.archive import stores
from notify.archive.stores import Place, reading
from notify.models import BizMsg, BizReceive, ReceiveMsg, RestoredMsg

T = TypeVar("T")

# A page shows this much of a payload; the whole is a file beside it, and in the API.
SHOWN_PAYLOAD = 16 * 1024
SHOWN_DELIVERIES = 200
SHOWN_ATTEMPTS = 1000


def page(id: str) -> Page | None:
    """One message: its facts, its payload, and a line for each step of each delivery.

    Raises Unavailable when it is not among the hot ones and the archive cannot be read.
    """
    return _found(id, _page)


def file(id: str) -> File | None:
    """Its whole payload, byte for byte. Raises as `page` does."""
    return _found(
        id,
        lambda _place, message: File(
            f"{message.event_type}-{message.pk}.json", "application/json", bytes(message.payload)
        ),
    )


def _found(id: str, shown: Callable[[Place, Any], T]) -> T | None:
    """What `shown` makes of the message; None for an unknown id."""
    try:
        message_id = number(id)
    except InvalidInput:
        return None
    # Hot first: a message that moves meanwhile is found in the archive.
    for place in (stores.hot(), stores.cold()):
        with reading(place):
            message = place.messages.filter(id=message_id).first()
            if message is not None:
                return shown(place, message)
    return None


def _page(place: Place, message: Any) -> Page:
    deliveries = list(place.deliveries_of([message.pk]).order_by("id")[:SHOWN_DELIVERIES])
    timeline = [TimelineEntry(message.created_at, _("Accepted"), "accepted")]
    timeline += _entries(place, deliveries)
    state = _("archived") if place.cold else str(BizMsg.State(message.state).label)
    if restored_at := _restored_at(place, message):
        # The entries are in the order of deliveries, so it goes before the first that is later.
        later = (n for n, entry in enumerate(timeline) if entry.at and entry.at >= restored_at)
        came_back = TimelineEntry(restored_at, _("Brought back from the archive"), "accepted")
        timeline.insert(next(later, len(timeline)), came_back)
    if place.cold:
        timeline.append(TimelineEntry(message.archived_at, _("Archived"), "done"))
    biz = Biz.objects.filter(id=message.biz_id).first()
    payload = bytes(message.payload)
    body = payload[:SHOWN_PAYLOAD].decode("utf-8", "replace")
    if len(payload) > SHOWN_PAYLOAD:
        body += "\n… " + _("cut: %d bytes in all") % len(payload)
    return Page(
        id=str(message.pk),
        title=message.event_type,
        facts={
            _("Business system"): str(biz or message.biz_id),
            _("Channel"): message.channel or "–",
            _("State"): state,
        },
        body=body,
        timeline=timeline,
        bulk="requeue",
        has_file=True,
    )


def _restored_at(place: Place, message: Any) -> datetime | None:
    """When it last came back from the archive."""
    if place.cold:
        return cast(datetime | None, message.restored_at)
    rows = RestoredMsg.objects.filter(id=message.pk)
    return rows.values_list("restored_at", flat=True).first()


def _entries(place: Place, deliveries: Sequence[Any]) -> Iterator[TimelineEntry]:
    """The attempts of each delivery, then what became of it."""
    attempts: dict[int, list[Any]] = defaultdict(list)
    rows = place.attempts_of([delivery.pk for delivery in deliveries]).order_by("id")
    for attempt in rows[:SHOWN_ATTEMPTS]:
        attempts[attempt.copy_id].append(attempt)
    wanted = {delivery.biz_receive_id for delivery in deliveries}
    subscriptions = BizReceive.objects.filter(id__in=wanted).select_related("receive")
    names = {row.pk: str(row.receive) for row in subscriptions}
    for delivery in deliveries:
        consumer = names.get(delivery.biz_receive_id, str(delivery.biz_receive_id))
        for attempt in attempts[delivery.pk]:
            answer = f"HTTP {attempt.http_status}" if attempt.http_status else attempt.error
            parts = [answer, f"{attempt.seconds:.3f} s", attempt.detail, attempt.response_body]
            title = _("%(consumer)s: attempt %(number)d")
            yield TimelineEntry(
                attempt.at,
                title % {"consumer": consumer, "number": attempt.number},
                "attempt",
                " · ".join(part for part in parts if part),
            )
        yield _end(consumer, delivery)


def _end(consumer: str, delivery: Any) -> TimelineEntry:
    status = ReceiveMsg.Status(delivery.status)
    facts = []
    if status == ReceiveMsg.Status.PENDING and delivery.send_times:
        next_at = formats.localize(timezone.localtime(delivery.next_at))
        facts.append(_("next attempt %s") % next_at)
    if delivery.generation:
        facts.append(_("sent again %d times") % delivery.generation)
    return TimelineEntry(
        delivery.updated_at,
        f"{consumer}: {status.label}",
        status.name.lower(),
        ", ".join(facts),
    )
