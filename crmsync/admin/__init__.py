"""CRM sync in the console."""

from crmsync.admin import landing_pages, operations, recovery, runs, setup

__all__ = ["landing_pages", "operations", "recovery", "runs", "setup"]
