"""Connections to sources: sessions that only read, errors that say how to repair the problem."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from crmsync.poller.reading.source import Source, SourceMismatch, SourceRefused, SourceUnavailable
from msgplatform.core import outbound
from msgplatform.core.data import databases, engines, transactions
from msgplatform.core.data.engines.contract import Engine, Fault

_PREFIX = "source-"
NEEDS_PROCESS = 1227  # the number of MySQL's error, which MariaDB shares
_MISSING = {Fault.NO_DATABASE: "database", Fault.NO_TABLE: "table", Fault.NO_COLUMN: "column"}


class Database:
    """A source's database for the thread that uses it; reads outside any transaction."""

    def __init__(self, source: Source) -> None:
        """Register the database with Django. Opens no connection yet."""
        self.alias = "default"
        if not source.database:
            return
        # The alias is made from the URL: sources of one database share a connection in each thread.
        self.alias = _PREFIX + hashlib.sha256(source.database.encode()).hexdigest()[:16]
        if self.alias in connections.settings:
            return
        config = databases.configuration(source.database)
        databases.refuse_unsafe(config)
        databases.add(self.alias, engines.of_config(config).reading(config))

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[self.alias]

    @property
    def engine(self) -> Engine:
        return engines.of_config(self.connection.settings_dict)

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
            fault = engines.fault(error)
            if fault is Fault.REFUSED and self.engine.is_server:
                why = f"the source's server refuses this user ({text})"
                raise SourceRefused(why, transactions.error_code(error)) from error
            if kind := _MISSING.get(fault):
                raise SourceMismatch(f"the source has no such {kind} ({text})") from error
            if fault is Fault.NO_FILE:
                why = "there is no such file, or it may not be opened"
                raise SourceMismatch(why) from error
            if fault is Fault.DAMAGED:
                raise SourceMismatch(f"the source's file cannot be read ({text})") from error
            if not self.engine.is_server:
                raise SourceUnavailable(f"the source's file cannot be read now ({text})") from error
            # After any other error the connection may be unusable.
            self.connection.close()
            raise SourceUnavailable(f"the source's server does not answer ({text})") from error


def only_read(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Make the session read only, whatever the database user may do."""
    if connection.alias.startswith(_PREFIX):
        engines.of_config(connection.settings_dict).only_read(connection)


connection_created.connect(only_read, dispatch_uid="crmsync.poller.reading.database")
