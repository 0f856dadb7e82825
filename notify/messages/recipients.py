"""The recipients of a message: a card for each delivery, with its attempts and their answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC
from typing import Any

from django.db.models import Case, Q, Value, When
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from msgplatform.api.filters import number
from msgplatform.core import flows
from msgplatform.core.errors import InvalidInput
from notify import directory, orders
from notify.archive.stores import Store
from notify.messages.reasons import Circumstances
from notify.models import BizReceive, ReceiveMsg
from notify.subscriptions.limits import shown_url

SHOWN = 50  # on a page
SHOWN_ATTEMPTS = 200  # of all deliveries on a page together
_MAX_ATTEMPTS = 20  # of each
_READ_ATTEMPTS = 20_000  # from an index alone; the newest of them are chosen
# Commands on a page together: bytes of payload.
_COMMANDS_BYTES = 256 * 1024
_Status = ReceiveMsg.Status
FAILED = (_Status.EXHAUSTED, _Status.POISON)
OPEN = (_Status.PENDING, _Status.QUEUED, _Status.HELD)
TONES: dict[int, flows.Tone] = {
    _Status.DELIVERED: "good", _Status.EXHAUSTED: "bad", _Status.POISON: "bad",
    _Status.HELD: "warn", _Status.SKIPPED: "plain", _Status.PENDING: "plain",
    _Status.QUEUED: "plain",
}  # fmt: skip
NOTE = gettext_lazy(
    "Of a request its time is kept; of an answer the headers and the beginning of the body."
)
_SIGNATURE_NOTE = gettext_lazy(
    "Without the signature, the consumer's own headers and the query of its address, which may be "
    "secret: fill them in, or use the test send of the subscription."
)


def read(place: Store, message_id: int, after: str) -> tuple[list[Any], str]:
    """The next deliveries after a cursor, those that failed first, then those that are open; and
    the cursor after them, '' at the end. Raises InvalidInput for a wrong cursor."""
    first = Case(
        When(status__in=FAILED, then=Value(0)), When(status__in=OPEN, then=Value(1)),
        default=Value(2),
    )  # fmt: skip
    rows = place.deliveries_of([message_id]).annotate(place_in_page=first)
    if after:
        rank, _comma, last = after.partition("-")
        if rank not in ("0", "1", "2"):
            raise InvalidInput(_("there is no such page"), "after")
        later = Q(place_in_page=int(rank), id__gt=number(last, "after"))
        rows = rows.filter(later | Q(place_in_page__gt=int(rank)))
    found = list(rows.order_by("place_in_page", "id")[: SHOWN + 1])
    if len(found) <= SHOWN:
        return found, ""
    last_shown = found[SHOWN - 1]
    return found[:SHOWN], f"{last_shown.place_in_page}-{last_shown.pk}"


def attempts_of(place: Store, deliveries: Sequence[Any]) -> dict[int, list[Any]]:
    """The newest attempts of each delivery, newest first."""
    if not deliveries:
        return {}
    each = max(1, min(_MAX_ATTEMPTS, SHOWN_ATTEMPTS // len(deliveries)))
    # Answers are long: first only which attempts there are, then those that are shown.
    rows = place.attempts_of([delivery.pk for delivery in deliveries])
    # Sorted here: for the newest of an order by id a database may read its whole table backwards.
    there = rows.order_by().values_list("id", "copy_id")[:_READ_ATTEMPTS]
    newest: dict[int, list[int]] = defaultdict(list)
    for pk, delivery in sorted(there, reverse=True):
        if len(newest[delivery]) < each:
            newest[delivery].append(pk)
    wanted = [pk for pks in newest.values() for pk in pks]
    found = {row.pk: row for row in place.attempts.filter(id__in=wanted)}
    return {key: [found[pk] for pk in pks if pk in found] for key, pks in newest.items()}


def cards(
    message: Any,
    deliveries: Sequence[Any],
    attempts: dict[int, list[Any]],
    circumstances: Circumstances,
) -> list[flows.Recipient]:
    """A card for each delivery."""
    short = len(message.payload) * len(deliveries) <= _COMMANDS_BYTES
    return [
        _card(message, row, attempts.get(row.pk, []), circumstances, short) for row in deliveries
    ]


def name(subscription: BizReceive | None, subscription_id: int) -> str:
    """The consumer's name."""
    if subscription is None:
        return _("subscription %d, which was deleted") % subscription_id
    return str(subscription.receive)


