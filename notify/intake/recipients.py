"""Events to which nobody subscribes: their publisher is told, and does not look for them at a
consumer."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from contextlib import suppress

from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.intake.verdicts import Verdict
from notify.models import BizReceive
from notify.subscriptions.matching import compile_filter

_REMEMBERED_SECONDS = 60.0
_MAX_KINDS = 10_000
# Subscriptions of one commit's systems that are looked at; with more of them nothing is said.
_MAX_SUBSCRIPTIONS = 1000
Kind = tuple[int, str, str]  # business system, event type, channel
# Kinds of events that somebody subscribes to → until when that is taken as known. Nothing is
# remembered of the others: the first subscription counts at once.
_subscribed: dict[Kind, float] = {}


def forget() -> None:
    """Look everything up again."""
    _subscribed.clear()


def note_recipients(kinds: Sequence[Kind], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts on events of these kinds, with `recipients` 0 on new ones that nobody subscribes
    to."""
    pairs = list(zip(kinds, verdicts, strict=True))
    new_kinds = {kind for kind, verdict in pairs if verdict.outcome == "created"}
    lonely_kinds = set[Kind]()
    with suppress(*UNAVAILABLE):  # the events are stored: nothing is said
        lonely_kinds = _without_subscription(new_kinds)
    return [
        dataclasses.replace(verdict, recipients=0)
        if verdict.outcome == "created" and kind in lonely_kinds
        else verdict
        for kind, verdict in pairs
    ]


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
    filters = [(biz_id, compile_filter(types, channels)) for biz_id, types, channels in page]
    subscribed_kinds = {
        (biz, event_type, channel)
        for biz, event_type, channel in kinds
        if any(owner == biz and rule.matches(event_type, channel) for owner, rule in filters)
    }
    if len(_subscribed) > _MAX_KINDS:
        forget()
    _subscribed.update(dict.fromkeys(subscribed_kinds, now + _REMEMBERED_SECONDS))
    return kinds - subscribed_kinds
