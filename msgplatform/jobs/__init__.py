"""Bulk jobs, which `run_bulk` runs, and the tables of counters and alerts of all flows."""
