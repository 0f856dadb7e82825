"""Counters, figures made of counters, metrics and alerts of Feed, for the dispatcher, the console,
`doctor` and `/metrics`."""
