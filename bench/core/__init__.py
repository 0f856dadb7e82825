"""Benches of the shared core."""
