"""Logging in, passwords that people choose, and those that the platform made."""
