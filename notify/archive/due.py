"""Which messages may move, and in what chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, QuerySet
from django.db.models.functions import Length

from msgplatform.core.archive.ages import horizon
from notify.archive import ages, restored
from notify.archive.stores import Place
from notify.models import BizMsg, ReceiveMsg

MAX_COPIES = 2000
MAX_BYTES = 8 * 1024 * 1024  # payloads in one chunk
_Status = ReceiveMsg.Status
_WELL = frozenset({_Status.DELIVERED, _Status.SKIPPED})
_FAILED = frozenset({_Status.EXHAUSTED, _Status.POISON})


@dataclass(frozen=True, slots=True)
class Due:
    """What is old enough: messages below these ids, if their copies ended well or failed. One that
    was brought back is as old as its return."""

    well: int
    failed: int

    def allowed(self, statuses: Mapping[int, set[int]]) -> list[int]:
        """Of messages with the statuses of their copies, those that may move."""
        counted_from = restored.counted_from(statuses)
        return [pk for pk, ends in statuses.items() if self._allows(counted_from.get(pk, pk), ends)]

    def _allows(self, age: int, statuses: set[int]) -> bool:
        if age >= self.well or not statuses <= _WELL | _FAILED:
            return False
        return age < self.failed or not statuses & _FAILED


def due(now: datetime) -> Due:
    return Due(horizon(now, ages.keep()), horizon(now, ages.keep_failed()))


def candidates(first: int, below: int) -> QuerySet[BizMsg, int]:
    """Ids of split messages, ascending; the index (state, id) holds all that is asked."""
    rows = BizMsg.objects.filter(state=BizMsg.State.SPLIT, id__gte=first, id__lt=below)
    return rows.order_by("id").values_list("id", flat=True)


def movable(message_ids: Sequence[int], due: Due) -> list[int]:
    """Those whose copies have all ended long enough ago; a message without copies is one."""
    statuses: dict[int, set[int]] = {pk: set() for pk in message_ids}
    rows = ReceiveMsg.objects.filter(msg_id__in=message_ids).order_by()
    for message_id, status in rows.values_list("msg_id", "status"):
        statuses[message_id].add(status)
    return due.allowed(statuses)


def chunks(message_ids: Sequence[int], place: Place) -> Iterator[list[int]]:
    """Cut by payload bytes and number of copies; at least one message in each."""
    sized = place.messages.filter(id__in=message_ids).annotate(size=Length("payload"))
    sizes = dict(sized.order_by().values_list("id", "size"))
    rows = place.copies_of(message_ids).order_by().values_list("msg_id")
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
