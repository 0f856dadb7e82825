"""The differences between databases: an engine has the database's own SQL for each request of the
platform.

Nothing else of the platform looks at a connection's vendor (tests/unit/platform/test_engines.py).
Another database needs one more module here, and a run of `tests/engines`.
"""

from collections.abc import Mapping
from typing import Any

from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections

from msgplatform.core.data.engines import sqlite
from msgplatform.core.data.engines.contract import Engine, Fault
from msgplatform.core.data.engines.mariadb import MariaDb
from msgplatform.core.data.engines.mysql import error_codes
from msgplatform.core.data.engines.mysql.engine import MySql
from msgplatform.core.data.engines.sqlite import Sqlite

MARIADB, MYSQL, SQLITE = MariaDb(), MySql(), Sqlite()


def of(using: str = DEFAULT_DB_ALIAS) -> Engine:
    """The engine of one of Django's connections."""
    return of_connection(connections[using])


def of_connection(connection: Any) -> Engine:
    """The engine of a connection. The first call for each connection asks the server, to tell
    MariaDB from MySQL. Raises NotSupportedError for any other database."""
    if connection.vendor == "sqlite":
        return SQLITE
    if connection.vendor != "mysql":
        raise NotSupportedError(f"The platform runs on {MARIADB}, {MYSQL} and {SQLITE}.")
    # Django would open a connection for the question alone.
    if "mysql_server_data" not in vars(connection):
        connection.ensure_connection()
    return MARIADB if connection.mysql_is_mariadb else MYSQL


def fault(error: BaseException) -> Fault:
    """The meaning of an error of any of these databases: MySQL's have numbers, SQLite's texts."""
    has_number = bool(error.args) and isinstance(error.args[0], int)
    return (MYSQL if has_number else SQLITE).fault(error)


def column_of(text: str) -> str:
    """The column that the text of an error names, '' when it names none."""
    return sqlite.column_of(text) or error_codes.column(text)


def of_config(config: Mapping[str, Any]) -> Engine:
    """The engine of an entry of Django's DATABASES, MySQL's for MariaDB, too: their clients and
    options are the same. Opens no connection."""
    return MYSQL if str(config["ENGINE"]).endswith("mysql") else SQLITE
