"""Counters and what they mean, metrics, and alerts published as events."""
