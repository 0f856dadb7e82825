"""Databases: SQL that they spell differently, ids, claims with a lease."""
