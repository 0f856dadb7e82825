"""`run_sync_poller`: reads what changed at a source and gives it to the CRMs."""
