"""Counters and what they mean, metrics and alerts of Feed; used by the dispatcher, the console,
`doctor` and `/metrics`."""
