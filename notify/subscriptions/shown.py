"""The parts of a consumer that people may see: never a secret."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

# Stands for a stored value that is not shown; no header's value can hold it.
MASK = "•••"


def shown_url(url: str) -> str:
    """The address without its possible secrets: the query's text, and user and password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, MASK if parts.query else "", ""))
