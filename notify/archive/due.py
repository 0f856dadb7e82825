"""Which messages may move, without reading the ones that cannot again and again.

A walker for each age of `ages.looks()` follows its horizon through the ids, so that a message is
looked at when it reaches each of those ages and never in between. What cannot move (held, still
failing) is passed by each walker once. The cursors are in memory only: after a start the youngest
walker goes through everything once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, QuerySet
from django.db.models.functions import Length

from msgplatform.core.archive.ages import horizon
from msgplatform.core.data import ids
from notify.archive import ages
from notify.models import BizMsg, ReceiveMsg

PAGE = 500  # messages in one chunk
MAX_COPIES = 2000
MAX_BYTES = 8 * 1024 * 1024  # payloads in one chunk
_Status = ReceiveMsg.Status
_WELL = frozenset({_Status.DELIVERED, _Status.SKIPPED})
_FAILED = frozenset({_Status.EXHAUSTED, _Status.POISON})


@dataclass(frozen=True, slots=True)
class Due:
    """What is old enough: messages below these ids, if their copies ended well or failed."""

    well: int
    failed: int

    def allows(self, message_id: int, statuses: set[int]) -> bool:
        if message_id >= self.well or not statuses <= _WELL | _FAILED:
            return False
        return message_id < self.failed or not statuses & _FAILED


def due(now: datetime) -> Due:
    return Due(horizon(now, ages.keep()), horizon(now, ages.keep_failed()))


class Walk:
    def __init__(self, now: datetime) -> None:
        first, *others = ages.looks()
        self._first = first
        self._cursors = {age: horizon(now, age) for age in others}
        self._cursors[first] = 0

    def page(self, now: datetime) -> list[int] | None:
        """Up to PAGE split messages that reached one of the ages; None when none did."""
        for age, cursor in sorted(self._cursors.items()):
            reached = horizon(now, age)
            if cursor >= reached:
                continue
            found = list(candidates(cursor, reached)[:PAGE])
            self._cursors[age] = found[-1] + 1 if len(found) == PAGE else reached
            if found:
                return found
        return None

    def lag(self, now: datetime) -> float:
        """Seconds by which the youngest walker is behind."""
        cursor = self._cursors[self._first]
        oldest = ids.datetime_of(cursor) if cursor else None
        if oldest is None:
            return 0.0
        return max(0.0, (now - timedelta(seconds=self._first) - oldest).total_seconds())


def candidates(first: int, below: int) -> QuerySet[BizMsg, int]:
    """Ids of split messages, ascending; the index (state, id) holds all that is asked."""
    rows = BizMsg.objects.filter(state=BizMsg.State.SPLIT, id__gte=first, id__lt=below)
    return rows.order_by("id").values_list("id", flat=True)


def movable(message_ids: Sequence[int], due: Due) -> list[int]:
    """Those whose copies have all ended long enough ago; a message without copies is one."""
    statuses: dict[int, set[int]] = defaultdict(set)
    rows = ReceiveMsg.objects.filter(msg_id__in=message_ids).order_by()
    for message_id, status in rows.values_list("msg_id", "status"):
        statuses[message_id].add(status)
    return [pk for pk in message_ids if due.allows(pk, statuses[pk])]


def chunks(message_ids: Sequence[int]) -> Iterator[list[int]]:
    """Cut by payload bytes and number of copies; at least one message in each."""
    sized = BizMsg.objects.filter(id__in=message_ids).annotate(size=Length("payload"))
    sizes = dict(sized.order_by().values_list("id", "size"))
    rows = ReceiveMsg.objects.filter(msg_id__in=message_ids).order_by().values_list("msg_id")
    copies = dict(rows.annotate(Count("id")))
    chunk: list[int] = []
    size = count = 0
    for message_id in message_ids:
        size += sizes.get(message_id, 0)
        count += copies.get(message_id, 0)
        if chunk and (size > MAX_BYTES or count > MAX_COPIES):
            yield chunk
            chunk, size, count = [], sizes.get(message_id, 0), copies.get(message_id, 0)
        chunk.append(message_id)
    if chunk:
        yield chunk
