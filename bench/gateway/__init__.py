"""Benches of SMS and SGIP."""
