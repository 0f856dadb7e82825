"""The subscriptions to a message's event type whose payload filter excludes the message; and trials
of a filter on the latest messages.

An excluded message has no delivery. So the present filter is applied again.
"""

import heapq
import json
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _

from msgplatform.core.data import chunks, ids, sql
from msgplatform.core.errors import Unavailable, Undecryptable
from msgplatform.models import Biz
from notify import orders
from notify.archive import stores
from notify.archive.stores import Store, reading
from notify.messages.states import local
from notify.models import BizMsg, BizReceive
from notify.subscriptions import filter_conditions, formats, payload_filter
from notify.subscriptions.filter_conditions import MAX_WORK, Event, Node, TooLarge
from notify.subscriptions.matching import Filter, compile_filter

MAX_SUBSCRIPTIONS = 100  # of one system, with a filter: each takes some microseconds and a card
MAX_TRIED = 100  # messages on which a filter is tried with reasons
# Bounds of a trial's work: messages of the last day that are counted, bytes of payloads, seconds.
MAX_COUNTED, _MAX_BYTES, _MAX_SECONDS = 10_000, 64 * 1024 * 1024, 3.0
_MAX_PAGES = 50  # of each store, which are searched for the subscription's types
_MAX_SHOWN = 60  # characters of a value in a reason
_READ, _PAGE = 1_000, 100  # rows of a statement: without payloads, with them


class Mismatch(NamedTuple):
    """The condition that an event does not meet, as a sentence; `masked` leaves out the event's
    values, and operands of the filter that equal them."""

    reason: str
    masked: str


class FilteredOut(NamedTuple):
    """A subscription without a delivery of a message, and the reason."""

    subscription: BizReceive
    why: Mismatch


class TriedMessage(NamedTuple):
    """A message, and the reason why a filter excludes the message; None: it matches."""

    id: int
    event_type: str
    accepted_at: datetime
    why: Mismatch | None


class DayCounts(msgspec.Struct):
    """Messages of the last 24 hours of the subscription's types (`events`), and how many of them
    match its own filter (`coming`) and the filter that is tried (`matching`). With `is_whole` False
    only the latest were counted."""

    events: int = 0
    coming: int = 0
    matching: int = 0
    is_whole: bool = True


class FilterTrial(NamedTuple):
    messages: list[TriedMessage]
    day: DayCounts


def filtered_out(store: Store, message: Any) -> list[FilteredOut]:
    """The subscriptions of the message's system whose filter excludes the message, by id; none
    before the message is split."""
    if message.state == BizMsg.State.ACCEPTED:
        return []
    rows = BizReceive.objects.filter(biz_id=message.biz_id, created_at__lte=message.created_at)
    rows = rows.exclude(filter=None).exclude(status=BizReceive.Status.DISCARDED)
    rows = rows.select_related("biz", "receive").order_by("id")[:MAX_SUBSCRIPTIONS]
    filters = [
        (row, node)
        for row in rows
        if compile_filter(row.event_types, row.channels).matches(
            message.event_type, message.channel
        )
        and (node := node_of(row))
    ]
    if not filters:
        return []
    deliveries = store.deliveries_of([message.pk]).order_by()
    own_ids = set(deliveries.values_list("biz_receive_id", flat=True))
    filters = [(row, node) for row, node in filters if row.pk not in own_ids]
    if not filters:
        return []
    event = _event(message, filters[0][0].biz)
    return [
        FilteredOut(row, why)
        for row, node in filters
        if (why := _why(row, node, message, event)) is not None
    ]


def node_of(subscription: BizReceive) -> Node | None:
    """The subscription's filter. None without a filter, and for an invalid document, which excludes
    nothing."""
    try:
        return payload_filter.compiled(subscription.filter)
    except ValidationError:
        return None


def _why(
    subscription: BizReceive, node: Node, message: Any, event: Event | None
) -> Mismatch | None:
    """The reason why the filter `node` excludes the message; None if the delivery is missing for
    another reason, such as earlier event types of the subscription."""
    why = mismatch(node, event)
    since = subscription.filter_since
    if why and since and since > message.created_at:
        text = _("%(reason)s, by its filter of today, which holds since %(since)s")
        return Mismatch(*(text % {"reason": part, "since": local(since)} for part in why))
    if why is None and not (since and since <= message.created_at):
        text = _("its filter of today lets it through; the one of before did not")
        return Mismatch(text, text)
    return why


def try_filter(
    subscription: BizReceive, node: Node | None, max_counted: int = MAX_COUNTED
) -> FilterTrial:
    """Try the filter on the latest messages of the subscription's types and channels, newest first:
    MAX_TRIED of them with reasons, and numbers for the last day. The work is bounded, however many
    messages there are: by rows, by bytes and by time."""
    own_node = node_of(subscription)
    rule = compile_filter(subscription.event_types, subscription.channels)
    first_id = ids.first_id_at(timezone.now() - timedelta(days=1))
    deadline, size = time.monotonic() + _MAX_SECONDS, 0
    lines: list[TriedMessage] = []
    day = DayCounts()
    pages = [_latest(store, subscription.biz_id, rule, first_id, day) for store in stores.both()]
    last_id = 0
    for message in heapq.merge(*pages, key=lambda message: -message.pk):
        is_of_day = message.pk >= first_id
        if not is_of_day and len(lines) >= MAX_TRIED:
            break
        if message.pk == last_id:  # it is moving into the archive
            continue
        if size > _MAX_BYTES or day.events >= max_counted or time.monotonic() > deadline:
            day.is_whole = day.is_whole and not is_of_day
            break
        last_id, size = message.pk, size + len(message.payload)
        event = _event(message, subscription.biz)
        if is_of_day:
            day.events += 1
            day.coming += own_node is None or filter_conditions.matches(own_node, event)
            day.matching += node is None or filter_conditions.matches(node, event)
        if len(lines) < MAX_TRIED:
            why = mismatch(node, event) if node else None
            lines.append(TriedMessage(message.pk, message.event_type, message.created_at, why))
    return FilterTrial(lines, day)


