"""The tables from which the cleaner deletes, and the times for which their rows are kept."""

from django.conf import settings

from msgplatform.core.archive.description import DAILY as BY_DAY, DAY, Archive, Table
from notify.feed.models import EventQueue, FeedBroadcast, FeedIdempotency

KEEP_PACE_DAYS = 7  # rows of FeedPace; the longest period of the scheduler's charts
_KEEP_KEYS_DAYS = 7  # within which a caller may repeat a request


def keep_events() -> float:
    """Seconds for which a handled event is kept."""
    return float(settings.FEED_KEEP_EVENT_HOURS) * 3600


def keep_entries() -> float | None:
    """Seconds for which an entry is kept; None: for ever. A day longer than the age up to which
    backfills write entries, so that none writes into a month that is being dropped."""
    days = float(settings.FEED_KEEP_ENTRY_DAYS)
    return (days + 1) * DAY if days else None


EVENTS = Archive("feed.events", (Table(EventQueue, column="qid", step=BY_DAY),), keep_events)
ENTRIES = Archive("feed.entries", (Table(FeedBroadcast, column="feed_id"),), keep_entries)
KEYS = Archive("feed.keys", (Table(FeedIdempotency),), lambda: _KEEP_KEYS_DAYS * DAY)
ARCHIVES = EVENTS, ENTRIES, KEYS
