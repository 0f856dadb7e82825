"""Logging in, and the pages where people choose and change their password."""