def _latest(
    store: Store, biz_id: int, rule: Filter, first_id: int, day: DayCounts
) -> Iterator[Any]:
    """Yield the latest messages of a system that the rule matches, newest first. The day, which
    begins at `first_id`, is not whole if the messages that are looked at end before it."""
    before = None
    for _page in range(_MAX_PAGES):
        rows = sql.of_one(store.messages, "biz_id", biz_id).order_by("-biz_id", "-id")
        rows = rows if before is None else rows.filter(id__lt=before)
        try:
            with reading(store):
                kinds = list(rows.values_list("id", "event_type", "channel")[:_READ])
        except Unavailable:  # the hot store's messages are tried without the archive
            return
        keys = [pk for pk, event_type, channel in kinds if rule.matches(event_type, channel)]
        for page in chunks(keys, _PAGE):
            try:
                with reading(store):
                    messages = list(store.messages.filter(id__in=page).order_by("-id"))
            except Unavailable:
                return
            yield from messages
        if len(kinds) < _READ:
            return
        before = kinds[-1][0]
    if before is not None and before > first_id:
        day.is_whole = False


def lets_through(
    message: Any, filters: Sequence[tuple[BizReceive, Node | None]]
) -> Iterator[BizReceive]:
    """Yield the subscriptions whose filter the message matches; all of them if the payload is
    unreadable, as in the maker's split. `filters`: subscriptions of the message's system."""
    event, is_readable = None, True
    if any(node for _row, node in filters):
        try:
            event = _read(message, filters[0][0].biz)
        except (Undecryptable, UnicodeDecodeError):
            is_readable = False
    for row, node in filters:
        if node is None or not is_readable or filter_conditions.matches(node, event):
            yield row


def _event(message: Any, biz: Biz) -> Event | None:
    try:
        return _read(message, biz)
    except (Undecryptable, UnicodeDecodeError):
        return None


def _read(message: Any, biz: Biz) -> Event | None:
    at = f"{message.created_at:%Y-%m-%dT%H:%M:%S.%f}Z"
    body = orders.open_body(orders.body(message.event_type, at, bytes(message.payload)))
    return filter_conditions.event_of(body, message.pk, message.channel, formats.source(biz.name))


# -- reasons ---------------------------------------------------------------------------------------
def mismatch(node: Node, event: Event | None) -> Mismatch | None:
    """Why an event does not get through; None if it does."""
    try:
        if event is not None:
            event.remaining = MAX_WORK
            if node.matches(event):
                return None
            # Each `$or` asks what is below it once more.
            event.remaining = MAX_WORK * filter_conditions.MAX_DEPTH
            return _mismatch(node, event)
    except TooLarge:
        pass
    reason = _("The payload is too large, or has a number too large, to be compared")
    return Mismatch(reason, reason)


def _mismatch(node: Node, event: Event) -> Mismatch | None:
    match node:
        case filter_conditions.AllOf(nodes):
            return next(filter(None, (_mismatch(part, event) for part in nodes)), None)
        case filter_conditions.AnyOf(nodes):
            if node.matches(event):
                return None
            reasons = [why for part in nodes if (why := _mismatch(part, event))]
            return Mismatch(*(_("; and ").join(texts) for texts in zip(*reasons, strict=True)))
        case filter_conditions.Negation(_node, path, document):
            if node.matches(event):
                return None
            sentence = _("%s holds, and must not")
            text, masked_text = f"{path} {_shorten(document)}", f"{path} $not"
            return Mismatch(sentence % text.strip(), sentence % masked_text.strip())
        case filter_conditions.Condition():
            values = node.values(event)
            if node.test(values):
                return None
            words = {"path": node.path, "sign": node.sign, "operand": _shorten(node.operand)}
            masked_words = words | ({"operand": "…"} if node.is_negated else {})
            masked_text = _("%(path)s is not %(sign)s %(operand)s") % masked_words
            if node.sign == "$exist":
                reason = _("%s is there") if values else _("%s is not there")
                return Mismatch(reason % node.path, reason % node.path)
            if not values:
                return Mismatch(_("%s is not there") % node.path, masked_text)
            words["value"] = ", ".join(map(_shorten, values[:3])) + (
                ", …" if len(values) > 3 else ""
            )
            return Mismatch(
                _("%(path)s %(value)s is not %(sign)s %(operand)s") % words, masked_text
            )


def _shorten(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=float)
    except RecursionError:  # of a payload that could just be read
        return "…"
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
