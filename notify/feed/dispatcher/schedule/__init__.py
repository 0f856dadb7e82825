"""How busy the server is, and how fast all dispatchers work; part of `run_feed_dispatcher`."""
