"""Which messages may move, and in what chunks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, QuerySet
from django.db.models.functions import Length

from msgplatform.core.archive.ages import horizon
from notify.archive import ages
from notify.models import BizMsg, ReceiveMsg

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
