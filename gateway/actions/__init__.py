"""Actions on many messages, as `run_bulk` does them: send again."""
