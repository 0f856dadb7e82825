"""Find messages, and tell the story of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from django.db.models import Q
from django.utils import formats, timezone
from django.utils.translation import gettext as _

from msgplatform.core import ids as id_numbers
from msgplatform.core.flows import Hit, Page, TimelineEntry
from msgplatform.models import Biz
from notify.models import Attempt, BizMsg, IdempotencyKey, ReceiveMsg

# A page shows this much of a payload; the whole is in the API.
SHOWN_PAYLOAD = 16 * 1024
SHOWN_COPIES = 200
SHOWN_ATTEMPTS = 1000
_MAX_ID = 2**63 - 1


def search(query: str, limit: int) -> list[Hit]:
    """By message id, delivery id, idempotency key or exact event type; newest first."""
    query = query.strip()
    if not query:
        return []
    ids = _ids(query)
    rows = BizMsg.objects.filter(id__in=ids) if ids else BizMsg.objects.filter(event_type=query)
    found = rows.select_related("biz").order_by("-id").defer("payload")[:limit]
    return [_hit(message) for message in found]


def _ids(query: str) -> list[int]:
    """Message ids that the query names directly: as id, copy's id, or idempotency key."""
    # The index begins with the bucket, which follows from business system and key.
    places = Q()
    for biz_id in Biz.objects.values_list("id", flat=True):
        places |= Q(bucket=id_numbers.bucket(biz_id, query), biz_id=biz_id, key=query)
    keyed = IdempotencyKey.objects.filter(places) if places else IdempotencyKey.objects.none()
    ids = list(keyed.values_list("id", flat=True)[:100])
    if _is_id(query):
        ids.append(int(query))
        ids += ReceiveMsg.objects.filter(id=int(query)).values_list("msg_id", flat=True)
    return ids


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _MAX_ID


def _hit(message: BizMsg) -> Hit:
    return Hit(
        id=str(message.pk),
        title=message.event_type,
        state=str(BizMsg.State(message.state).label),
        at=message.created_at,
        biz=str(message.biz),
    )


def page(id: str) -> Page | None:
    """One message: its facts, its payload, and a line for each step of each copy."""
    if not _is_id(id):
        return None
    message = BizMsg.objects.select_related("biz").filter(id=int(id)).first()
    if message is None:
        return None
    copies = ReceiveMsg.objects.filter(msg_id=message.pk).order_by("id")
    shown = list(copies.select_related("biz_receive__receive", "biz_receive__biz")[:SHOWN_COPIES])
    payload = bytes(message.payload)
    text = payload[:SHOWN_PAYLOAD].decode("utf-8", "replace")
    if len(payload) > SHOWN_PAYLOAD:
        text += "\n… " + _("cut: %d bytes in all") % len(payload)
    return Page(
        id=str(message.pk),
        title=message.event_type,
        facts={
            _("Business system"): str(message.biz),
            _("Channel"): message.channel or "–",
            _("State"): str(BizMsg.State(message.state).label),
        },
        body=text,
        timeline=[
            TimelineEntry(message.created_at, _("Accepted"), "accepted"),
            *_story(shown),
        ],
    )


def _story(copies: Sequence[ReceiveMsg]) -> Iterator[TimelineEntry]:
    """Each copy's attempts, then what became of it."""
    attempts: dict[int, list[Attempt]] = defaultdict(list)
    rows = Attempt.objects.filter(copy_id__in=[copy.pk for copy in copies]).order_by("id")
    for attempt in rows[:SHOWN_ATTEMPTS]:
        attempts[attempt.copy_id].append(attempt)
    for copy in copies:
        for attempt in attempts[copy.pk]:
            yield _tried(copy, attempt)
        yield _entry(copy)


def _tried(copy: ReceiveMsg, attempt: Attempt) -> TimelineEntry:
    answer = f"HTTP {attempt.http_status}" if attempt.http_status else attempt.error
    parts = [answer, f"{attempt.seconds:.3f} s", attempt.detail, attempt.response_body]
    return TimelineEntry(
        attempt.at,
        _("%(consumer)s: attempt %(number)d")
        % {"consumer": copy.biz_receive.receive, "number": attempt.number},
        "attempt",
        " · ".join(part for part in parts if part),
    )


def _entry(copy: ReceiveMsg) -> TimelineEntry:
    status = ReceiveMsg.Status(copy.status)
    facts = []
    if status == ReceiveMsg.Status.PENDING and copy.send_times:
        facts.append(_("next attempt %s") % formats.localize(timezone.localtime(copy.next_at)))
    if copy.generation:
        facts.append(_("sent again %d times") % copy.generation)
    return TimelineEntry(
        copy.updated_at,
        f"{copy.biz_receive.receive}: {status.label}",
        status.name.lower(),
        ", ".join(facts),
    )
