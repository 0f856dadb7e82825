"""Accept events: durable before the answer, and accepted once, however often an event is sent.

The API, SMS and the Agent call this module. `publish_many` returns a verdict for each event
(`created`, `duplicate`, `rejected`) and raises only when no verdict is known. `publish` is for
single requests: requests that arrive in a process at the same time share one commit."""

import dataclasses
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import msgspec

from msgplatform.core.daemons.snapshot import Snapshot
from msgplatform.core.data import sql
from msgplatform.core.errors import UNAVAILABLE, InvalidInput
from msgplatform.core.intake import idempotency
from msgplatform.core.intake.group_commit import Intake
from msgplatform.core.intake.idempotency import Item
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.core.json.values import MAX_DEPTH, depth
from msgplatform.core.secrets import encryption
from msgplatform.core.tracing.context import Start
from msgplatform.models import Biz
from notify import signals
from notify.models import BizMsg, BizReceive, IdempotencyKey
from notify.subscriptions import limits, matching

_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
_REMEMBERED_SECONDS = 60.0  # for which a kind of events counts as subscribed
_MAX_KINDS = 10_000
# Subscriptions that one commit reads to find events without recipients. With more it finds none.
_MAX_SUBSCRIPTIONS = 1000
Kind = tuple[int, str, str]  # business system, event type, channel
# Kinds of events with a subscription → the time until which that is remembered. Kinds without a
# subscription are not remembered, so that a first subscription counts at once.
_subscribed: dict[Kind, float] = {}


class Event(msgspec.Struct, frozen=True):
    """An event of a business system. `payload` is JSON text, kept and sent byte for byte. `trace`
    is None unless the event is traced."""

    biz: int
    event_type: str
    payload: bytes
    idempotency_key: str | None = None
    channel: str = ""
    trace: Start | None = None


def check(event: Event) -> None:
    """Raise InvalidInput, naming the field and what to change."""
    check_event_type(event.event_type)
    if event.channel and not limits.CHANNEL.fullmatch(event.channel):
        raise InvalidInput("use at most 64 letters, digits and _ . : -", "channel")
    if event.idempotency_key is not None:
        idempotency.check_key(event.idempotency_key)
    if len(event.payload) > limits.MAX_PAYLOAD_BYTES:
        text = f"it must not be longer than {limits.MAX_PAYLOAD_BYTES} bytes"
        raise InvalidInput(text, "payload")
    try:
        event.payload.decode("utf-8")
        document = msgspec.json.decode(event.payload)
    except RecursionError:
        raise InvalidInput(_TOO_DEEP, "payload") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"it is not JSON in UTF-8: {error}", "payload") from None
    # Counted first: nearly no payload opens so many arrays and objects at all.
    bracket_count = event.payload.count(b"[") + event.payload.count(b"{")
    if bracket_count > MAX_DEPTH and depth(document) > MAX_DEPTH:
        raise InvalidInput(_TOO_DEEP, "payload")


def check_event_type(event_type: str) -> None:
    """Raises InvalidInput."""
    if not matching.EVENT_TYPE.fullmatch(event_type):
        raise InvalidInput(
            "use letters, digits and _ - : / in parts joined by dots, at most 128 characters, "
            "such as order.paid",
            "event_type",
        )


def stored_before(event: Event) -> Verdict | None:
    """The verdict `duplicate` if the event was stored before under its key; None for a new event.
    Raises InvalidInput."""
    item = _item(event)
    if item.key is None:
        return None
    first_id, first_hash = idempotency.read_first_items([item], IdempotencyKey).get(
        (item.biz, item.key), (0, "")
    )
    is_same = first_hash == item.payload_hash
    return Verdict.duplicate_or_conflict(is_same, first_id) if is_same else None


def _item(event: Event) -> Item[Event]:
    """The event as the idempotent store takes it. Raises InvalidInput."""
    check(event)
    # A duplicate has the same key and the same parts as the first request.
    hashed_parts = event.event_type.encode(), event.channel.encode(), event.payload
    return idempotency.item(
        event, event.biz, event.idempotency_key, *hashed_parts, trace=event.trace
    )


def _store(items: Sequence[Item[Event]]) -> list[Verdict]:
    _SEALED_SYSTEMS.refresh()  # outside of the transaction
    insert = partial(_insert, sealed_systems=_SEALED_SYSTEMS.known)
    verdicts = idempotency.store(items, IdempotencyKey, insert, flow="notify")
    # After the commit, because a maker that looks earlier finds nothing.
    signals.MAKER.send()
    events = [item.body for item in items]
    kinds = [(event.biz, event.event_type, event.channel) for event in events]
    # The verdicts on events of these kinds, with `recipients` 0 for a new event without a
    # subscription.
    pairs = list(zip(kinds, verdicts, strict=True))
    new_kinds = {kind for kind, verdict in pairs if verdict.outcome == "created"}
    lonely_kinds = set[Kind]()
    with suppress(*UNAVAILABLE):  # the events are stored, so the verdicts hold
        lonely_kinds = _without_subscription(new_kinds)
    return [
        dataclasses.replace(verdict, recipients=0)
        if verdict.outcome == "created" and kind in lonely_kinds
        else verdict
        for kind, verdict in pairs
    ]


def _insert(items: Sequence[Item[Event]], now: object, *, sealed_systems: frozenset[int]) -> None:
    state = int(BizMsg.State.ACCEPTED)
    sql.insert_or_keep(
        "biz_msg",
        ("id", "biz_id", "event_type", "channel", "payload", "state", "created_at"),
        [
            (
                item.id,
                e.biz,
                e.event_type,
                e.channel,
                encryption.seal(e.payload) if e.biz in sealed_systems else e.payload,
                state,
                now,
            )
            for item, e in ((item, item.body) for item in items)
        ],
    )


_INTAKE = Intake(_item, _store)
publish, publish_many, publish_later = _INTAKE.add, _INTAKE.add_many, _INTAKE.add_later


def forget_recipients() -> None:
    """Forget the remembered kinds of events, so that subscriptions are read again."""
    _subscribed.clear()


def _without_subscription(kinds: set[Kind]) -> set[Kind]:
    now = time.monotonic()
    kinds = {kind for kind in kinds if _subscribed.get(kind, 0.0) < now}
    if not kinds:
        return kinds
    rows = BizReceive.objects.filter(biz_id__in={biz_id for biz_id, *_ in kinds}).order_by()
    rows = rows.exclude(status=BizReceive.Status.DISCARDED)
    page = list(rows.values_list("biz_id", "event_types", "channels")[:_MAX_SUBSCRIPTIONS])
    if len(page) == _MAX_SUBSCRIPTIONS:
        return set()
    filters = [
        (biz_id, matching.compile_filter(types, channels)) for biz_id, types, channels in page
    ]
    subscribed_kinds = {
        (biz, event_type, channel)
        for biz, event_type, channel in kinds
        if any(owner == biz and rule.matches(event_type, channel) for owner, rule in filters)
    }
    if len(_subscribed) > _MAX_KINDS:
        forget_recipients()
    _subscribed.update(dict.fromkeys(subscribed_kinds, now + _REMEMBERED_SECONDS))
    return kinds - subscribed_kinds


class _Systems(Snapshot[frozenset[int]]):
    def load(self) -> frozenset[int]:
        systems = Biz.objects.filter(encrypts_payloads=True)
        return frozenset(systems.values_list("id", flat=True))


_SEALED_SYSTEMS = _Systems(frozenset())
