"""The business system's database as a connection of this process, given by URL at run time."""

from __future__ import annotations

from msgplatform.core.data import databases

ALIAS = "outbox"


def add_database(url: str, alias: str = ALIAS) -> str:
    """Make the database of `url` known to Django as `alias`, and return that.

    Opens no connection. Raises InvalidInput with a sentence that does not repeat the URL, which
    may hold a password.
    """
    return databases.add(alias, databases.for_writing(url))
