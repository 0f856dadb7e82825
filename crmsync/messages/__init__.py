"""Leads and records as the platform finds, lists and shows them, with their state at each CRM."""
