"""Lock users. Whoever changes relations, visits or merging holds these locks."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence

from django.db import connection

from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from notify.feed.models import FeedUser

_CHUNK = 500


def lock(biz: int, uids: Iterable[str]) -> dict[str, FeedUser]:
    """Lock these users until the caller's transaction ends, making rows for those who have none.

    In one order everywhere, so that two transactions wait for each other instead of deadlocking.
    """
    wanted = sorted(set(uids))
    sql.insert_or_keep(FeedUser._meta.db_table, ("biz_id", "uid"), [(biz, uid) for uid in wanted])
    found: dict[str, FeedUser] = {}
    for some in chunks(wanted, _CHUNK):
        rows = FeedUser.objects.select_for_update().filter(biz_id=biz, uid__in=some)
        found.update((user.uid, user) for user in rows.order_by("biz_id", "uid"))
    return found


def lock_with_authors(
    biz: int, uid: str, authors: Iterable[str]
) -> tuple[FeedUser | None, list[str]]:
    """Lock a reader, and those of these authors who are pushed, so that none of them becomes merged
    until the caller's transaction ends. Other transactions may share the authors.

    The reader, and the pushed authors. In the same order as `lock`.
    """
    wanted = sorted(set(authors) - {uid})
    place = bisect(wanted, uid)
    pushed = _share_pushed(biz, wanted[:place])
    reader = FeedUser.objects.select_for_update().filter(biz_id=biz, uid=uid).first()
    return reader, pushed + _share_pushed(biz, wanted[place:])


def _share_pushed(biz: int, uids: Sequence[str]) -> list[str]:
    # SQLite has one writer, which is the caller.
    share = "LOCK IN SHARE MODE" if connection.vendor == "mysql" else ""
    pushed: list[str] = []
    for some in chunks(uids, _CHUNK):
        places = ", ".join(["%s"] * len(some))
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT uid FROM feed_user "  # noqa: S608
                f"WHERE biz_id = %s AND uid IN ({places}) "
                f"AND merging = {int(FeedUser.Merging.PUSHED)} ORDER BY biz_id, uid {share}",
                [biz, *some],
            )
            pushed += [row[0] for row in cursor.fetchall()]
    return pushed
