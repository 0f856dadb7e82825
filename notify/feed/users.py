"""Rows of users, locked."""

from __future__ import annotations

from collections.abc import Iterable

from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from notify.feed.models import FeedUser

_CHUNK = 500


def lock(biz: int, uids: Iterable[str]) -> dict[str, FeedUser]:
    """Lock these users until the caller's transaction ends, making rows of those that have none.

    In one order everywhere, so that two transactions wait for each other instead of deadlocking.
    """
    wanted = sorted(set(uids))
    sql.insert_or_keep(FeedUser._meta.db_table, ("biz_id", "uid"), [(biz, uid) for uid in wanted])
    found: dict[str, FeedUser] = {}
    for some in chunks(wanted, _CHUNK):
        rows = FeedUser.objects.select_for_update().filter(biz_id=biz, uid__in=some)
        found.update((user.uid, user) for user in rows.order_by("biz_id", "uid"))
    return found
