"""Listeners fetch the deliveries of consumers for development: leases, results, wake-ups."""
