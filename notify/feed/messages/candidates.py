"""Ids of posts or events that may match, newest first, from the index that narrows most."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from msgplatform.models import Biz
from notify.feed.messages.filters import OPEN, Filter
from notify.feed.models import EventQueue, Feed
from notify.feed.models.posts import Topic

_STATUS = EventQueue.Status
_SYSTEMS = 100  # asked in one statement


class Posts:
    """Ids of posts. Whether each matches the whole filter is asked afterwards."""

    def __init__(self, filter: Filter) -> None:
        self._filter = filter

    def page(self, before: int, size: int) -> list[int]:
        """Up to `size` ids below `before`; fewer when there are no others."""
        filter = self._filter
        if filter.id is not None:
            return [filter.id] if (filter.since or 0) <= filter.id < before else []
        if filter.user is None:
            rows = Feed.objects.filter(id__lt=before, id__gte=filter.since or 0)
            return list(rows.order_by("-id").values_list("id", flat=True)[:size])
        # The newest of all are among the newest of each place in the index.
        found: list[int] = []
        for biz in self.systems:
            for topic in [filter.topic] if filter.topic else Topic.values:
                rows = Feed.objects.filter(uid=filter.user, topic=topic)
                rows = rows.filter(id__lt=before, id__gte=filter.since or 0)
                rows = sql.of_one(rows, "biz_id", biz).order_by("-biz_id", "-id")
                found += rows.values_list("id", flat=True)[:size]
        return sorted(found, reverse=True)[:size]

    @cached_property
    def systems(self) -> list[int]:
        """Systems in which this user has posted."""
        if self._filter.biz is not None:
            return [self._filter.biz]
        known = list(Biz.objects.order_by("id").values_list("id", flat=True))
        found: set[int] = set()
        for some in chunks(known, _SYSTEMS):
            rows = Feed.objects.filter(biz_id__in=some, uid=self._filter.user)
            found.update(rows.order_by().values_list("biz_id", flat=True).distinct())
        return sorted(found)


class Events:
    """Ids of events, as `Posts`."""

    def __init__(self, filter: Filter) -> None:
        self._filter = filter

    def page(self, before: int, size: int) -> list[int]:
        filter = self._filter
        if filter.id is not None:
            return [filter.id] if (filter.since or 0) <= filter.id < before else []
        if filter.state in OPEN:
            statuses: Sequence[int] = [OPEN[filter.state]]
        else:
            statuses = [_STATUS.HANDLED] if filter.state else list(_STATUS)
        found: list[int] = []
        for topic in [filter.topic] if filter.topic else EventQueue.Topic.values:
            for status in statuses:
                rows = EventQueue.objects.filter(status=status)
                rows = rows.filter(qid__lt=before, qid__gte=filter.since or 0)
                rows = sql.of_one(rows, "topic", topic).order_by("-topic", "-qid")
                found += rows.values_list("qid", flat=True)[:size]
        return sorted(found, reverse=True)[:size]
