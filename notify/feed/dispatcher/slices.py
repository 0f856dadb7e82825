"""The recipients of an author, so many at a time: those with one relation after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from notify.feed.dispatcher.queue import Event
from notify.feed.models import Friend


@dataclass(frozen=True, slots=True)
class Slice:
    """Recipients with this relation above `after` and up to `until` (None: all that are left).

    `position` is where the next slice begins; None: this is the last one.
    """

    relation: str
    after: str
    until: str | None
    position: str | None


def next_slice(event: Event, relations: Sequence[str], size: int) -> Slice:
    """The slice at the event's position."""
    relation, _, after = event.position.partition(":")
    relation = relation or relations[0]
    rows = Friend.objects.filter(
        biz_id=event.biz, uid=event.uid, relation=relation, fri_uid__gt=after
    )
    last = rows.order_by("fri_uid").values_list("fri_uid", flat=True)[size - 1 : size]
    until = next(iter(last), None)
    place = relations.index(relation) + 1
    if until is not None:
        position: str | None = f"{relation}:{until}"
    else:
        position = f"{relations[place]}:" if place < len(relations) else None
    return Slice(relation, after, until, position)
