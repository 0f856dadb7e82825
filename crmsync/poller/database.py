"""The only place that connects to a source: sessions that only read, errors that say what to do."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.db import DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from crmsync.poller.source import Source, SourceMismatch, SourceRefused, SourceUnavailable
from msgplatform.core.data import databases, sql
from msgplatform.core.errors import PlatformError

_PREFIX = "source-"
_MYSQL: dict[str, Any] = {
    "charset": "utf8mb4",
    "isolation_level": "read committed",
    "init_command": "SET time_zone='+00:00'",
    "connect_timeout": 5,
    "read_timeout": 30,
    "write_timeout": 30,
}
# The journal mode stays what its owner chose.
_SQLITE: dict[str, Any] = {"timeout": 20, "init_command": "PRAGMA query_only = ON"}

NEEDS_PROCESS = 1227
_REFUSED = {1044, 1045, 1142, 1143, 1698, NEEDS_PROCESS}
_MISSING = {1049: "database", 1051: "table", 1054: "column", 1146: "table"}


class Database:
    """A source's database for the thread that uses it; reads outside any transaction."""

    def __init__(self, source: Source) -> None:
        self.is_own = not source.database
        self.alias = _alias(source.database) if source.database else "default"

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[self.alias]

    @property
    def is_mysql(self) -> bool:
        return self.connection.vendor == "mysql"

    def quote(self, name: str) -> str:
        return self.connection.ops.quote_name(name)

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of one statement, with values as the driver gives them.

        Raises SourceUnavailable, SourceRefused or SourceMismatch.
        """
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                return list(cursor.fetchall()) if cursor.description else []
        except (DatabaseError, InterfaceError) as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> PlatformError:
        if not self.is_mysql:
            return _explained_sqlite(error)
        code = sql.error_code(error)
        if code in _REFUSED:
            return SourceRefused(f"the source's server refuses this user ({_text(error)})", code)
        if code in _MISSING:
            return SourceMismatch(f"the source has no such {_MISSING[code]} ({_text(error)})")
        # Of everything else it is unknown whether the connection can still be used.
        self.connection.close()
        return SourceUnavailable(f"the source's server does not answer ({_text(error)})")


def _explained_sqlite(error: Exception) -> PlatformError:
    text = _text(error)
    if text.startswith(("no such table", "no such column")):
        return SourceMismatch(f"the source has {text}")
    if "unable to open" in text:
        return SourceMismatch("there is no such file, or it must not be opened")
    code = getattr(error.__cause__, "sqlite_errorcode", 0)
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return SourceMismatch(f"the source's file cannot be read ({text})")
    return SourceUnavailable(f"the source's file cannot be read now ({text})")


def _text(error: Exception) -> str:
    return str(error.args[-1]) if error.args else type(error).__name__


def _alias(url: str) -> str:
    """Django's name of a database that is given by URL; makes it known, opens no connection."""
    alias = _PREFIX + hashlib.sha256(url.encode()).hexdigest()[:16]
    if alias in connections.settings:
        return alias
    config = databases.configuration(url)
    databases.refuse_unsafe(config)
    if databases.is_mysql(config):
        config["OPTIONS"] = {**config["OPTIONS"], **_MYSQL}
    else:
        # A file that does not exist is not made.
        config["NAME"] = f"{Path(config['NAME']).absolute().as_uri()}?mode=rw"
        config["OPTIONS"] = dict(_SQLITE)
    return databases.add(alias, config)


def _only_read(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    if connection.alias.startswith(_PREFIX) and connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION READ ONLY")


connection_created.connect(_only_read, dispatch_uid="crmsync.poller.database")
