"""Benches of Notify."""
