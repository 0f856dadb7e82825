"""Feed's tables, named as in the original design where that has one."""

from notify.feed.models.events import EventQueue, FeedPace
from notify.feed.models.posts import Feed, FeedBroadcast, FeedIdempotency
from notify.feed.models.users import FeedUser, Friend

__all__ = [
    "EventQueue", "Feed", "FeedBroadcast", "FeedIdempotency", "FeedPace", "FeedUser", "Friend",
]  # fmt: skip