def _card(
    message: Any,
    delivery: Any,
    attempts: Sequence[Any],
    circumstances: Circumstances,
    has_command: bool,
) -> flows.Recipient:
    subscription = circumstances.subscriptions.get(delivery.biz_receive_id)
    shown = name(subscription, delivery.biz_receive_id)
    status = _Status(delivery.status)
    waits = status == _Status.PENDING and delivery.next_at > circumstances.now
    notes = []
    if status in (_Status.PENDING, _Status.QUEUED) and circumstances.lanes is None:
        notes.append(_("Redis is unavailable: whether its breaker is open is not known."))
    return flows.Recipient(
        id=str(delivery.pk),
        name=flows.PageLink.to(subscription, shown) if subscription else shown,
        state=str(status.label),
        tone=TONES[status],
        since=delivery.updated_at,
        why=circumstances.why(delivery),
        next_at=delivery.next_at if waits else None,
        facts=_facts(delivery, subscription),
        attempts=[_attempt(row) for row in attempts],
        attempts_title=_("Attempts, newest first"),
        notes=notes,
        resend_effect=_again(delivery, status, subscription),
        call=_call(message, subscription, shown) if subscription and has_command else None,
    )


def _facts(delivery: Any, subscription: BizReceive | None) -> dict[str, flows.Value]:
    tried = str(delivery.send_times)
    if subscription is not None:
        with suppress(*directory.UNUSABLE):  # a schedule that somebody must correct
            most = len(directory.waits(subscription.schedule, subscription.attempts_limit)) + 1
            tried = _("%(tried)d of %(most)d") % {"tried": delivery.send_times, "most": most}
    facts: dict[str, flows.Value] = {_("Attempts"): tried, _("Delivery"): str(delivery.pk)}
    if subscription is not None:
        facts[_("Address")] = shown_url(subscription.receive.url)
    if delivery.generation:
        text = ngettext("%d time", "%d times", delivery.generation)
        facts[_("Sent again")] = text % delivery.generation
    return facts


def _attempt(row: Any) -> flows.Attempt:
    delivered = 200 <= row.http_status < 300 and not row.error
    sections = [
        flows.Section(_("Headers of the answer"), row.response_headers.strip()),
        flows.Section(_("Body of the answer"), row.response_body.strip()),
    ]
    return flows.Attempt(
        at=row.at,
        title=_("Attempt %d") % row.number,
        answer=answer(row),
        tone="good" if delivered else "bad",
        seconds=row.seconds,
        detail=row.detail,
        sections=[section for section in sections if section.body],
    )


def answer(attempt: Any) -> str:
    return f"HTTP {attempt.http_status}" if attempt.http_status else attempt.error


def _again(delivery: Any, status: ReceiveMsg.Status, subscription: BizReceive | None) -> str:
    if subscription is None or subscription.status == BizReceive.Status.DISCARDED:
        return ""
    if status == _Status.DELIVERED:
        return _("The consumer has accepted it already: it gets it once more, with the same "
                 "webhook-id.")  # fmt: skip
    if status in (*FAILED, _Status.SKIPPED):
        return _("It gets all its attempts anew; the log of the earlier ones stays.")
    if status == _Status.PENDING and delivery.send_times:
        return _("It is due now instead of at its next attempt, and gets all its attempts anew.")
    return ""


def _call(message: Any, subscription: BizReceive, shown: str) -> flows.Call:
    """The request as it would be made today; nobody kept it."""
    prefix = subscription.receive.header_prefix
    at = f"{message.created_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    return flows.Call(
        _("Repeat this delivery with curl"),
        shown_url(subscription.receive.url),
        {
            "Content-Type": "application/json",
            f"{prefix}-id": str(message.pk),
            f"{prefix}-timestamp": "UNIX_SECONDS",
            f"{prefix}-signature": "v1,SIGNATURE",
        },
        orders.body(message.event_type, at, bytes(message.payload)),
        note=_SIGNATURE_NOTE,
    )
