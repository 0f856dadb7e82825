"""Messages that may move, and their chunks; restored messages, and the times to look at them.

The archiver finds messages by the age of their ids. A restored message of last year would move at
once, or would not be looked at for a year. So restored messages have times of their own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Self

import msgspec
from django.db.models import Count, QuerySet
from django.db.models.functions import Length, Now

from msgplatform.core.archive.description import horizon
from msgplatform.core.data import chunks, chunks_within, ids as id_numbers, sql
from notify.archive import retention
from notify.archive.stores import Store
from notify.models import BizMsg, ReceiveMsg, RestoredMsg

# Bounds of a chunk. A chunk is one transaction, which locks its rows.
MAX_DELIVERIES = 2000
MAX_BYTES = 8 * 1024 * 1024  # payloads
RESTORED_PAGE = 500
# The next look at a restored message that is not final, or that failed and is kept for longer.
_LOOK_AGAIN = timedelta(hours=1)
_WELL = frozenset({ReceiveMsg.Status.DELIVERED, ReceiveMsg.Status.SKIPPED})
_FAILED = frozenset(ReceiveMsg.FAILED)


class Due(msgspec.Struct, frozen=True):
    """Messages below these ids are old enough: `well` for messages whose deliveries all ended well,
    `failed`, which is not higher, for messages with a failed delivery. A restored message is as old
    as its return."""

    well: int
    failed: int

    @classmethod
    def at(cls, now: datetime) -> Self:
        return cls(horizon(now, retention.keep()), horizon(now, retention.keep_failed()))

    def read_movable(self, message_ids: Sequence[int]) -> list[int]:
        """The messages without deliveries, or whose deliveries all ended long enough ago.

        Locks nothing: `move` reads the rows again under its locks.
        """
        statuses: dict[int, set[int]] = {pk: set() for pk in message_ids}
        rows = ReceiveMsg.objects.filter(msg_id__in=message_ids).order_by()
        for message_id, status in rows.values_list("msg_id", "status"):
            statuses[message_id].add(status)
        return self.find_movable(statuses)

    def find_movable(self, statuses: Mapping[int, set[int]]) -> list[int]:
        """The messages that may move, by the statuses of their deliveries."""
        ids_of_return = restored_as(statuses)
        movable_ids = []
        for message_id, ends in statuses.items():
            limit = self.failed if ends & _FAILED else self.well
            if ids_of_return.get(message_id, message_id) < limit and ends <= _WELL | _FAILED:
                movable_ids.append(message_id)
        return movable_ids


def candidates(first: int, below: int) -> QuerySet[BizMsg, int]:
    """Ids of split messages, ascending; the index (state, id) covers the query."""
    rows = BizMsg.objects.filter(state=BizMsg.State.DISTRIBUTED, id__gte=first, id__lt=below)
    return rows.order_by("id").values_list("id", flat=True)


def bounded_chunks(message_ids: Sequence[int], store: Store) -> Iterator[list[int]]:
    """Cut by payload bytes and number of deliveries; at least one message in each chunk."""
    message_sizes = store.messages.filter(id__in=message_ids).annotate(size=Length("payload"))
    sizes = dict(message_sizes.order_by().values_list("id", "size"))
    rows = store.deliveries_of(message_ids).order_by().values_list("msg_id")
    deliveries = dict(rows.annotate(Count("id")))
    # A message that was deleted meanwhile counts as empty, because it does not move.
    return chunks_within(
        message_ids,
        (lambda message_id: sizes.get(message_id, 0), MAX_BYTES),
        (lambda message_id: deliveries.get(message_id, 0), MAX_DELIVERIES),
    )


# -- messages that were brought back -------------------------------------------------------------
def note_restored(message_ids: Sequence[int]) -> None:
    """Store that these messages come back now, in the caller's transaction. The inserted rows are a
    lock: another process that restores the same messages waits."""
    now = sql.now()
    look_at = now + timedelta(seconds=retention.keep())
    rows = [(pk, now, look_at) for pk in sorted(message_ids)]
    sql.insert_or_keep(RestoredMsg._meta.db_table, ("id", "restored_at", "look_at"), rows)


def forget_restored(message_ids: Sequence[int]) -> None:
    for chunk in chunks(message_ids, RESTORED_PAGE):
        RestoredMsg.objects.filter(id__in=chunk).delete()


def restored_as(message_ids: Iterable[int]) -> dict[int, int]:
    """Restored message → the id that a message would have if accepted at the time of restoring."""
    rows = RestoredMsg.objects.filter(id__in=list(message_ids))
    return {pk: id_numbers.first_id_at(at) for pk, at in rows.values_list("id", "restored_at")}


def restored_page(now: datetime) -> list[int]:
    """Up to RESTORED_PAGE restored messages that are due for a look; sets their next look."""
    due_rows = RestoredMsg.objects.filter(look_at__lte=now).order_by("look_at")
    message_ids = list(due_rows.values_list("id", flat=True)[:RESTORED_PAGE])
    if message_ids:
        # The next look is set before the move, so that a message that stays is not looked at in
        # every turn. After a crash the messages are looked at an hour later.
        RestoredMsg.objects.filter(id__in=message_ids).update(look_at=Now() + _LOOK_AGAIN)
        hot_ids = set(BizMsg.objects.filter(id__in=message_ids).values_list("id", flat=True))
        forget_restored([pk for pk in message_ids if pk not in hot_ids])
    return sorted(message_ids)
