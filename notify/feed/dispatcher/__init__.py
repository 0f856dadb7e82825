"""`run_feed_dispatcher`: receivers write posts into timelines, at the scheduler's pace."""
