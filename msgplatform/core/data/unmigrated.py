"""A database without the tables or columns of this release: `migrate` was not run yet."""

from __future__ import annotations

import re
import time

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from msgplatform.core.data.transactions import error_code

_UNKNOWN_COLUMN, _NO_TABLE = 1054, 1146
_OF_SQLITE = re.compile(r"no such (?:table|column)")
# What applies migrations takes a while, and each look reads all their files.
_LOOK_SECONDS = 10.0
_looked: dict[str, tuple[float, str]] = {}


def reason(error: Exception) -> str:
    """A sentence when the error comes from missing migrations, else ''."""
    if not isinstance(error, DatabaseError):
        return ""
    is_of_schema = error_code(error) in (_UNKNOWN_COLUMN, _NO_TABLE)
    if not is_of_schema and not _OF_SQLITE.search(str(error)):
        return ""
    at, sentence = _looked.get(connection.alias, (0.0, ""))
    if not at or time.monotonic() - at > _LOOK_SECONDS:
        sentence = _sentence()
        _looked[connection.alias] = (time.monotonic(), sentence)
    return sentence


def _sentence() -> str:
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return ""
    if not missing:
        return ""
    return f"the database lacks {len(missing)} migrations: run manage.py migrate"
