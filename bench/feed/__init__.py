"""Benches of Feed."""
