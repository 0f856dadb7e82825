"""Counters, failures, alerts, runbooks and statistics of the platform and its flows."""
