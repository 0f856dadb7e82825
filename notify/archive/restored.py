"""Messages that were brought back: how old they count, and when the archiver looks at them again.

Its walk goes by the age of ids, so it would take a message of last year away at once, or come to it
a year later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models.functions import Now

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from notify.archive import ages
from notify.models import BizMsg, RestoredMsg

PAGE = 500
# One that is not final then, or failed and is kept for longer.
_LOOK_AGAIN = timedelta(hours=1)


def note(message_ids: Sequence[int]) -> None:
    """They come back now. Within the transaction that does it, it is the lock by which a second
    one waits for the first."""
    now = sql.now()
    look_at = now + timedelta(seconds=ages.keep())
    rows = [(pk, now, look_at) for pk in sorted(message_ids)]
    sql.insert_or_keep(RestoredMsg._meta.db_table, ("id", "restored_at", "look_at"), rows)


def forget(message_ids: Sequence[int]) -> None:
    for some in chunks(message_ids, PAGE):
        RestoredMsg.objects.filter(id__in=some).delete()


def counted_from(message_ids: Iterable[int]) -> dict[int, int]:
    """Of those that were brought back: the id that they would have, had they been accepted then."""
    rows = RestoredMsg.objects.filter(id__in=list(message_ids))
    return {pk: id_numbers.first_id_at(at) for pk, at in rows.values_list("id", "restored_at")}


def page(now: datetime) -> list[int]:
    """Up to PAGE messages whose time for a look has come; they are looked at again later."""
    due = RestoredMsg.objects.filter(look_at__lte=now).order_by("look_at")
    found = list(due.values_list("id", flat=True)[:PAGE])
    if found:
        RestoredMsg.objects.filter(id__in=found).update(look_at=Now() + _LOOK_AGAIN)
        hot = set(BizMsg.objects.filter(id__in=found).values_list("id", flat=True))
        forget([pk for pk in found if pk not in hot])
    return sorted(found)
