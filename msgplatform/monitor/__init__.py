"""Counters, failures, alerts, runbooks, findings and statistics of the platform and its flows."""
