"""`run_feed_cleaner`: handled events, long timelines, readers who stay away."""
