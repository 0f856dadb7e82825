"""`run_sync_handler`: sends work orders to CRMs, and marks the outcome of each record."""
