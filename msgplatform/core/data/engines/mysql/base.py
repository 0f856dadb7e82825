"""The connection of the platform's own databases: Django's, with additions for a cluster (Galera).

- A new connection waits until its server has applied all changes that the former writer
  acknowledged. Afterwards this server is the writer, and no answer is out of date.
- A reused connection first reads a table: a server without a quorum answers pings and `SELECT 1`,
  and refuses all other statements.
- A connection knows its server, for the alert about two writers.
- An error tells whether it came before COMMIT, when nothing of the transaction can be stored.
- An error about a value is a DataError, and one about the server's files an OperationalError,
  whatever class mysqlclient has for its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import TracebackType

from django.db.backends.mysql import base
from django.db.utils import (
    DatabaseErrorWrapper,
    DataError,
    Error,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from django.utils.functional import cached_property

from msgplatform.core.data import engines, server, transactions
from msgplatform.core.data.engines.contract import IDLE_TRANSACTION_SECONDS, Fault
from msgplatform.core.data.engines.mysql import error_codes


class _MarkingErrors(DatabaseErrorWrapper):
    """Marks an error before the COMMIT of a transaction, and tells refused values from an
    unavailable server."""

    def __init__(self, connection: DatabaseWrapper) -> None:
        super().__init__(connection)
        self._connection = connection

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(exc_type, exc_value, traceback)
        except Error as error:
            code = transactions.error_code(error)
            if code in error_codes.OF_VALUES or code in error_codes.OF_FILES:
                cause = error.__cause__
                kind = DataError if code in error_codes.OF_VALUES else OperationalError
                error = kind(*error.args).with_traceback(traceback)
                error.__cause__ = cause
            # Django ends the block before it sends COMMIT.
            if self._connection.in_atomic_block or self._connection.is_beginning:
                error.add_note(transactions.BEFORE_COMMIT)
            raise error


class DatabaseWrapper(base.DatabaseWrapper):
    is_in_cluster = False
    is_beginning = False  # connecting, or beginning a transaction
    idle_transaction_seconds = IDLE_TRANSACTION_SECONDS  # of MySQL

    @cached_property
    def wrap_database_errors(self) -> DatabaseErrorWrapper:
        return _MarkingErrors(self)

    def check_database_version_supported(self) -> None:
        """Django calls this once for each database, before other methods."""
        if refusal := engines.of_connection(self).refusal(self):
            raise NotSupportedError(refusal)

    def connect(self) -> None:
        with self._beginning():
            super().connect()

    def set_autocommit(
        self, autocommit: bool, force_begin_transaction_with_broken_autocommit: bool = False
    ) -> None:
        # Switching autocommit on ends a transaction, which may then be stored.
        with nullcontext() if autocommit else self._beginning():
            super().set_autocommit(autocommit, force_begin_transaction_with_broken_autocommit)

    def _set_autocommit(self, autocommit: bool) -> None:
        """Django's hook for backends. MySQL has no limit for idle transactions, but its limit for
        idle connections also rolls back: the statement that begins a transaction sets this limit,
        and the one that ends it resets the limit. MariaDB reads both as comments."""
        if self.connection.get_autocommit() == autocommit:
            return
        seconds = "DEFAULT" if autocommit else str(self.idle_transaction_seconds)
        with self.wrap_database_errors:
            self.connection.query(
                f"SET autocommit={int(autocommit)} /*!80000 , wait_timeout={seconds} */".encode()
            )

    @contextmanager
    def _beginning(self) -> Iterator[None]:
        was_beginning, self.is_beginning = self.is_beginning, True
        try:
            yield
        finally:
            self.is_beginning = was_beginning

    def init_connection_state(self) -> None:
        super().init_connection_state()
        with self.cursor() as cursor:
            cursor.execute("SELECT @@hostname, @@port")
            host, port = cursor.fetchone()
            # MySQL, and MariaDB built without Galera, do not know @@wsrep_on.
            cursor.execute("SHOW VARIABLES LIKE 'wsrep_on'")
            self.is_in_cluster = any(value == "ON" for _name, value in cursor.fetchall())
            if self.is_in_cluster:
                try:
                    # A SELECT on a table waits until this server has applied all changes.
                    cursor.execute(
                        f"SET STATEMENT wsrep_sync_wait = 1 FOR {engines.MYSQL.question}"
                    )
                except ProgrammingError as error:
                    if engines.fault(error) is not Fault.NO_TABLE:
                        raise
        server.note(self.alias, f"{host}:{port}")

    def is_usable(self) -> bool:
        if not super().is_usable():
            return False
        if not self.is_in_cluster:
            return True
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(engines.MYSQL.question)
        except self.Database.Error as error:
            return engines.fault(error) is Fault.NO_TABLE
        return True
