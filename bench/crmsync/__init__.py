"""Benches of CRM sync."""
