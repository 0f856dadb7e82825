"""How busy the server is, and how fast all dispatchers work; in `run_feed_dispatcher`."""
