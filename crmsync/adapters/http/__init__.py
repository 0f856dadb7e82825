"""Any HTTP/JSON interface, described by its settings, as `run_sync_handler` calls it."""
