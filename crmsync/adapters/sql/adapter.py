"""Any database by URL: leads become rows of one table.

    INSERT … ON DUPLICATE KEY UPDATE      (SQLite: ON CONFLICT … DO UPDATE)

The table needs a column with the key, under a unique key of its own, and one with the version: an
older version never overwrites a newer. A deleted record is marked in `deleted_column`, or its row
is deleted when there is none; a deleted row forgets its version."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from django.db import DatabaseError, DataError, IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import ConnectionHandler
from django.utils.translation import gettext as _, gettext_lazy

from crmsync.adapters.base import (
    AdapterCredentials,
    CredentialsRefused,
    CRMAdapter,
    Field,
    Record,
    Stored,
)
from crmsync.adapters.outcomes import Auth, Invalid, Outcome, Refused, Retry, Unknown
from crmsync.adapters.sql.statements import SqlSettings, Statements
from crmsync.adapters.sql.table import Table, read_table
from msgplatform.core import outbound
from msgplatform.core.data import databases, engines
from msgplatform.core.data.engines.contract import Fault
from msgplatform.core.errors import InvalidInput, Unavailable

_NAME = re.compile(r"[\w$][\w$ -]{0,63}")


class SqlCredentials(AdapterCredentials, frozen=True, kw_only=True):
    url: str


class SqlAdapter(CRMAdapter):
    """Rows of a table in MySQL, MariaDB or SQLite."""

    name = "sql"
    title = gettext_lazy("The database")
    Settings = SqlSettings
    Credentials = SqlCredentials
    batch_size = 900  # an order as a whole
    is_upsert = True

    settings: SqlSettings
    credentials: SqlCredentials

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        super().__init__(settings, credentials)
        # Names go into statements, where they cannot be parameters.
        for name in ("table", "key_column", "version_column", "deleted_column"):
            value = getattr(self.settings, name)
            if not _NAME.fullmatch(value) and (value or name != "deleted_column"):
                raise InvalidInput(
                    _("The setting %s is no name of a table or column.") % name, name
                )
        databases.refuse_unsafe(databases.configuration(self.credentials.url, "url"), "url")
        config = databases.for_writing(self.credentials.url, "url")
        self._engine = engines.of_config(config)
        # A connection outside of Django's own: nothing migrates the database, and the connection is
        # closed with the adapter.
        self._handler = ConnectionHandler({"default": self._engine.existing_only(config)})
        self._cached_table: Table | None = None

    def secrets(self) -> Iterable[str]:
        password = urlsplit(self.credentials.url).password or ""
        # Drivers show the decoded password in their messages.
        return [self.credentials.url, password, unquote(password)]

    def close(self) -> None:
        self._handler.close_all()

    # -- reading ---------------------------------------------------------------------------------
    def fields(self) -> Mapping[str, Field]:
        self._cached_table = None  # the table may have changed since
        try:
            table = self._table()
        except DatabaseError as error:
            raise self._error(error) from None
        settings = self.settings
        for setting in ("key_column", "version_column", "deleted_column"):
            name = getattr(settings, setting)
            if name and name not in table.columns:
                raise InvalidInput(self._no_column(name), setting)
        if not table.key_is_unique:
            words = _("The column %(column)s of the table %(table)s needs a unique key.")
            names = {"column": settings.key_column, "table": settings.table}
            raise InvalidInput(words % names, "key_column")
        own_columns = settings.own_columns
        return {name: field for name, field in table.columns.items() if name not in own_columns}

    def read(self, keys: Collection[str]) -> Mapping[str, Stored]:
        try:
            table = self._table()
            with self._open().cursor() as cursor:
                return Statements(cursor, table, self.settings).read(keys)
        except DatabaseError as error:
            raise self._error(error) from None

    # -- writing ---------------------------------------------------------------------------------
    def deliver(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        try:
            table = self._table()
            if self._missing_column(table) or any(map(table.problem, batch)):
                self._cached_table = None  # a column may have been added or widened since
                table = self._table()
        except DatabaseError as error:
            return [self._outcome(error, len(batch))] * len(batch)
        if name := self._missing_column(table):
            text = self._no_column(name)
            return [Auth(text)] * len(batch)
        outcomes: dict[str, Outcome] = {
            record.key: problem for record in batch if (problem := table.problem(record))
        }
        if valid_records := [record for record in batch if record.key not in outcomes]:
            outcomes.update(self._write(table, valid_records))
        return [outcomes[record.key] for record in batch]

    def _write(self, table: Table, records: list[Record]) -> dict[str, Outcome]:
        """Write all records in one transaction."""
        stage: Literal["begin", "work", "commit"] = "begin"
        try:
            connection = self._open()
            with connection.cursor() as cursor:
                cursor.execute(self._engine.begin)
                stage = "work"
                outcomes = Statements(cursor, table, self.settings).write(records)
                stage = "commit"
                cursor.execute("COMMIT")
            return outcomes
        except DatabaseError as error:
            if stage != "begin" and engines.fault(error) is not Fault.LOST:
                try:
                    with self._open().cursor() as cursor:
                        cursor.execute("ROLLBACK")
                except DatabaseError:
                    self._drop()
            else:
                self._drop()
            outcome = self._outcome(error, len(records))
            # The server may have committed before the connection broke.
            if stage == "commit" and engines.fault(error) is Fault.LOST:
                outcome = Unknown(_("The connection was lost while the transaction was committed."))
            return {record.key: outcome for record in records}
        except BaseException:  # such as a value that the driver cannot write: our fault
            self._drop()
            raise

    # -- the connection --------------------------------------------------------------------------
    def _open(self) -> BaseDatabaseWrapper:
        """Raises Unavailable while OUTBOUND is off."""
        if outbound.is_off():
            raise Unavailable(_(outbound.OFF))
        return self._handler["default"]

    def _table(self) -> Table:
        """The table's columns, read anew by each connection. Raises DatabaseError; replaces a
        connection that is too old."""
        connection = self._open()
        connection.close_if_unusable_or_obsolete()
        if self._cached_table is None or connection.connection is None:
            settings = self.settings
            self._cached_table = read_table(connection, settings.table, settings.key_column)
        return self._cached_table

    def _missing_column(self, table: Table) -> str:
        """The first column of the settings that the table does not have, '' when it has all."""
        own_columns = filter(None, self.settings.own_columns)
        return next((name for name in own_columns if name not in table.columns), "")

    def _no_column(self, name: str) -> str:
        text = _("The table %(table)s has no column %(name)s.")
        return text % {"table": self.settings.table, "name": name}

    def _outcome(self, error: DatabaseError, size: int) -> Outcome:
        if engines.fault(error) is Fault.NO_COLUMN:
            self._cached_table = None  # the table was changed since it was read
            name = engines.column_of(message(error))
            if name and name in self.settings.own_columns:
                return Auth(self._no_column(name))
        if engines.fault(error) is Fault.OUT_OF_RANGE:
            column = engines.column_of(message(error))
            if column == self.settings.version_column:
                return Auth(_("The column %s is too small for versions.") % column)
        return verdict(error, size)

    def _error(self, error: DatabaseError) -> Exception:
        text = self.clean(message(error))
        self._drop()
        if engines.fault(error) is Fault.REFUSED:
            return CredentialsRefused(_("The database refuses the credentials: %s") % text)
        if engines.fault(error) in _SETUP:
            words = _("The table %(table)s cannot be used: %(text)s")
            return InvalidInput(words % {"table": self.settings.table, "text": text}, "table")
        return Unavailable(_("The database cannot be reached: %s") % text)

    def _drop(self) -> None:
        """Close the connection; the next call connects anew."""
        with suppress(DatabaseError):
            self._open().close()


_SETUP = frozenset({Fault.NO_DATABASE, Fault.NO_TABLE, Fault.DAMAGED, Fault.LOG_FORMAT})
_LATER = frozenset({Fault.LOST, Fault.UNREACHABLE, Fault.LATER, Fault.NO_FILE})
_VALUES = frozenset({Fault.VALUE, Fault.OUT_OF_RANGE, Fault.NO_COLUMN})
# The minimum wait for a server that cannot be reached.
_BUSY_SECONDS = 5.0


def verdict(error: DatabaseError, size: int) -> Outcome:
    """The outcome of each of `size` records whose statement was rolled back with this error."""
    fault, text = engines.fault(error), message(error)
    if fault is Fault.REFUSED or fault in _SETUP:
        return Auth(text)
    if fault in _LATER:
        return Retry(_BUSY_SECONDS if fault is Fault.UNREACHABLE else 0.0, text)
    if fault in _VALUES or isinstance(error, DataError | IntegrityError) or engines.column_of(text):
        return Invalid(engines.column_of(text), text) if size == 1 else Refused(text)
    # A trigger may raise any number. The error may belong to one record, which is then tried alone;
    # the other records are stored.
    return Refused(text) if fault is Fault.OTHER and size > 1 else Retry(0.0, text)


def message(error: BaseException) -> str:
    """The server's own sentence."""
    parts = [part for part in error.args if isinstance(part, str)]
    return parts[-1] if parts else type(error).__name__
