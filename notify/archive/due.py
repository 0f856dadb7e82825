"""Which messages may move, and in what chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, QuerySet
from django.db.models.functions import Length

from msgplatform.core.archive.ages import horizon
from notify.archive import restored, retention
from notify.archive.stores import Store
from notify.models import BizMsg, ReceiveMsg

# Bounds of a chunk, which is one transaction: its rows are locked for as long as that takes.
MAX_DELIVERIES = 2000
MAX_BYTES = 8 * 1024 * 1024  # payloads
_Status = ReceiveMsg.Status
_WELL = frozenset({_Status.DELIVERED, _Status.SKIPPED})
_FAILED = frozenset({_Status.EXHAUSTED, _Status.POISON})


@dataclass(frozen=True, slots=True)
class Due:
    """What is old enough: messages below `well` when all their deliveries ended well, below
    `failed` when one failed. A message that was brought back is as old as its return."""

    well: int
    failed: int

    def allowed(self, statuses: Mapping[int, set[int]]) -> list[int]:
        """Which of these messages may move, given the statuses of their deliveries."""
        counted_from = restored.counted_from(statuses)
        movable_ids = []
        for message_id, ends in statuses.items():
            age = counted_from.get(message_id, message_id)
            if age >= self.well or not ends <= _WELL | _FAILED:
                continue
            if age < self.failed or not ends & _FAILED:
                movable_ids.append(message_id)
        return movable_ids


def due(now: datetime) -> Due:
    return Due(horizon(now, retention.keep()), horizon(now, retention.keep_failed()))


def candidates(first: int, below: int) -> QuerySet[BizMsg, int]:
    """Ids of split messages, ascending; the index (state, id) holds all that is asked."""
    rows = BizMsg.objects.filter(state=BizMsg.State.SPLIT, id__gte=first, id__lt=below)
    return rows.order_by("id").values_list("id", flat=True)


def movable(message_ids: Sequence[int], due: Due) -> list[int]:
    """The messages whose deliveries have all ended for long enough; a message without any is one.

    Nothing is locked: `move` asks again under its locks.
    """
    statuses: dict[int, set[int]] = {pk: set() for pk in message_ids}
    rows = ReceiveMsg.objects.filter(msg_id__in=message_ids).order_by()
    for message_id, status in rows.values_list("msg_id", "status"):
        statuses[message_id].add(status)
    return due.allowed(statuses)


def chunks(message_ids: Sequence[int], store: Store) -> Iterator[list[int]]:
    """Cut by payload bytes and number of deliveries; at least one message in each."""
    message_sizes = store.messages.filter(id__in=message_ids).annotate(size=Length("payload"))
    sizes = dict(message_sizes.order_by().values_list("id", "size"))
    rows = store.deliveries_of(message_ids).order_by().values_list("msg_id")
    deliveries = dict(rows.annotate(Count("id")))
    chunk: list[int] = []
    size = count = 0
    for message_id in message_ids:
        # A message that is gone meanwhile counts as empty: nothing of it will move.
        size += sizes.get(message_id, 0)
        count += deliveries.get(message_id, 0)
        if chunk and (size > MAX_BYTES or count > MAX_DELIVERIES):
            yield chunk
            chunk, size, count = [], sizes.get(message_id, 0), deliveries.get(message_id, 0)
        chunk.append(message_id)
    if chunk:
        yield chunk
