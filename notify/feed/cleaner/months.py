"""Entries older than FEED_KEEP_ENTRY_DAYS are dropped by the month, where the table has partitions.

Before a month is dropped, all floors are raised to its end, so that nobody reads what is gone. No
backfill sets a floor that low again: see `retention.keep_entries`.
"""

from __future__ import annotations

from datetime import datetime

from msgplatform.core.archive import partitions
from msgplatform.core.archive.ages import horizon
from msgplatform.core.archive.partitions import Partition, partitions_of
from msgplatform.core.failpoints import failpoint
from notify.feed.cleaner.readers import Readers
from notify.feed.models import FeedUser
from notify.feed.retention import ENTRIES, keep_entries

PAGE = 1000  # users
_TABLE = ENTRIES.tables[0]


class Months:
    """A walk through the floors of all readers for each month that goes."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._going: Partition | None = None
        self._readers = Readers(PAGE)

    def clean(self) -> bool:
        """Raise a page of floors, or drop a month; whether there is more to do."""
        if self._going is None:
            partitions.prepare(ENTRIES, self._now)
            self._readers, age = Readers(PAGE), keep_entries()
            oldest = partitions_of(_TABLE)[:1]
            if age is not None and oldest and oldest[0].is_below(horizon(self._now, age)):
                self._going = oldest[0]
            return self._going is not None
        if self._going.bound and (page := self._readers.page()):
            floor = self._going.bound - 1
            FeedUser.objects.filter(
                biz_id=page[0].biz_id,
                uid__gte=page[0].uid,
                uid__lte=page[-1].uid,
                floor__lt=floor,
            ).update(floor=floor)
            return True
        # Every floor is committed. Who dies here begins with the same month again.
        failpoint("feed_before_drop")
        with partitions.alone(ENTRIES) as mine:
            gone = mine and partitions.drop(_TABLE, self._going, _TABLE.rows().none())
        self._going = None
        return gone
