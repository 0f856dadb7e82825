"""Counters, statistics, metrics, and alerts published as events."""
