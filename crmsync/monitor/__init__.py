"""Counters of CRM sync and their meaning, metrics, alerts, failures, the progress of runs."""
