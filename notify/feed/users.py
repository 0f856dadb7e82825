"""Lock rows of users: needed to change their relations or visits, or how their posts are merged."""

from bisect import bisect
from collections.abc import Iterable, Sequence

from django.db import connection

from msgplatform.core.data import chunks, engines, sql
from notify.feed.models import FeedUser

_CHUNK = 500


def lock(biz: int, uids: Iterable[str]) -> dict[str, FeedUser]:
    """Lock these users until the caller's transaction ends. Users without a row get a row.

    All transactions lock users in the order of their uids, so that they cannot deadlock.
    """
    sorted_uids = sorted(set(uids))
    sql.insert_or_keep(
        FeedUser._meta.db_table, ("biz_id", "uid"), [(biz, uid) for uid in sorted_uids]
    )
    users: dict[str, FeedUser] = {}
    for chunk in chunks(sorted_uids, _CHUNK):
        page = FeedUser.objects.select_for_update().filter(biz_id=biz, uid__in=chunk)
        users.update((user.uid, user) for user in page.order_by("biz_id", "uid"))
    return users


def lock_with_authors(
    biz: int, uid: str, authors: Iterable[str]
) -> tuple[FeedUser | None, list[str]]:
    """Lock a reader and the authors whose `merging` is PUSHED; returns both.

    Until the caller's transaction ends, none of the returned authors can become merged. Locks of
    authors are shared, so that other readers of the same authors do not wait. The reader is None
    without a row.
    """
    sorted_uids = sorted(set(authors) - {uid})
    # Locks are in the order of uids: authors before the reader, the reader, the other authors.
    middle = bisect(sorted_uids, uid)
    author_uids = _share_lock_pushed(biz, sorted_uids[:middle])
    reader = FeedUser.objects.select_for_update().filter(biz_id=biz, uid=uid).first()
    return reader, author_uids + _share_lock_pushed(biz, sorted_uids[middle:])


def _share_lock_pushed(biz: int, uids: Sequence[str]) -> list[str]:
    """Take shared locks on the users whose `merging` is PUSHED; returns their uids."""
    share = engines.of().share_lock  # SQL, because Django has no shared locks
    locked_uids: list[str] = []
    for chunk in chunks(uids, _CHUNK):
        placeholders = ", ".join(["%s"] * len(chunk))
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT uid FROM feed_user "  # noqa: S608
                f"WHERE biz_id = %s AND uid IN ({placeholders}) "
                f"AND merging = {int(FeedUser.Merging.PUSHED)} ORDER BY biz_id, uid {share}",
                [biz, *chunk],
            )
            locked_uids += [row[0] for row in cursor.fetchall()]
    return locked_uids
