"""What CRM sync counts and reports: counters and what they mean, metrics, alerts, the progress of
runs, and what handlers and pollers report of their CRMs and policies."""
