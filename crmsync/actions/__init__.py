"""Actions on many records, as `run_bulk` does them: retry, dismiss, send again."""
