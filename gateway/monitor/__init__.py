"""What counters mean, and metrics."""
