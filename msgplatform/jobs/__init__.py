"""Bulk jobs: their tables, starting and controlling them, running them page by page, outcomes."""
