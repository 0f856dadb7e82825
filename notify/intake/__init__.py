"""Accepted events: checked, stored once and durably before the answer."""
