"""What `run_bulk` works off, and what all flows write: bulk jobs, counters, alerts."""
