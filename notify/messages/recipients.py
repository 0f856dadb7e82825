"""The recipients of a message: a card for each delivery, with its attempts and their answers."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Case, Q, Value, When
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.page import Attempt, Call, PageLink, Recipient, Section, Value as Fact
from msgplatform.messages.filters import number
from notify import directory, orders
from notify.archive.stores import Store
from notify.maker import ending
from notify.messages import states
from notify.messages.explanations import Circumstances
from notify.messages.filtered import FilteredOut
from notify.messages.states import TONES, Status
from notify.models import BizReceive, ReceiveMsg
from notify.subscriptions import limits
from notify.subscriptions.formats import CONTENT_TYPES, CloudEvents, source

SHOWN = 50  # deliveries on a page
SHOWN_ATTEMPTS = 200  # attempts on a page
_MAX_ATTEMPTS = 20  # attempts of each delivery
_READ_ATTEMPTS = 20_000  # ids read from an index, to choose the newest
COMMANDS_BYTES = 256 * 1024  # of payload in all commands on a page
NOTE = gettext_lazy(
    "Of a request its time is kept; of an answer the headers and the beginning of the body."
)
_SIGNATURE_NOTE = gettext_lazy(
    "Without the signature, the consumer's own headers and the query of its address, which may be "
    "secret: fill them in, or use the test send of the subscription."
)


def read(store: Store, message_id: int, after: str) -> tuple[list[Any], str]:
    """The next deliveries after a cursor: failed deliveries first, then open ones, then the rest;
    and the next cursor, '' at the end. Raises InvalidInput for a wrong cursor."""
    place_in_page = Case(
        When(status__in=ReceiveMsg.FAILED, then=Value(0)),
        When(status__in=ReceiveMsg.OPEN, then=Value(1)),
        default=Value(2),
    )
    rows = store.deliveries_of([message_id]).annotate(place_in_page=place_in_page)
    if after:
        rank, _comma, last = after.partition("-")
        if rank not in ("0", "1", "2"):
            raise InvalidInput(_("there is no such page"), "after")
        condition = Q(place_in_page=int(rank), id__gt=number(last, "after"))
        rows = rows.filter(condition | Q(place_in_page__gt=int(rank)))
    rows_of_page = list(rows.order_by("place_in_page", "id")[: SHOWN + 1])
    if len(rows_of_page) <= SHOWN:
        return rows_of_page, ""
    last_shown = rows_of_page[SHOWN - 1]
    return rows_of_page[:SHOWN], f"{last_shown.place_in_page}-{last_shown.pk}"


def attempts_of(store: Store, deliveries: Sequence[Any]) -> dict[int, list[Any]]:
    """The newest attempts of each delivery, newest first."""
    if not deliveries:
        return {}
    max_attempts = max(1, min(_MAX_ATTEMPTS, SHOWN_ATTEMPTS // len(deliveries)))
    # Answers are long, so read the ids first, then the attempts to show.
    rows = store.attempts_of([delivery.pk for delivery in deliveries])
    # Sort in Python: with ORDER BY id DESC a database may read its whole table backwards.
    pairs = rows.order_by().values_list("id", "copy_id")[:_READ_ATTEMPTS]
    newest: dict[int, list[int]] = defaultdict(list)
    for pk, delivery in sorted(pairs, reverse=True):
        if len(newest[delivery]) < max_attempts:
            newest[delivery].append(pk)
    newest_ids = [pk for pks in newest.values() for pk in pks]
    attempts_by_id = {row.pk: row for row in store.attempts.filter(id__in=newest_ids)}
    return {
        key: [attempts_by_id[pk] for pk in pks if pk in attempts_by_id]
        for key, pks in newest.items()
    }


def filtered_card(row: FilteredOut) -> Recipient:
    """The card of a subscription that has no delivery because of its filter."""
    text = _("Filtered: %s.")
    return Recipient(
        id="",
        name=PageLink.to(row.subscription, str(row.subscription.receive)),
        state=_("filtered"),
        tone="plain",
        why=text % row.why.reason,
        masked_why=text % row.why.masked,
    )


def card(
    message: Any,
    delivery: Any,
    attempts: Sequence[Any],
    circumstances: Circumstances,
    has_command: bool,
) -> Recipient:
    """The card of a delivery, with the command that repeats its request if `has_command`."""
    subscription = circumstances.subscriptions.get(delivery.biz_receive_id)
    consumer = states.consumer_name(subscription, delivery.biz_receive_id)
    status = Status(delivery.status)
    is_waiting = status == Status.PENDING and delivery.next_at > circumstances.now
    notes = []
    if status in ReceiveMsg.WAITING and circumstances.lanes is None:
        notes.append(_("Redis is unavailable: whether its breaker is open is not known."))
    tries = str(delivery.send_times)
    if subscription is not None:
        with suppress(*directory.UNUSABLE):  # a schedule that somebody must correct
            waits = directory.waits(subscription.schedule, subscription.attempts_limit)
            numbers = {"tried": delivery.send_times, "most": len(waits) + 1}
            tries = _("%(tried)d of %(most)d") % numbers
    facts: dict[str, Fact] = {_("Attempts"): tries, _("Delivery"): str(delivery.pk)}
    if subscription is not None:
        receive = subscription.receive
        url = _("a listener") if receive.is_listened else limits.shown_url(receive.url)
        facts[_("Address")] = url
    if delivery.generation:
        text = ngettext("%d time", "%d times", delivery.generation)
        facts[_("Sent again")] = text % delivery.generation
    return Recipient(
        id=str(delivery.pk),
        name=PageLink.to(subscription, consumer) if subscription else consumer,
        state=str(status.label),
        tone=TONES[status],
        since=delivery.updated_at,
        why=circumstances.why(delivery),
        next_at=delivery.next_at if is_waiting else None,
        facts=facts,
        attempts=[_attempt(row, subscription, circumstances.now) for row in attempts],
        attempts_title=_("Attempts, newest first"),
        notes=notes,
        resend_effect=_resend_effect(delivery, status, subscription),
        call=_call(message, subscription, consumer)
        if subscription and has_command and not subscription.receive.is_listened
        else None,
    )


def _attempt(row: Any, subscription: BizReceive | None, now: datetime) -> Attempt:
    is_delivered = 200 <= row.http_status < 300 and not row.error
    sections = [
        Section(_("Answer"), _removal_reason(row, subscription, is_delivered, now)),
        Section(_("Headers of the answer"), row.response_headers.strip()),
        Section(_("Body of the answer"), row.response_body.strip()),
    ]
    return Attempt(
        at=row.at,
        title=_("Attempt %d") % row.number,
        answer=states.answer(row),
        tone="good" if is_delivered else "bad",
        seconds=row.seconds,
        detail=row.detail,
        sections=[section for section in sections if section.body],
    )


def _removal_reason(
    row: Any, subscription: BizReceive | None, is_delivered: bool, now: datetime
) -> str:
    """The reason why the answer of an attempt is not stored; '' if it is, or there was none."""
    if not row.http_status or row.response_headers or row.response_body:
        return ""
    if subscription is not None:
        policy, days = subscription.log_answers, subscription.log_days
        seconds = limits.answer_seconds(policy, days)
        is_old = seconds is not None and row.at < now - timedelta(seconds=seconds)
        if is_old or not limits.is_answer_kept(policy, is_delivered):
            return _("Not kept, by the log policy of this subscription.")
    return _("Nothing of it was kept.")


def _resend_effect(delivery: Any, status: Status, subscription: BizReceive | None) -> str:
    if subscription is None or subscription.status == BizReceive.Status.DISCARDED:
        return ""
    if ending.is_erased(status, delivery.error):
        return ""
    if status == Status.DELIVERED:
        return _("The consumer has accepted it already: it gets it once more, with the same "
                 "webhook-id.")  # fmt: skip
    if status in (*ReceiveMsg.FAILED, Status.SKIPPED):
        return _("It gets all its attempts anew; the log of the earlier ones stays.")
    if status == Status.PENDING and delivery.send_times:
        return _("It is due now instead of at its next attempt, and gets all its attempts anew.")
    return ""


def _call(message: Any, subscription: BizReceive, consumer: str) -> Call:
    """The request as a sender would make it now. Requests are not stored."""
    prefix = subscription.receive.header_prefix
    at = f"{message.created_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    body = orders.body(message.event_type, at, bytes(message.payload))
    attributes: tuple[str, ...] = ()
    if cloud_events := CloudEvents.of(subscription.format, source(subscription.biz.name)):
        content, attributes = cloud_events.render(str(message.pk), body)
        body = content.decode()
    return Call(
        _("Repeat this delivery with curl"),
        limits.shown_url(subscription.receive.url),
        {
            "Content-Type": CONTENT_TYPES[subscription.format],
            **dict(line.split(": ", 1) for line in attributes),
            f"{prefix}-id": str(message.pk),
            f"{prefix}-timestamp": "UNIX_SECONDS",
            f"{prefix}-signature": "v1,SIGNATURE",
        },
        body,
        note=_SIGNATURE_NOTE,
    )
