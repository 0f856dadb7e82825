"""Counters, statistics, metrics and the alerts of Feed."""
