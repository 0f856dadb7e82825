"""One suite for each engine: the promises on which the platform is built, on TEST_DATABASE. Where a
thing has no meaning on SQLite, a test says what holds there instead."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import pytest_django
from django.db import DatabaseError, connection

from msgplatform.core.data import engines
from msgplatform.core.data.engines.contract import Engine
from tests import waiting
from tests.engines import tables
from tests.servers import Servers

Connect = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/engines/" in item.nodeid:
            item.add_marker(pytest.mark.both_databases)


@pytest.fixture(scope="session", autouse=True)
def database(servers: Servers, django_db_blocker: pytest_django.DjangoDbBlocker) -> Iterator[None]:
    """The suite's tables in the run's database, and no others."""
    if not servers.database_url().startswith("sqlite:"):
        servers.mariadb().create("msgplatform")
    with django_db_blocker.unblock():
        with connection.schema_editor() as editor:
            for model in tables.ALL:
                editor.create_model(model)
        yield
        with connection.schema_editor() as editor:
            for model in tables.ALL:
                editor.delete_model(model)
        connection.close()


@pytest.fixture(autouse=True)
def empty_tables() -> Iterator[None]:
    yield
    with suppress(DatabaseError):
        connection.rollback()
    connection.close()  # with the settings that a test gave its session
    for model in tables.SMALL:
        model._base_manager.all().delete()


@pytest.fixture
def engine() -> Engine:
    return engines.of()


@contextmanager
def another_session(**options: Any) -> Iterator[Any]:
    """A connection of its own to the same database, with these of Django's OPTIONS."""
    other = connection.copy()
    other.settings_dict["OPTIONS"] = {**other.settings_dict["OPTIONS"], **options}
    try:
        yield other
    finally:
        other.close()


def run(session: Any, statement: str, parameters: Any = ()) -> Any:
    with session.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else cursor.rowcount


def until(is_so: Callable[[], object], seconds: float = 60.0) -> None:
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < seconds
        waiting.pause(begun, 0.02)


@pytest.fixture
def as_user(servers: Servers) -> Iterator[Connect]:
    """A session of a user with these privileges on the run's database; a file has no users."""
    sessions: list[Any] = []

    def connect(privileges: str) -> Any:
        other = connection.copy()
        if engines.of().is_server:
            for statement in (
                "DROP USER IF EXISTS suite@localhost",
                "CREATE USER suite@localhost IDENTIFIED BY 'secret'",
                f"GRANT {privileges} ON msgplatform.* TO suite@localhost",
            ):
                servers.mariadb().execute(statement)
            other.settings_dict.update(USER="suite", PASSWORD="secret")
        sessions.append(other)
        return other

    yield connect
    for session in sessions:
        session.close()
    if engines.of().is_server:
        servers.mariadb().execute("DROP USER IF EXISTS suite@localhost")
