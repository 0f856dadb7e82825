"""The settings of Feed; `msgplatform.settings` takes over every name in capitals."""

from __future__ import annotations

from msgplatform import env

# An author with more recipients than the first is merged at read instead of pushed; once they are
# fewer than the second, posts are pushed again. The gap keeps an author from going to and fro.
FEED_MERGE_ABOVE = env.integer("FEED_MERGE_ABOVE", 50_000, 10, 100_000_000)
FEED_PUSH_BELOW = env.integer("FEED_PUSH_BELOW", 40_000, 1, 100_000_000)
# How many entries of a timeline are kept written; older pages are merged from the posts.
FEED_TIMELINE_LENGTH = env.integer("FEED_TIMELINE_LENGTH", 1000, 20, 10_000)
# How many entries a timeline is rebuilt with when its reader comes back.
FEED_REBUILD_LENGTH = env.integer("FEED_REBUILD_LENGTH", 300, 20, 10_000)
# Readers who did not come for so long are not written to.
FEED_ACTIVE_DAYS = env.integer("FEED_ACTIVE_DAYS", 30, 1, 3650)
# Handled events are deleted when they are older.
FEED_KEEP_EVENT_HOURS = env.integer("FEED_KEEP_EVENT_HOURS", 24, 1, 24 * 365)
# Entries of timelines are deleted when they are older; 0: only FEED_TIMELINE_LENGTH counts.
FEED_KEEP_ENTRY_DAYS = env.integer("FEED_KEEP_ENTRY_DAYS", 90, 0, 36500)
# Seconds between two runs of the cleaner.
FEED_CLEAN_SECONDS = env.number("FEED_CLEAN_SECONDS", 3600, 0.05, 7 * 86400)
