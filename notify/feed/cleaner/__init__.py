"""`run_feed_cleaner`: delete handled events, trim timelines, stop writing for absent readers."""
