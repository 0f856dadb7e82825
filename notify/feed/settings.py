"""The settings of Feed; `msgplatform.settings` takes over every name in capitals."""

from __future__ import annotations

import os

from msgplatform import env

# An author with more recipients than the first is merged at read instead of pushed; once they are
# fewer than the second, posts are pushed again. The gap keeps an author from going to and fro.
FEED_MERGE_ABOVE = env.integer("FEED_MERGE_ABOVE", 50_000, 10, 100_000_000)
FEED_PUSH_BELOW = env.integer("FEED_PUSH_BELOW", 40_000, 1, 100_000_000)
# How many relations may bring posts to one reader: a page asks all of them for what is not written.
FEED_MOST_AUTHORS = env.integer("FEED_MOST_AUTHORS", 10_000, 10, 1_000_000)
# Recipients of one author from which a post goes in slices of so many, each a transaction.
FEED_SLICE = env.integer("FEED_SLICE", 5000, 10, 100_000)
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

# -- how fast dispatchers work ---------------------------------------------------------------------
# The part of full speed that dispatchers keep however busy the server is: somewhat more than the
# tenth that is promised.
FEED_SHARE_LEAST = env.number("FEED_SHARE_LEAST", 0.13, 0.01, 1)
# They keep twice as much while an event has waited for so long.
FEED_LATE_SECONDS = env.number("FEED_LATE_SECONDS", 60, 1, 7 * 86400)
# The most they take at some hours of the day, in TIME_ZONE: "19-23:0.3,0-6:1".
FEED_HOURS = env.text("FEED_HOURS")
# From where on they give way to others: statements of others that run at once; the database's
# latency, in times of what it is at rest; the part of this machine's processors at work.
FEED_TARGET_STATEMENTS = env.number(
    "FEED_TARGET_STATEMENTS", (os.cpu_count() or 1) / 2, 0.1, 10_000
)
FEED_TARGET_LATENCY = env.number("FEED_TARGET_LATENCY", 1.5, 1.05, 1000)
FEED_TARGET_CPU = env.number("FEED_TARGET_CPU", 0.9, 0.05, 1)
