"""Which of at most 500 posts or events match the whole filter."""

from __future__ import annotations

from collections.abc import Sequence

from notify.feed.messages.filters import DELETED, HANDLED, OPEN, Filter
from notify.feed.models import EventQueue, Feed


def of_posts(ids: Sequence[int], filter: Filter) -> set[int]:
    """The posts that match. A post whose event does not exist any longer is handled."""
    rows = Feed.objects.filter(id__in=ids)
    if filter.topic is not None:
        rows = rows.filter(topic=filter.topic)
    if filter.kind is not None:
        rows = rows.filter(src_type=filter.kind)
    if filter.biz is not None:
        rows = rows.filter(biz_id=filter.biz)
    if filter.user is not None:
        rows = rows.filter(uid=filter.user)
    if filter.state is not None:
        rows = rows.filter(delete_date__isnull=filter.state != DELETED)
    found = set(rows.order_by().values_list("id", flat=True))
    if filter.state == HANDLED and found:
        open_events = EventQueue.objects.filter(qid__in=found, status__in=OPEN.values())
        found -= set(open_events.order_by().values_list("qid", flat=True))
    return found


def of_events(ids: Sequence[int], filter: Filter) -> set[int]:
    """The events that match. `kind` is that of the event's post."""
    rows = EventQueue.objects.filter(qid__in=ids)
    if filter.topic is not None:
        rows = rows.filter(topic=filter.topic)
    if filter.biz is not None:
        rows = rows.filter(biz_id=filter.biz)
    if filter.user is not None:
        rows = rows.filter(uid=filter.user)
    if filter.state is not None:
        rows = rows.filter(status=OPEN.get(filter.state, EventQueue.Status.HANDLED))
    found = set(rows.order_by().values_list("qid", flat=True))
    if filter.kind is not None and found:
        of_kind = Feed.objects.filter(id__in=found, src_type=filter.kind)
        found = set(of_kind.order_by().values_list("id", flat=True))
    return found
