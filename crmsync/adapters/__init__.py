"""Adapters: how CRM sync speaks to each kind of CRM; used by `run_sync_handler` and the console."""
