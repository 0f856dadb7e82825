"""What a person does about records that are dead, sending again what was sent, and what is deleted
when it has been kept long enough; console, `run_bulk`, `sync_recover` and the poller use it."""
