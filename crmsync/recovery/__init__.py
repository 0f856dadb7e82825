"""Retry and dismiss dead records, resend records, replay operations; for the console, `run_bulk`
and `sync_recover`."""
