"""Ids of posts or events that may match, descending, from the index that narrows most."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.db.models import QuerySet

from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from msgplatform.models import Biz
from notify.feed.models import EventQueue, Feed
from notify.feed.models.posts import Topic
from notify.feed.search.filters import OPEN, Filter

_SYSTEMS = 100  # asked in one statement


class Posts:
    """Of posts; every one is still to be asked whether it matches the whole filter."""

    def __init__(self, filter: Filter) -> None:
        self._filter = filter

    def page(self, before: int, size: int) -> list[int]:
        """Up to `size` ids below `before`; fewer: there are no others."""
        filter = self._filter
        if filter.id is not None:
            return [filter.id] if (filter.since or 0) <= filter.id < before else []
        if filter.user is None:
            rows = Feed.objects.filter(id__lt=before, id__gte=filter.since or 0)
            return list(rows.order_by("-id").values_list("id", flat=True)[:size])
        topics = [filter.topic] if filter.topic else Topic.values
        found = [
            pk
            for biz in self._systems
            for topic in topics
            for pk in self._of_user(biz, topic, before)[:size]
        ]
        return sorted(found, reverse=True)[:size]

    def _of_user(self, biz: int, topic: str, before: int) -> QuerySet[Feed, int]:
        rows = Feed.objects.filter(uid=self._filter.user, topic=topic)
        rows = rows.filter(id__lt=before, id__gte=self._filter.since or 0)
        return (
            sql.of_one(rows, "biz_id", biz).order_by("-biz_id", "-id").values_list("id", flat=True)
        )

    @cached_property
    def _systems(self) -> list[int]:
        """Those in which this user has posted."""
        if self._filter.biz is not None:
            return [self._filter.biz]
        known = list(Biz.objects.order_by("id").values_list("id", flat=True))
        found: set[int] = set()
        for some in chunks(known, _SYSTEMS):
            rows = Feed.objects.filter(biz_id__in=some, uid=self._filter.user)
            found.update(rows.order_by().values_list("biz_id", flat=True).distinct())
        return sorted(found)


class Events:
    """Of events, as `Posts`."""

    def __init__(self, filter: Filter) -> None:
        self._filter = filter

    def page(self, before: int, size: int) -> list[int]:
        filter = self._filter
        if filter.id is not None:
            return [filter.id] if (filter.since or 0) <= filter.id < before else []
        topics = [filter.topic] if filter.topic else EventQueue.Topic.values
        statuses = [OPEN[filter.state]] if filter.state in OPEN else self._other_statuses
        found = [
            qid
            for topic in topics
            for status in statuses
            for qid in self._in_status(topic, status, before)[:size]
        ]
        return sorted(found, reverse=True)[:size]

    @property
    def _other_statuses(self) -> Sequence[int]:
        status = EventQueue.Status
        return [status.HANDLED] if self._filter.state else list(status)

    def _in_status(self, topic: str, status: int, before: int) -> Any:
        rows = EventQueue.objects.filter(status=status)
        rows = rows.filter(qid__lt=before, qid__gte=self._filter.since or 0)
        return (
            sql.of_one(rows, "topic", topic)
            .order_by("-topic", "-qid")
            .values_list("qid", flat=True)
        )
