"""An author who has very many recipients becomes one who is merged at read."""

from __future__ import annotations

from django.conf import settings

from notify.feed import users
from notify.feed.dispatcher.queue import Event
from notify.feed.dispatcher.slices import next_slice
from notify.feed.models import FeedUser, Friend

_RELATIONS = tuple(map(str, (Friend.Relation.FRIEND, Friend.Relation.FOLLOW)))


def merge(event: Event, size: int) -> str | None:
    """Let `size` readers merge this author's posts; where to go on, None at the end.

    Posts are written for readers until all of them merge. Only this ends the state "becoming": an
    author who has few recipients again meanwhile is pushed again at the end.
    """
    author = users.lock(event.biz, [event.uid])[event.uid]
    merging = FeedUser.Merging
    if author.merging != merging.BECOMING:
        return None
    part = next_slice(event, _RELATIONS, size)
    rows = Friend.objects.filter(
        biz_id=event.biz, uid=event.uid, relation=part.relation, fri_uid__gt=part.after,
        delivery=Friend.Delivery.PUSHED,
    )  # fmt: skip
    if part.until is not None:
        rows = rows.filter(fri_uid__lte=part.until)
    rows.update(delivery=Friend.Delivery.BOTH)
    if part.position is None:
        few = author.friends + author.followers < settings.FEED_PUSH_BELOW
        FeedUser.objects.filter(biz_id=event.biz, uid=event.uid).update(
            merging=merging.PUSHED if few else merging.MERGED
        )
    return part.position
