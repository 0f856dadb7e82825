"""`run_sender`: deliver work orders over HTTP, each subscription in a lane of its own."""
