"""`run_feed_cleaner`: handled events, long timelines, entries of readers who stay away."""
