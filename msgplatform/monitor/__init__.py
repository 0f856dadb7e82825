"""What the platform counts and watches: counters, failures, alerts, findings, statistics."""
