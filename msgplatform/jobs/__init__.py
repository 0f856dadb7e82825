"""Bulk jobs: starting and controlling them, running them page by page, their outcomes."""
