"""Counters, figures made of counters, metrics, and alerts published as events."""
