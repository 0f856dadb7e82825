"""Connections to sources: sessions that only read, errors that say how to repair the problem."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from crmsync.poller.reading.source import Source, SourceMismatch, SourceRefused, SourceUnavailable
from msgplatform.core import outbound
from msgplatform.core.data import databases, transactions
from msgplatform.core.errors import PlatformError

_PREFIX = "source-"
# A server that hangs keeps a policy's thread no longer than these timeouts.
_MYSQL: dict[str, Any] = {
    "charset": "utf8mb4",
    "isolation_level": "read committed",
    "init_command": "SET time_zone='+00:00'",
    "connect_timeout": 5,
    "local_infile": 0,  # no server may ask for files of this machine
    "read_timeout": 30,
    "write_timeout": 30,
}
# The journal mode stays what its owner chose.
_SQLITE: dict[str, Any] = {"timeout": 20, "init_command": "PRAGMA query_only = ON"}

# Numbers of MySQL's errors, which MariaDB shares.
NEEDS_PROCESS = 1227
_REFUSED = {1044, 1045, 1142, 1143, 1698, NEEDS_PROCESS}
_MISSING = {1049: "database", 1051: "table", 1054: "column", 1146: "table"}


class Database:
    """A source's database for the thread that uses it; reads outside any transaction."""

    def __init__(self, source: Source) -> None:
        """Make the database known to Django; opens no connection yet."""
        self.alias = "default"
        if not source.database:
            return
        # The alias is made of the URL: sources of one database share a connection in each thread.
        self.alias = _PREFIX + hashlib.sha256(source.database.encode()).hexdigest()[:16]
        if self.alias in connections.settings:
            return
        config = databases.configuration(source.database)
        databases.refuse_unsafe(config)
        if databases.is_mysql(config):
            config["OPTIONS"] = {**config["OPTIONS"], **_MYSQL, "conv": _conversions()}
        else:
            # `mode=rw`: a file that does not exist is not created.
            config["NAME"] = f"{Path(config['NAME']).absolute().as_uri()}?mode=rw"
            config["OPTIONS"] = dict(_SQLITE)
        databases.add(self.alias, config)

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

        Raises SourceUnavailable, SourceRefused or SourceMismatch, and what a driver raises for a
        value that it cannot read: UnicodeError for a text in SQLite that is not UTF-8.
        """
        if outbound.is_off() and self.alias != DEFAULT_DB_ALIAS:
            raise SourceUnavailable(outbound.OFF)
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                return list(cursor.fetchall()) if cursor.description else []
        except (DatabaseError, InterfaceError) as error:
            text = str(error.args[-1]) if error.args else type(error).__name__
            if text.startswith("Could not decode to UTF-8"):  # the rest is the value
                raise UnicodeError(text.partition(" with text ")[0]) from None
            if not self.is_mysql:
                raise _sqlite_error(error, text) from error
            code = transactions.error_code(error)
            if code in _REFUSED:
                why = f"the source's server refuses this user ({text})"
                raise SourceRefused(why, code) from error
            if code in _MISSING:
                why = f"the source has no such {_MISSING[code]} ({text})"
                raise SourceMismatch(why) from error
            # After any other error the connection may be unusable.
            self.connection.close()
            raise SourceUnavailable(f"the source's server does not answer ({text})") from error


def _conversions() -> Mapping[Any, Any]:
    """MySQL's TIME is a duration of up to 838 hours, which no time of Python holds: as text."""
    from django.db.backends.mysql.base import django_conversions  # needs the driver
    from MySQLdb.constants import FIELD_TYPE

    return {**django_conversions, FIELD_TYPE.TIME: str}


def _sqlite_error(error: Exception, text: str) -> PlatformError:
    """SQLite has hardly any error numbers: its texts tell what is wrong."""
    if text.startswith(("no such table", "no such column")):
        return SourceMismatch(f"the source has {text}")
    if "unable to open" in text:
        return SourceMismatch("there is no such file, or it may not be opened")
    code = getattr(error.__cause__, "sqlite_errorcode", 0)
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return SourceMismatch(f"the source's file cannot be read ({text})")
    return SourceUnavailable(f"the source's file cannot be read now ({text})")


def only_read(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Make the poller's sessions read only, whatever the database user may do."""
    if connection.alias.startswith(_PREFIX) and connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION READ ONLY")


connection_created.connect(only_read, dispatch_uid="crmsync.poller.reading.database")
