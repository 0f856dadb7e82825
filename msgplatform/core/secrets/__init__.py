"""Secrets that are stored encrypted, and encrypting them again after a change of keys."""
