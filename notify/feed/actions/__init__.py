"""Actions on many events, which `run_bulk` runs: replay, dismiss."""
