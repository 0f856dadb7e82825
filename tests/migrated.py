"""Databases as `migrate` leaves them: the first of a run is migrated, the others are copies of it.

Migrations have tests of their own; here they are what many tests would wait for at their start.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import MySQLdb

_SQLITE = "sqlite:///"
# What was migrated → the bytes of the file; with the server's socket → a database of that server.
_files: dict[str, bytes] = {}
_databases: dict[tuple[str, str], str] = {}


def fill(url: str, migrate: Callable[[], object], what: str = "") -> None:
    """Fill the empty database at `url`. Only for the first one `migrate` is called; `what` tells
    apart what is migrated in different ways."""
    if url.startswith(_SQLITE):
        _fill_file(Path(url.removeprefix(_SQLITE)), migrate, what)
    else:
        _fill_database(url, migrate, what)


def _fill_file(path: Path, migrate: Callable[[], object], what: str) -> None:
    if what in _files:
        path.write_bytes(_files[what])
        return
    migrate()
    with closing(sqlite3.connect(path)) as connection:
        _files[what] = connection.serialize()


def _fill_database(url: str, migrate: Callable[[], object], what: str) -> None:
    parts = urlsplit(url)
    name, (socket,) = parts.path.lstrip("/"), parse_qs(parts.query)["unix_socket"]
    connection = MySQLdb.connect(
        unix_socket=socket, user="root", charset="utf8mb4", autocommit=True
    )  # fmt: skip
    with closing(connection), connection.cursor() as cursor:
        if (kept := _databases.get((socket, what))) is not None:
            _copy(cursor, kept, name)
            return
        migrate()
        kept = f"migrated_{len(_databases)}"
        cursor.execute(f"CREATE DATABASE {kept}")
        _copy(cursor, name, kept)
        _databases[socket, what] = kept


def _copy(cursor: Any, source: str, target: str) -> None:
    """Tables with their rows, then triggers, which have nothing to do with what is copied."""
    cursor.execute(f"USE `{target}`")
    cursor.execute("SET foreign_key_checks = 0, sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
    cursor.execute(f"SHOW FULL TABLES FROM `{source}` WHERE Table_type = 'BASE TABLE'")
    for table, _ in cursor.fetchall():
        cursor.execute(f"SHOW CREATE TABLE `{source}`.`{table}`")
        cursor.execute(cursor.fetchone()[1])
        cursor.execute(f"INSERT INTO `{table}` SELECT * FROM `{source}`.`{table}`")
    # As the platform's connections have it: a trigger keeps the mode with which it was made.
    cursor.execute("SET sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'")
    cursor.execute(f"SHOW TRIGGERS FROM `{source}`")
    for trigger, *_ in cursor.fetchall():
        cursor.execute(f"SHOW CREATE TRIGGER `{source}`.`{trigger}`")
        cursor.execute(cursor.fetchone()[2])
