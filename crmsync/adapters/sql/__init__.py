"""Rows of a table in any database, as `run_sync_handler` writes them."""
