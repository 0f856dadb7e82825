"""Databases as `migrate` leaves them: the first of a run is migrated, the others are copies of it.

Migrations have tests of their own; here they are what many tests and benches would wait for at
their start. The same holds for the tables that a new server makes for itself. The copies are kept
in the folder that MIGRATED_DATABASES names, which all processes of a run share; without it, every
server installs its tables, and every database is migrated.
"""

import fcntl
import os
import pickle
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

FOLDER = "MIGRATED_DATABASES"
_SQLITE = "sqlite:///"


@dataclass
class _Tables:
    """A database of a server: (statement that makes it, name, rows) of each table, and the
    statements of its triggers."""

    tables: list[tuple[str, str, Sequence[Sequence[Any]]]]
    triggers: list[str]


def fill(url: str, migrate: Callable[[], object], what: str) -> None:
    """Give the database at `url` its tables. `migrate` makes them in the first empty one of a run,
    and brings one that has tables up to date; `what` names the way in which it migrates."""
    folder = os.environ.get(FOLDER)
    if not folder:
        migrate()
        return
    kind = "sqlite" if url.startswith(_SQLITE) else "server"
    if _has_tables(url, kind):  # of an earlier state, which is brought up to date
        migrate()
        return
    kept = Path(folder) / f"{kind}-{what.replace(' ', '-')}"
    with _first_one(kept) as unfinished:
        if unfinished:
            migrate()
            unfinished.write_bytes(_read_file(url) if kind == "sqlite" else _read_database(url))
            return
    if kind == "sqlite":
        Path(url.removeprefix(_SQLITE)).write_bytes(kept.read_bytes())
    else:
        _write_database(url, kept.read_bytes())


def fill_folder(path: Path, make: Callable[[Path], object], what: str) -> None:
    """Make the folder of a new server; `make` makes the first one of a run."""
    folder = os.environ.get(FOLDER)
    if not folder:
        make(path)
        return
    kept = Path(folder) / f"folder-{what}"
    with _first_one(kept) as unfinished:
        if unfinished:
            make(unfinished)
    # A log of 100 MB has next to nothing in it.
    subprocess.run(["cp", "--archive", "--sparse=always", kept, path], check=True)


@contextmanager
def _first_one(kept: Path) -> Iterator[Path | None]:
    """Yields where the first one of a run makes what is kept, while others wait for it; None when
    it is there."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept.exists():
            yield None
            return
        unfinished = kept.with_suffix(".new")
        yield unfinished
        unfinished.replace(kept)


def _has_tables(url: str, kind: str) -> bool:
    if kind == "sqlite":
        file = Path(url.removeprefix(_SQLITE))
        return file.exists() and file.stat().st_size > 0
    with closing(_connect(url)) as connection, connection.cursor() as cursor:
        return bool(cursor.execute("SHOW TABLES"))


def _read_file(url: str) -> bytes:
    with closing(sqlite3.connect(url.removeprefix(_SQLITE))) as connection:
        return connection.serialize()


def _connect(url: str) -> Any:
    import MySQLdb

    parts = urlsplit(url)
    (socket,) = parse_qs(parts.query)["unix_socket"]
    return MySQLdb.connect(
        unix_socket=socket, user="root", charset="utf8mb4", autocommit=True,
        db=parts.path.lstrip("/"),
    )  # fmt: skip


def _read_database(url: str) -> bytes:
    content = _Tables([], [])
    with closing(_connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'")
        for name, _ in cursor.fetchall():
            cursor.execute(f"SHOW CREATE TABLE `{name}`")
            statement = cursor.fetchone()[1]
            cursor.execute(f"SELECT * FROM `{name}`")
            content.tables.append((statement, name, cursor.fetchall()))
        cursor.execute("SHOW TRIGGERS")
        for name, *_ in cursor.fetchall():
            cursor.execute(f"SHOW CREATE TRIGGER `{name}`")
            content.triggers.append(cursor.fetchone()[2])
    return pickle.dumps(content)


def _write_database(url: str, kept: bytes) -> None:
    """Tables with their rows, then triggers, which have nothing to do with what is copied."""
    content: _Tables = pickle.loads(kept)
    with closing(_connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SET foreign_key_checks = 0, sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
        for statement, name, rows in content.tables:
            cursor.execute(statement)
            if rows:
                places = ", ".join(["%s"] * len(rows[0]))
                cursor.executemany(f"INSERT INTO `{name}` VALUES ({places})", rows)
        # As the platform's connections have it: a trigger keeps the mode with which it was made.
        cursor.execute("SET sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'")
        for statement in content.triggers:
            cursor.execute(statement)
