"""How many posts a reader has not read.

Ids are in the order of posting, so a reader's state is one id: the newest post that was read.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgplatform.core.data import sql, transactions
from notify.feed.models import FeedUser
from notify.feed.timeline import find
from notify.feed.timeline.wanted import Wanted

MOST = 1000  # counted


@dataclass(frozen=True, slots=True)
class Unread:
    """`more`: there may be more than `count`, which was not counted any further."""

    count: int
    more: bool


def unread(biz: int, uid: str) -> Unread:
    """Posts of others that this user may see, newer than what was marked as read."""
    rows = FeedUser.objects.filter(biz_id=biz, uid=uid)
    read_id = rows.values_list("read_id", flat=True).first()
    wanted = Wanted(biz, uid, after=read_id or 0, own=False)
    found = find.newest(wanted, MOST + 1)
    count = len(found.posts)
    return Unread(min(count, MOST), count > MOST or found.reached > 0)


def mark_read(biz: int, uid: str, up_to: int) -> None:
    """Note that posts up to this id are read. An id below an earlier one changes nothing."""
    rows = FeedUser.objects.filter(biz_id=biz, uid=uid)

    def move() -> int:
        return rows.filter(read_id__lt=up_to).update(read_id=up_to)

    # Nearly every reader has a row, so one is made only when the UPDATE found none.
    if not transactions.retrying(move) and not rows.exists():
        transactions.retrying(
            lambda: sql.insert_or_keep(FeedUser._meta.db_table, ("biz_id", "uid"), [(biz, uid)])
        )
        transactions.retrying(move)
