"""Events that were set aside wait again, from where they were when they failed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgplatform.core.bulk_cursor import read_id
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql
from notify.feed.bulk.filters import Filter
from notify.feed.models import EventQueue

SCANNED = 5000  # events that one page looks at
_STATUS = EventQueue.Status


@dataclass(frozen=True, slots=True)
class Page:
    """Events that a step is about, and the position after them; '' at the end."""

    ids: list[int]
    position: str


class SetAside:
    """Events that are set aside, in the order of their ids, none that came after `begun`."""

    def __init__(self, filter: Filter, begun: datetime) -> None:
        newest = id_numbers.first_id_at(begun)
        self._filter = filter
        self._until = newest if filter.until is None else min(filter.until, newest)

    def page(self, position: str, limit: int) -> Page:
        """The position is the last event that was looked at."""
        after = max(read_id(position), (self._filter.since or 0) - 1)
        read = self._of_selection(after) if self._filter.ids is not None else self._read(after)
        matches: list[int] = []
        for qid, biz, uid in read:
            if self._filter.biz in (None, biz) and self._filter.user in (None, uid):
                matches.append(qid)
                if len(matches) == limit:
                    return Page(matches, str(qid))
        return Page(matches, str(read[-1][0]) if len(read) == SCANNED else "")

    def _read(self, after: int) -> list[tuple[int, int, str]]:
        """Of each topic from the index, so the first of all of them are complete."""
        topics = [self._filter.topic] if self._filter.topic else EventQueue.Topic.values
        found: list[tuple[int, int, str]] = []
        for topic in topics:
            rows = EventQueue.objects.filter(status=_STATUS.SET_ASIDE)
            rows = rows.filter(qid__gt=after, qid__lt=self._until)
            rows = sql.of_one(rows, "topic", topic).order_by("topic", "qid")
            found += rows.values_list("qid", "biz_id", "uid")[:SCANNED]
        return sorted(found)[:SCANNED]

    def _of_selection(self, after: int) -> list[tuple[int, int, str]]:
        wanted = [qid for qid in self._filter.ids or () if after < qid < self._until]
        rows = EventQueue.objects.filter(qid__in=wanted, status=_STATUS.SET_ASIDE)
        if self._filter.topic:
            rows = rows.filter(topic=self._filter.topic)
        return list(rows.order_by("qid").values_list("qid", "biz_id", "uid"))


def replay(qids: Collection[int] | Sequence[int]) -> int:
    """Let these events wait again if they are set aside; how many. `position` is kept, so that an
    event in slices goes on where it failed."""
    rows = EventQueue.objects.filter(qid__in=qids, status=_STATUS.SET_ASIDE)
    return sql.retrying(lambda: rows.update(status=_STATUS.WAITING, reason=""))
