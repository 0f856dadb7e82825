"""Records of a Tryton server, as `run_sync_handler` writes them."""
