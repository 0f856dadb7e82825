"""Check that a database has every migration, and every table that its migrations made."""

import shlex
import time
from collections.abc import Sequence

from django.conf import settings
from django.db import DatabaseError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader

from msgplatform.core.data import engines
from msgplatform.core.data.engines.contract import Fault

# Seconds between looks: each look reads the files of all migrations.
_LOOK_SECONDS = 10.0
_last_look: tuple[float, str] | None = None  # time (monotonic) and sentence of the last look
_MAX_NAMED = 5  # tables in the sentence


def open_migrations(connection: BaseDatabaseWrapper) -> int:
    """The number of migrations that are not applied and that programs need: those of the stage
    *before*. Programs work without migrations of the stage *after*."""
    # Imported here, because a program asks only after an error.
    from msgplatform.core.data import migration_stages

    return len(migration_stages.split(MigrationLoader(connection))[0])


def migrate_command(alias: str) -> str:
    return shlex.join([*settings.MANAGE, "migrate", "--database", alias])


def tables_of_migrations(connection: BaseDatabaseWrapper) -> set[str]:
    """Names of the tables that the applied migrations of a database made."""
    loader = MigrationLoader(connection)
    records = loader.applied_migrations or {}
    nodes = [node for node in loader.graph.nodes if node in records]
    return {
        model._meta.db_table
        for model in loader.project_state(nodes).apps.get_models(include_auto_created=True)
        if model._meta.managed and router.allow_migrate_model(connection.alias, model)
    }


def enumerate_tables(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"


def missing_tables(connection: BaseDatabaseWrapper) -> str:
    """A sentence with missing tables of applied migrations; '' if none is missing.

    A dump has django_migrations before most other tables, so that a load which ends early leaves a
    database with nothing to migrate.
    """
    table_names = connection.introspection.table_names()
    missing = sorted(tables_of_migrations(connection).difference(table_names))
    if not missing:
        return ""
    return (
        f"The database {connection.alias} lacks tables that its migrations made "
        f"({enumerate_tables(missing)}): the load of a dump was cut short. Drop the "
        "database and load the dump again, and look at the exit status of the load."
    )


def reason(error: Exception) -> str:
    """A sentence when the error comes from missing migrations of the main database, else ''."""
    global _last_look
    is_of_schema = engines.fault(error) in (Fault.NO_TABLE, Fault.NO_COLUMN)
    if not isinstance(error, DatabaseError) or not is_of_schema:
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
