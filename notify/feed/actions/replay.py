"""Events that were set aside wait again, and go on where they failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from msgplatform.api import filters
from msgplatform.core.bulk.cursor import Page, read_id
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql, transactions
from notify.feed.messages.filters import read_topic
from notify.feed.models import EventQueue
from notify.feed.monitor import failures

SCANNED = 5000  # events that one page looks at
_READ = ("qid", "biz_id", "uid", "reason")
_STATUS = EventQueue.Status


@dataclass(frozen=True, slots=True)
class Filter:
    """Values, None for what was not given. Times are ids: since <= id < until."""

    topic: str | None = None
    biz: int | None = None
    user: str | None = None
    answer: str | None = None
    since: int | None = None
    until: int | None = None
    ids: tuple[int, ...] | None = None


def parse(given: Mapping[str, Any], allowed: Iterable[str]) -> Filter:
    """Raises InvalidInput naming the field. Empty texts count as not given."""
    return Filter(**filters.values(given, {**filters.READERS, "topic": read_topic}, allowed))


class SetAside:
    """Events that are set aside, in the order of their ids; none that came after `begun`, so that
    a job has an end."""

    def __init__(self, filter: Filter, begun: datetime) -> None:
        newest = id_numbers.first_id_at(begun)
        self._filter = filter
        self._until = newest if filter.until is None else min(filter.until, newest)

    def page(self, position: str, limit: int) -> Page:
        """The next events after `position`, which is the last event that was looked at."""
        after = max(read_id(position), (self._filter.since or 0) - 1)
        if self._filter.ids is None:
            read = self._read(after)
        else:
            wanted = [qid for qid in self._filter.ids if after < qid < self._until]
            rows = EventQueue.objects.filter(qid__in=wanted, status=_STATUS.SET_ASIDE)
            if self._filter.topic:
                rows = rows.filter(topic=self._filter.topic)
            read = list(rows.order_by("qid").values_list(*_READ))
        matches: list[int] = []
        asked = self._filter
        for qid, biz, uid, reason in read:
            if (
                asked.biz in (None, biz)
                and asked.user in (None, uid)
                and asked.answer in (None, failures.answer(reason))
            ):
                matches.append(qid)
                if len(matches) == limit:
                    return Page(matches, str(qid))
        return Page(matches, str(read[-1][0]) if len(read) == SCANNED else "")

    def _read(self, after: int) -> list[tuple[int, int, str, str]]:
        """The oldest SCANNED events: they are among the oldest SCANNED of each topic."""
        topics = [self._filter.topic] if self._filter.topic else EventQueue.Topic.values
        found: list[tuple[int, int, str, str]] = []
        for name in topics:
            rows = EventQueue.objects.filter(status=_STATUS.SET_ASIDE)
            rows = rows.filter(qid__gt=after, qid__lt=self._until)
            rows = sql.of_one(rows, "topic", name).order_by("topic", "qid")
            found += rows.values_list(*_READ)[:SCANNED]
        return sorted(found)[:SCANNED]


def replay(qids: Collection[int]) -> int:
    """Let these events wait again if they are set aside; how many. `position` is kept, so that an
    event in slices goes on where it failed."""

    def once() -> int:
        with transaction.atomic():
            # By id alone, so that the database locks these and no others.
            rows = EventQueue.objects.select_for_update().filter(qid__in=qids).order_by("qid")
            found = [event for event in rows if event.status == _STATUS.SET_ASIDE]
            failures.take_back(found)
            chosen = EventQueue.objects.filter(qid__in=[event.qid for event in found])
            return chosen.update(status=_STATUS.WAITING, reason="") if found else 0

    return transactions.retrying(once)
