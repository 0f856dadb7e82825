"""Two CRMs of a test, one a table and one a server that counts, and what must be in both."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import Cluster
from tests.flows.crm_server import Books, CrmServer, adapter_settings
from tests.flows.crm_traffic import OPEN, SET_UP, STORY, Ledger

_TABLE = """
CREATE TABLE customer (code VARCHAR(40) PRIMARY KEY, name TEXT, phone TEXT, city TEXT,
                       revision BIGINT)
"""
_SQL_CRM = {"table": "customer", "key_column": "code", "version_column": "revision"}


@dataclass
class TwoCrms:
    """`token` is the key of the business system whose leads go to both."""

    cluster: Cluster
    token: str
    books: Books
    _path: Path

    def check(self, ledger: Ledger) -> str:
        """Both come to equal what was answered, nothing was made twice, and nothing older went
        over something newer. What there is to say of it."""
        expected, books = ledger.expected(), self.books
        self._await_equal(self._rows, expected, "the table", {})
        self._await_equal(books.held, expected, "the contacts", books.calls)
        self.cluster.wait_until(lambda: self.cluster.script(OPEN) == 0, "every record to be marked")
        assert books.twice() == []
        assert books.regressions == []
        return (
            f"{len(ledger.leads)} leads, {ledger.changes} writes, {len(expected)} left; "
            f"{books.failed} calls stored and not confirmed"
        )

    def _rows(self) -> dict[str, tuple[str, str, str]]:
        with closing(sqlite3.connect(self._path, timeout=60)) as connection:
            rows = connection.execute("SELECT code, name, phone, city FROM customer").fetchall()
        return {code: (name or "", phone or "", city or "") for code, name, phone, city in rows}

    def _await_equal(
        self,
        held: Callable[[], Mapping[str, object]],
        expected: Mapping[str, object],
        what: str,
        calls: Mapping[str, object],
    ) -> None:
        """Fails with the stories of some leads that differ."""
        try:
            self.cluster.wait_until(lambda: held() == expected, f"{what} to equal the hive")
        except AssertionError as error:
            rows = held()
            keys = [k for k in {**rows, **expected} if rows.get(k) != expected.get(k)]
            stories = [
                f"{key}: {rows.get(key)} is not {expected.get(key)}: "
                f"{self.cluster.script(STORY.format(key=key))} {calls.get(key)}"
                for key in keys[:5]
            ]
            raise AssertionError("\n".join([f"{len(keys)} differ in {what}", *stories])) from error


@contextlib.contextmanager
def two_crms(cluster: Cluster) -> Iterator[TwoCrms]:
    """A landing page, and a policy for each of the CRMs."""
    path = cluster.folder / "customers.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute(_TABLE)
    with CrmServer() as server:
        crms = [
            ("customers", "sql", _SQL_CRM, {"url": f"sqlite:///{path}"}, {}),
            ("contacts", "http", adapter_settings(server.url), {}, {"concurrency": 2}),
        ]
        token = cluster.script(SET_UP.format(crms=crms))
        yield TwoCrms(cluster, token, server.books, path)
