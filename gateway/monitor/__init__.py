"""Counters and their meaning, metrics, alert conditions, failures, runbooks, first steps."""
