"""What CRM sync counts and reports: counters, statistics, metrics, alerts, the progress of runs,
and what handlers and pollers report of their CRMs and policies."""
