"""Sources of somebody else on a real MariaDB, and a reader that goes on from where it is."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connections

from bench.harness.mariadb import MariaDb
from crmsync.poller.reading.increment import Increment, Page, Row, Watermark
from crmsync.poller.reading.source import Source
from tests.support.lead_tables import LEADS, MYSQL_TABLE

NAME = "somebody_else"
PASSWORD = "not-to-be-shown"
SECONDS = 180.0


class Follower:
    """Reads on from where it is."""

    def __init__(self, source: Source, limit: int = 100) -> None:
        self.increment = Increment(source)
        self.limit = limit
        self.watermark: Watermark | None = None
        self.page: Page | None = None

    def read(self) -> list[Row]:
        self.page = self.increment.read(self.watermark, self.limit)
        self.watermark = self.page.watermark
        self.increment.confirm(self.page)
        return list(self.page.rows)

    def uids(self) -> list[str]:
        return [row.values["uid"] for row in self.read()]

    def until(self, *uids: str) -> list[str]:
        """Read until these were read too; all that was read."""
        found: list[str] = []
        deadline = time.monotonic() + SECONDS
        while not set(uids) <= set(found):
            found += self.uids()
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found


def reader_url(mariadb: MariaDb) -> str:
    return f"mysql://reader:{PASSWORD}@127.0.0.1:{mariadb.port}/{NAME}"


def run_as_owner(mariadb: MariaDb, *statements: str) -> None:
    """Run statements in one session that writes to the table, each committed by itself."""
    session = mariadb.connect(NAME)
    try:
        for statement in statements:
            session.cursor().execute(statement)
    finally:
        session.close()


# -- fixtures: `foreign = pytest.fixture(sources.foreign)`, and so on ------------------------------
def connections_of_sources(django_db_blocker: Any) -> Iterator[None]:
    """They may be used without the platform's own database, and do not stay."""
    with django_db_blocker.unblock():
        yield
    for alias in [name for name in connections.settings if name.startswith("source-")]:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


def foreign(mariadb: MariaDb) -> Iterator[Callable[..., Source]]:
    """A table of leads in a database of somebody else, read by a user of its own."""

    def make(kind: str = "TIMESTAMP(6)", process: bool = True, **more: Any) -> Source:
        mariadb.create(NAME)
        mariadb.execute(MYSQL_TABLE.format(table=f"{NAME}.lead", kind=kind))
        mariadb.execute("DROP USER IF EXISTS reader@'%'")
        mariadb.execute(f"CREATE USER reader@'%' IDENTIFIED BY '{PASSWORD}'")
        mariadb.execute(f"GRANT SELECT ON {NAME}.* TO reader@'%'")
        if process:
            mariadb.execute("GRANT PROCESS ON *.* TO reader@'%'")
        return Source("lead", LEADS, reader_url(mariadb), **more)

    yield make
    mariadb.execute(f"DROP DATABASE IF EXISTS {NAME}")
    mariadb.execute("DROP USER IF EXISTS reader@'%'")
