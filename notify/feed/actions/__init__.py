"""Actions on many events, as `run_bulk` does them: replay, dismiss."""
