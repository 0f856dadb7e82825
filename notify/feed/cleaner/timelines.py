"""Trim timelines that are too long, and delete entries that nobody reads.

The floor of a timeline is raised and committed before entries below it are deleted: nobody reads
the entries that a killed cleaner leaves behind, and the next walk finds them.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import TypeVar

import msgspec
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import Exists, OuterRef

from msgplatform.core import logging
from msgplatform.core.archive.description import horizon
from msgplatform.core.archive.partitions import partitions_of
from msgplatform.core.daemons import bisect
from msgplatform.core.data import transactions
from msgplatform.core.failpoints import failpoint
from notify.feed.models import FeedBroadcast, FeedUser
from notify.feed.retention import ENTRIES, keep_entries
from notify.feed.users import lock

T = TypeVar("T")

log = logging.get(__name__)

PAGE = 100  # readers whose entries one statement counts
CHUNK = 1000  # entries in one transaction
# A timeline is trimmed when it has _SLACK times FEED_TIMELINE_LENGTH entries, so trims are rare.
_SLACK = 1.2


def skip_refused(items: Sequence[T], work: Callable[[T], object], what: str) -> Sequence[T]:
    """Call `work`, which can be repeated, for the items; returns the items done. An item whose rows
    the database refuses to change, or that another process has locked, waits for the next round."""

    def work_all(part: Sequence[T]) -> Sequence[T]:
        for item in part:
            work(item)
        return part

    try:
        return bisect.leave_refused(items, work_all, what=what)
    except DatabaseError as error:
        if bisect.is_unanswered(error):
            raise
        log.warning("cleaning_skipped", what=what, why=str(error)[:200])
        return []


class Length(msgspec.Struct, frozen=True):
    """The entries of one reader's timeline."""

    entries: int
    oldest: int  # a post's id


class UserPages:
    """All users, page by page in the order of the primary key.

    The position is only in memory, so after a restart the walk begins again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._biz, self._after = -1, ""

    def page(self) -> list[FeedUser]:
        """The next users, all of one business system; none at the end."""
        rows = FeedUser.objects.filter(biz_id=self._biz, uid__gt=self._after).order_by("uid")
        # At the end of a system go on with the next system that has users.
        while not (users := list(rows[: self._size])):
            next_users = FeedUser.objects.filter(biz_id__gt=self._biz).order_by("biz_id")
            biz = next_users.values_list("biz_id", flat=True).first()
            if biz is None:
                return []
            self._biz = biz
            rows = FeedUser.objects.filter(biz_id=biz).order_by("uid")
        self._after = users[-1].uid
        return users


class Timelines:
    """A walk through all readers. `clean` cleans one page."""

    def __init__(self, now: datetime) -> None:
        self._users = UserPages(PAGE)
        self._after: tuple[int, str, int] | None = None  # key of the last entry without user
        age = keep_entries()
        # Where the table has partitions `cleaner.Months` drops old entries by the month.
        is_by_rows = age is not None and not partitions_of(ENTRIES.tables[0])
        self._min_floor = horizon(now, age) - 1 if is_by_rows and age else 0

    def clean(self) -> bool:
        """Trim the timelines of a page of readers; True if there are more."""
        page = self._users.page()
        if not page:
            return self._delete_without_user()
        places = ", ".join(["%s"] * len(page))
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT fri_uid, COUNT(*), MIN(feed_id) FROM feed_broadcast "  # noqa: S608
                f"WHERE biz_id = %s AND fri_uid IN ({places}) GROUP BY fri_uid",
                [page[0].biz_id, *(user.uid for user in page)],
            )
            lengths = {uid: Length(entries, oldest) for uid, entries, oldest in cursor.fetchall()}
        users = [user for user in page if user.uid in lengths]
        skip_refused(users, lambda user: self.trim(user, lengths[user.uid]), "reader")
        return True

    def _delete_without_user(self) -> bool:
        """Delete a page of old entries in timelines of users without a row, which nobody reads.
        Returns True if there are more."""
        if not self._min_floor:
            return False
        readers = FeedUser.objects.filter(biz_id=OuterRef("biz_id"), uid=OuterRef("fri_uid"))
        old_entries = FeedBroadcast.objects.filter(~Exists(readers), feed_id__lte=self._min_floor)
        rows = old_entries.filter(pk__gt=self._after) if self._after else old_entries
        page = list(rows.order_by("pk").values_list("biz_id", "fri_uid", "feed_id")[:CHUNK])
        for (biz, uid), entries in groupby(page, lambda entry: entry[:2]):
            last = [feed_id for _biz, _uid, feed_id in entries][-1]
            timeline = old_entries.filter(biz_id=biz, fri_uid=uid, feed_id__lte=last)
            transactions.retrying(timeline.delete)
        self._after = page[-1] if page else self._after
        return len(page) == CHUNK

    def trim(self, user: FeedUser, length: Length) -> None:
        """Raise the floor if the timeline is too long or too old, then delete entries below it."""
        is_too_long = length.entries > _SLACK * settings.FEED_TIMELINE_LENGTH
        if user.active and (is_too_long or length.oldest <= self._min_floor):
            user.floor = transactions.retrying(partial(self._raise_floor, user.biz_id, user.uid))
            failpoint("feed_after_floor")
        # Entries of an inactive reader, and entries that a killed cleaner left, are below the floor
        # too.
        if length.oldest <= user.floor:
            while transactions.retrying(partial(_delete_chunk, user.biz_id, user.uid)):
                pass

    def _raise_floor(self, biz: int, uid: str) -> int:
        """Raise the floor, and return it. The floor never sinks."""
        with transaction.atomic(durable=True):
            user = lock(biz, [uid])[uid]
            above = FeedBroadcast.objects.filter(biz_id=biz, fri_uid=uid, feed_id__gt=user.floor)
            ids = above.order_by("-feed_id").values_list("feed_id", flat=True)
            length = settings.FEED_TIMELINE_LENGTH
            highest_deleted = next(iter(ids[length : length + 1]), 0)
            floor = max(user.floor, highest_deleted, self._min_floor)
            if floor > user.floor:
                FeedUser.objects.filter(biz_id=biz, uid=uid).update(floor=floor)
            return floor


def _delete_chunk(biz: int, uid: str) -> bool:
    """Delete a chunk of the entries below the floor; True if there are more."""
    with transaction.atomic(durable=True):
        # Read the floor under the lock, because a backfill for a returning reader lowers it.
        floor = lock(biz, [uid])[uid].floor
        rows = FeedBroadcast.objects.filter(biz_id=biz, fri_uid=uid, feed_id__lte=floor)
        ids = list(rows.order_by("feed_id").values_list("feed_id", flat=True)[:CHUNK])
        if ids:
            rows.filter(feed_id__lte=ids[-1]).delete()
        return len(ids) == CHUNK
