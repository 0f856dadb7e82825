"""Messages that were brought back: how old they count, and when the archiver looks at them again.

The archiver goes by the age of ids. By that alone it would move a message of last year at once, or
look at it a year later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models.functions import Now

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from notify.archive import retention
from notify.models import BizMsg, RestoredMsg

PAGE = 500
# For a message that is not final then, or that failed and is kept for longer.
_LOOK_AGAIN = timedelta(hours=1)


def note(message_ids: Sequence[int]) -> None:
    """These messages come back now, in the caller's transaction. The inserted rows are the lock by
    which whoever else brings them back waits."""
    now = sql.now()
    look_at = now + timedelta(seconds=retention.keep())
    rows = [(pk, now, look_at) for pk in sorted(message_ids)]
    sql.insert_or_keep(RestoredMsg._meta.db_table, ("id", "restored_at", "look_at"), rows)


def forget(message_ids: Sequence[int]) -> None:
    for some in chunks(message_ids, PAGE):
        RestoredMsg.objects.filter(id__in=some).delete()


def counted_from(message_ids: Iterable[int]) -> dict[int, int]:
    """For each that was brought back: the id that it would have, had it been accepted then."""
    rows = RestoredMsg.objects.filter(id__in=list(message_ids))
    return {pk: id_numbers.first_id_at(at) for pk, at in rows.values_list("id", "restored_at")}


def page(now: datetime) -> list[int]:
    """Up to PAGE messages whose time for a look has come; they are looked at again later."""
    due = RestoredMsg.objects.filter(look_at__lte=now).order_by("look_at")
    message_ids = list(due.values_list("id", flat=True)[:PAGE])
    if message_ids:
        # Before they are moved: who dies now finds them an hour later, and a message that stays is
        # not looked at in every turn.
        RestoredMsg.objects.filter(id__in=message_ids).update(look_at=Now() + _LOOK_AGAIN)
        hot = set(BizMsg.objects.filter(id__in=message_ids).values_list("id", flat=True))
        forget([pk for pk in message_ids if pk not in hot])
    return sorted(message_ids)
