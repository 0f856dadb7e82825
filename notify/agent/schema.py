"""The DDL of the tables, and the migration operations that load the DDL."""

from pathlib import Path
from typing import Any

from django.db import NotSupportedError, router
from django.db.migrations.operations.base import Operation

FOLDER = Path(__file__).parent / "ddl"
TABLES = ("outbox_dead", "outbox")


def ddl(vendor: str) -> str:
    """The CREATE statements for Django's name of a database. Raises NotSupportedError."""
    path = FOLDER / f"{vendor}.sql"
    if vendor not in {"mysql", "sqlite"}:
        raise NotSupportedError(
            f"The outbox is for MySQL, MariaDB and SQLite, not for {vendor}. A database router "
            "whose allow_migrate() answers False for the app label 'outbox' keeps it out of this "
            "database."
        )
    return path.read_text(encoding="utf-8")


class CreateTables(Operation):
    """Create the tables from `ddl/`, so that a Django project has the usual tables.

    Existing tables are kept.
    """

    reduces_to_sql = True
    reversible = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The models come from the migration's state operations."""

    def database_forwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        connection = schema_editor.connection
        if not router.allow_migrate(connection.alias, app_label, model_name="outbox"):
            return
        for statement in connection.ops.prepare_sql_script(ddl(connection.vendor)):
            schema_editor.execute(statement, params=None)

    def database_backwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        connection = schema_editor.connection
        if not router.allow_migrate(connection.alias, app_label, model_name="outbox"):
            return
        for table in TABLES:
            schema_editor.execute(f"DROP TABLE {connection.ops.quote_name(table)}", params=None)

    def describe(self) -> str:
        return "Create the tables outbox and outbox_dead"
