"""A database whose character set cannot hold every character is refused, with the statement that
repairs it."""

import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import MySQLdb
import pytest

from bench.harness.mariadb import MariaDb
from tests.program_host import run_program
from tests.servers import Servers

NAME = "narrow"


@pytest.fixture
def mariadb(servers: Servers) -> MariaDb:
    return servers.mariadb()


@pytest.fixture
def cursor(mariadb: MariaDb) -> Iterator[Any]:
    connection = MySQLdb.connect(
        unix_socket=str(mariadb.socket), user="root", charset="utf8mb4", autocommit=True
    )
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {NAME}")
        yield cursor
        cursor.execute(f"DROP DATABASE IF EXISTS {NAME}")
    connection.close()


def manage(mariadb: MariaDb, *words: str) -> tuple[int, str]:
    environment = {**os.environ, "DATABASE_URL": mariadb.url(NAME)}
    result = run_program([sys.executable, "manage.py", *words], environment)
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize(
    "character_set", ["utf8mb3", pytest.param("latin1", marks=pytest.mark.full), "gbk"]
)
def test_migrate_refuses_it_and_says_how_to_repair_it(
    mariadb: MariaDb, cursor: Any, character_set: str
) -> None:
    cursor.execute(f"CREATE DATABASE {NAME} CHARACTER SET {character_set}")
    status, text = manage(mariadb, "migrate", "--no-input")
    assert status == 1
    assert f"get the character set {character_set}" in text
    (statement,) = re.findall(r"ALTER DATABASE .*;", text)
    cursor.execute(statement)
    status, text = manage(mariadb, "check", "--database", "default")
    assert (status, "E202" in text) == (0, False), text


def test_tables_of_an_earlier_installation(mariadb: MariaDb, cursor: Any) -> None:
    """The statements of `doctor` repair them, and keep defaults, NULL and lengths."""
    cursor.execute(f"CREATE DATABASE {NAME} CHARACTER SET utf8mb4")
    status, text = manage(mariadb, "migrate", "--no-input")
    assert status == 0, text
    cursor.execute(f"USE {NAME}")
    cursor.execute("CREATE TABLE of_others (a VARCHAR(9)) CHARACTER SET latin1")
    cursor.execute(
        "ALTER TABLE attempt MODIFY response_body longtext CHARACTER SET utf8mb3 NOT NULL"
    )
    cursor.execute(
        "ALTER TABLE biz MODIFY title varchar(200) CHARACTER SET latin1 NULL DEFAULT 'x''y'"
    )
    before = columns(cursor)
    status, text = manage(mariadb, "doctor")
    assert status == 1
    assert "of_others" not in text
    statements = re.findall(r"ALTER TABLE .*;", text)
    assert len(statements) == 2
    for statement in statements:
        cursor.execute(statement)
    assert columns(cursor) == before
    assert "cannot hold every character" not in manage(mariadb, "doctor")[1]
    cursor.execute("UPDATE biz SET title = '😀'")


def columns(cursor: Any) -> Any:
    cursor.execute(
        "SELECT column_type, is_nullable, column_default FROM information_schema.columns "
        f"WHERE table_schema = '{NAME}' AND column_name IN ('response_body', 'title') "
        "ORDER BY table_name, column_name"
    )
    return cursor.fetchall()
