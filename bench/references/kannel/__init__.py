"""Kannel: the SMS gateway in C (its own licence, like BSD's), spoken to over HTTP and SMPP."""
