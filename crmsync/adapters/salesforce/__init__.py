"""Salesforce's objects, as `run_sync_handler` writes them."""
