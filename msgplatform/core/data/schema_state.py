"""Tell whether a database has every migration, and every table that its migrations made."""

from __future__ import annotations

import re
import sys
import time

from django.conf import settings
from django.db import DatabaseError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from msgplatform.core.data.transactions import error_code

_UNKNOWN_COLUMN, _NO_TABLE = 1054, 1146
_OF_SQLITE = re.compile(r"no such (?:table|column)")
# Applying migrations takes a while, and each look reads all their files.
_LOOK_SECONDS = 10.0
_last_look: tuple[float, str] | None = None  # time (monotonic) and sentence of the last look
_MAX_NAMED = 5  # tables in the sentence


def open_migrations(connection: BaseDatabaseWrapper) -> int:
    """How many migrations are not applied."""
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def migrate_command(alias: str) -> str:
    return f"{sys.executable} {settings.BASE_DIR / 'manage.py'} migrate --database {alias}"


def missing_tables(connection: BaseDatabaseWrapper) -> str:
    """A sentence with tables of applied migrations that are not there; '' when all are.

    A dump has django_migrations before most other tables, so that a load which ends early leaves a
    database with nothing to migrate.
    """
    loader = MigrationLoader(connection)
    records = loader.applied_migrations or {}
    nodes = [node for node in loader.graph.nodes if node in records]
    table_names = {
        model._meta.db_table
        for model in loader.project_state(nodes).apps.get_models(include_auto_created=True)
        if model._meta.managed and router.allow_migrate_model(connection.alias, model)
    }
    missing = sorted(table_names.difference(connection.introspection.table_names()))
    if not missing:
        return ""
    more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
    return (
        f"The database {connection.alias} lacks tables that its migrations made "
        f"({', '.join(missing[:_MAX_NAMED])}{more}): the load of a dump was cut short. Drop the "
        "database and load the dump again, and look at the exit status of the load."
    )


def reason(error: Exception) -> str:
    """A sentence when the error comes from missing migrations of the main database, else ''."""
    global _last_look
    if not isinstance(error, DatabaseError):
        return ""
    is_of_schema = error_code(error) in (_UNKNOWN_COLUMN, _NO_TABLE)
    if not is_of_schema and not _OF_SQLITE.search(str(error)):
        return ""
    if _last_look is None or time.monotonic() - _last_look[0] > _LOOK_SECONDS:
        _last_look = time.monotonic(), _lack()
    return _last_look[1]


def _lack() -> str:
    try:
        count = open_migrations(connections["default"])
    except DatabaseError:
        return ""
    return f"the database lacks {count} migrations: run manage.py migrate" if count else ""
