"""Counters, statistics, metrics and alerts of Feed; used by the dispatcher, the console, `doctor`
and `/metrics`."""
