"""The settings of Feed; every name in capitals becomes a setting in `msgplatform.settings`."""

import os

from msgplatform import env

# Posts of an author with more recipients are merged at read instead of written, from the next
# change of the author's relations on.
FEED_READ_FANOUT_ABOVE = env.integer("FEED_READ_FANOUT_ABOVE", 50_000, 10, 100_000_000)
# With fewer recipients they are written again; never above FEED_READ_FANOUT_ABOVE. The gap keeps
# authors from going back and forth.
FEED_WRITE_FANOUT_BELOW = env.integer("FEED_WRITE_FANOUT_BELOW", 40_000, 1, 100_000_000)
# How many relations may bring posts to one reader (a friend who is followed too counts twice): a
# page of a timeline asks all of them for what is not written.
FEED_MAX_AUTHORS = env.integer("FEED_MAX_AUTHORS", 10_000, 10, 1_000_000)
# A post with more recipients is written in slices of so many, each a transaction.
FEED_FANOUT_BATCH = env.integer("FEED_FANOUT_BATCH", 5000, 10, 100_000)
# How many entries of a timeline are kept; older pages are merged from the posts.
FEED_TIMELINE_LENGTH = env.integer("FEED_TIMELINE_LENGTH", 1000, 20, 10_000)
# How many entries are written when a reader comes back.
FEED_REBUILD_LENGTH = env.integer("FEED_REBUILD_LENGTH", 300, 20, 10_000)
# Posts are not written for readers who have stayed away for so long.
FEED_ACTIVE_DAYS = env.integer("FEED_ACTIVE_DAYS", 30, 1, 3650)
# Handled events are deleted when they are older.
FEED_KEEP_EVENT_HOURS = env.integer("FEED_KEEP_EVENT_HOURS", 24, 1, 24 * 365)
# Entries of timelines are deleted a day after this age; 0: only FEED_TIMELINE_LENGTH counts.
FEED_KEEP_ENTRY_DAYS = env.integer("FEED_KEEP_ENTRY_DAYS", 90, 0, 36500)
# Seconds between two runs of the cleaner, which makes partitions two days ahead.
FEED_CLEAN_SECONDS = env.number("FEED_CLEAN_SECONDS", 3600, 0.05, 86400)

# -- how fast dispatchers work ---------------------------------------------------------------------
# The least share of full speed beside others; 0.08 keeps about a tenth of the average rate.
FEED_MIN_SHARE = env.number("FEED_MIN_SHARE", 0.08, 0.01, 1)
# Dispatchers keep twice as much of full speed while the oldest event has waited for so long; the
# alert feed.late says so.
FEED_LATE_SECONDS = env.number("FEED_LATE_SECONDS", 60, 1, 7 * 86400)
# The largest share at some hours of the day, in TIME_ZONE: `19-23:0.3,0-6:1`.
# By default: none
FEED_SHARE_BY_HOUR = env.text("FEED_SHARE_BY_HOUR")
# Dispatchers give way when more statements of others run at once.
# By default: half the number of processors
FEED_TARGET_STATEMENTS = env.number(
    "FEED_TARGET_STATEMENTS", (os.cpu_count() or 1) / 2, 0.1, 10_000
)
# Dispatchers give way when the database's latency is more than so many times that at rest.
FEED_TARGET_LATENCY = env.number("FEED_TARGET_LATENCY", 1.5, 1.05, 1000)
# Dispatchers give way when more than this part of the machine's processors is at work.
FEED_TARGET_CPU = env.number("FEED_TARGET_CPU", 0.9, 0.05, 1)
