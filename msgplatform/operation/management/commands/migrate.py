"""Django's `migrate`, without the time limit for one statement.

The platform's own errors are shown as one sentence. A database whose load was cut short is refused.
A new database belongs to the cell that CELL names.

The server goes on with a statement after its client has given up: a large table would be changed,
but the migration not noted as applied, so that it could never be applied again.
"""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import DatabaseError, NotSupportedError, connections

from msgplatform.core import cells
from msgplatform.core.data import cell_record, schema_state, transactions
from msgplatform.core.errors import PlatformError

_LIMITS = ("read_timeout", "write_timeout")
# MySQL's errors: a table, column or key exists already, or one to be dropped does not.
_HALF_DONE = frozenset({1050, 1051, 1060, 1061, 1091})


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        options_before = connection.settings_dict["OPTIONS"]
        patient = {name: value for name, value in options_before.items() if name not in _LIMITS}
        if patient == options_before:
            self._migrate(*args, **options)
            return
        connection.close()  # a connection keeps the time limits with which it was opened
        connection.settings_dict["OPTIONS"] = patient
        try:
            self._migrate(*args, **options)
        finally:
            connection.close()
            connection.settings_dict["OPTIONS"] = options_before

    def _migrate(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        try:
            if missing := schema_state.missing_tables(connection):
                raise CommandError(missing)
            is_new = connection.alias == "default" and not connection.introspection.table_names()
            super().handle(*args, **options)
            if is_new and not cells.own().is_only and not options.get("app_label"):
                cell_record.write(cells.own())
        except (PlatformError, NotSupportedError) as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            # MySQL and MariaDB commit each change of a table at once.
            if transactions.error_code(error) not in _HALF_DONE:
                raise
            raise CommandError(
                f"{error.args[1]}: a migrate was killed in the middle of a migration, tables of "
                "another release are there, or another migrate runs at this moment. Wait until no "
                "other one runs, and run it again. If it says this again: drop the database, "
                "restore the backup from before the update (docs/backup.md, To restore)."
            ) from error
