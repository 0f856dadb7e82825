"""Times of failures that the database's clock can tell apart."""

from datetime import datetime

from msgplatform.core.data import sql


def tick() -> datetime:
    """A later time than everything before: a database's clock may count milliseconds."""
    before = now = sql.now()
    while now <= before:
        now = sql.now()
    return now
