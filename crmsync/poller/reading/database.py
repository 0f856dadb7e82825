"""Sources' databases: sessions that only read, tables that are compared with their descriptions,
and errors that say how to repair the problem."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any

import msgspec
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.utils.translation import gettext as _, gettext_noop

from crmsync.poller.reading.source import (
    Source,
    SourceMismatch,
    SourceRefused,
    SourceUnavailable,
    parse_zone,
)
from msgplatform.core import outbound
from msgplatform.core.data import databases, engines, transactions
from msgplatform.core.data.engines.contract import Engine, Fault, Index

_PREFIX = "source-"
NEEDS_PROCESS = 1227  # the number of MySQL's error, which MariaDB shares
_MISMATCHES = {
    Fault.NO_DATABASE: gettext_noop("the source has no such database (%s)"),
    Fault.NO_TABLE: gettext_noop("the source has no such table (%s)"),
    Fault.NO_COLUMN: gettext_noop("the source has no such column (%s)"),
    Fault.NO_FILE: gettext_noop("there is no such file, or it may not be opened"),
    Fault.DAMAGED: gettext_noop("the source's file cannot be read (%s)"),
}


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
            raise SourceUnavailable(_(outbound.OFF))
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
                why = _("the source's server refuses this user (%s)") % text
                raise SourceRefused(why, transactions.error_code(error)) from error
            if mismatch := _MISMATCHES.get(fault):
                raise SourceMismatch(_(mismatch).replace("%s", text)) from error
            if not self.engine.is_server:
                why = _("the source's file cannot be read now (%s)") % text
                raise SourceUnavailable(why) from error
            # After any other error the connection may be unusable.
            self.connection.close()
            raise SourceUnavailable(_("the source's server does not answer (%s)") % text) from error


def only_read(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Make the session read only, whatever the database user may do."""
    if connection.alias.startswith(_PREFIX):
        engines.of_config(connection.settings_dict).only_read(connection)


connection_created.connect(only_read, dispatch_uid="crmsync.poller.reading.database")


# Rows whose time is NULL or zero have no place in the order by time: they would never be read.
FIRST_TIME = "1970-01-01 00:00:01"
_INTEGERS = {
    "tinyint", "smallint", "mediumint", "int", "integer", "bigint", "bit", "bool", "numeric",
}  # fmt: skip
_TEXTS = {"char", "varchar", "text", "uuid"}


class Table(msgspec.Struct, frozen=True):
    """The facts that reading needs: the zone of the time column, and the index that orders it.

    Without an index (its name is empty) every poll reads the whole table.
    """

    zone: tzinfo
    index: str
    # Columns by their names in lower case: those of the types BIT and FLOAT, and the zones of those
    # that hold a date with a time.
    bits: frozenset[str] = frozenset()
    floats: frozenset[str] = frozenset()
    zones: Mapping[str, tzinfo] = msgspec.field(default_factory=dict)
    # The zone in which people at the source read a clock.
    local_zone: tzinfo = UTC


def inspect(source: Source, database: Database) -> Table:
    """Inspect the source's table. Raises SourceMismatch with the problem, or an error of `rows`.

    A view has no indexes of its own: its key is assumed to be unique.
    """
    engine, quote = database.engine, database.quote
    columns, indexes, is_view = engine.describe(database.rows, source.table)
    if not columns:
        raise SourceMismatch(_("the table %s does not exist, or may not be read") % source.table)
    by_name = {column.name.lower(): column for column in columns}
    for name in source.columns.all():
        if name.lower() not in by_name:
            why = _("the table %(table)s has no column %(name)s, or it may not be read")
            raise SourceMismatch(why % {"table": source.table, "name": name})
    rules = (
        (source.columns.update_time, engine.time_types, _("a date with a time")),
        (source.columns.key, _INTEGERS | _TEXTS, _("an integer or text")),
        (source.columns.is_deleted, _INTEGERS, _("an integer or a truth value")),
        (source.columns.version, _INTEGERS, _("an integer")),
    )
    for name, types, meaning in rules:
        if name and (kind := by_name[name.lower()].type) not in types:
            why = _("the column %(name)s has the type %(kind)s, it must be %(meaning)s")
            raise SourceMismatch(why % {"name": name, "kind": kind, "meaning": meaning})
    key = source.columns.key.lower()
    if not is_view and by_name[key].nullable:
        why = _("the column %s must not allow NULL: it is the key") % source.columns.key
        raise SourceMismatch(why)
    if not is_view and not any(index.unique and index.columns == (key,) for index in indexes):
        raise SourceMismatch(_("the column %s is not unique: it is the key") % source.columns.key)
    table, time = quote(source.table), quote(source.columns.update_time)
    if fault := engine.time_fault(database.rows, table, time):
        why = _("times in %(column)s %(fault)s")
        raise SourceMismatch(why % {"column": source.columns.update_time, "fault": fault})
    own_zone = parse_zone(source.zone)
    # The session's zone is UTC: MySQL converts a TIMESTAMP to UTC, and returns a DATETIME as it was
    # written.
    zones = {
        name: UTC if engine.is_server and column.type == "timestamp" else own_zone
        for name, column in by_name.items()
        if column.type in ("timestamp", "datetime")
    }
    return Table(
        zones.get(source.columns.update_time.lower(), own_zone),
        _order_index(source, indexes),
        frozenset(name for name, column in by_name.items() if column.type == "bit"),
        frozenset(name for name, column in by_name.items() if column.type == "float"),
        zones,
        own_zone,
    )


def _order_index(source: Source, indexes: list[Index]) -> str:
    """The name of the index by (time, key), '' without one. An index by time alone will do where
    the key is the primary key: InnoDB adds that to every index."""
    time, key = source.columns.update_time.lower(), source.columns.key.lower()
    primary = next((index.columns for index in indexes if index.name == "PRIMARY"), ())
    for columns in ((time, key), (time,)):
        for index in indexes:
            is_order = index.columns == columns and (len(columns) == 2 or primary == (key,))
            if is_order and index.is_usable:
                return index.name
    return ""
