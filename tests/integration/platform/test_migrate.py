"""`migrate` with statements that take long, as on large tables."""

import threading
from importlib import import_module
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.db.models.signals import pre_migrate

from crmsync.retention import ARCHIVE
from msgplatform.core.archive import partitions
from msgplatform.core.data import migration_stages, sql
from notify.models import BizReceive

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


def test_a_statement_may_take_as_long_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[Any] = []

    def sleep(**_given: Any) -> None:
        if not slept:
            with connection.cursor() as cursor:
                cursor.execute("SELECT SLEEP(2)" if connection.vendor == "mysql" else "SELECT 0")
                slept.append(cursor.fetchone())

    options = connection.settings_dict["OPTIONS"]
    if connection.vendor == "mysql":
        monkeypatch.setitem(options, "read_timeout", 1)
    connection.close()
    pre_migrate.connect(sleep)
    try:
        call_command("migrate", verbosity=0)
    finally:
        pre_migrate.disconnect(sleep)
        connection.close()
    assert slept == [(0,)], "it was not cut off"
    assert connection.settings_dict["OPTIONS"] is options


def test_a_database_that_is_up_to_date_is_left_as_it_is() -> None:
    """Roles are renewed all the same: a migrate may have died before it came to them."""
    applied = MigrationRecorder(connection).applied_migrations()
    Group.objects.all().delete()
    call_command("migrate", "--before", verbosity=0)
    assert Group.objects.exists()
    call_command("migrate", "--after", verbosity=0)
    assert MigrationRecorder(connection).applied_migrations().keys() == applied.keys()


def test_what_was_left_since_the_update_before_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = import_module("crmsync.migrations.0004_room").Migration
    monkeypatch.setattr(late, "stage", migration_stages.AFTER, raising=False)
    call_command("migrate", "crmsync", "0003", verbosity=0)
    with pytest.raises(CommandError, match="run migrate --after of the release that runs, first"):
        call_command("migrate", "--before", verbosity=0)
    call_command("migrate", "--after", verbosity=0)
    call_command("migrate", "--before", verbosity=0)


def test_ctrl_c_is_taken_back() -> None:
    """MariaDB keeps each change of a table, and would refuse it at the next try."""
    statements: list[str] = []

    def interrupt(execute: Any, statement: str, *rest: Any) -> Any:
        if statement.startswith("ALTER TABLE"):
            statements.append(statement)
            if len(statements) == 2:
                raise KeyboardInterrupt
        return execute(statement, *rest)

    call_command("migrate", "notify", "0002", verbosity=0)
    with pytest.raises(KeyboardInterrupt), connection.execute_wrapper(interrupt):
        call_command("migrate", "--before", verbosity=0)
    with pytest.raises(CommandError, match="--before takes no names"):
        call_command("migrate", "notify", "0003", before=True, verbosity=0)
    call_command("migrate", "--before", verbosity=0)
    assert list(BizReceive.objects.all()) == [], "its columns are there"


def test_a_second_one_beside_it_takes_nothing_back() -> None:
    """On a server it is refused. SQLite has rolled back what failed: later columns are the first
    one's."""
    refusals: list[str] = []

    def migrate() -> None:
        try:
            call_command("migrate", "--before", verbosity=0)
        except CommandError as error:
            refusals.append(str(error))
        finally:
            connection.close()

    def migrate_beside(execute: Any, statement: str, *rest: Any) -> Any:
        answer = execute(statement, *rest)
        if statement.startswith("ALTER TABLE") and connection.vendor == "mysql" and not refusals:
            second = threading.Thread(target=migrate)
            second.start()
            second.join(60)
        return answer

    key = "notify", "0003_payload_filters"
    call_command("migrate", "notify", "0002", verbosity=0)
    undo = migration_stages.Undo(connection, [key])
    with connection.execute_wrapper(migrate_beside):
        call_command("migrate", "--before", verbosity=0)
    if connection.vendor == "mysql":
        assert [text.partition(" runs")[0] for text in refusals] == ["Another migrate"]
    else:
        MigrationRecorder(connection).record_unapplied(*key)
        undo.take_back()
        MigrationRecorder(connection).record_applied(*key)
    assert list(BizReceive.objects.all()) == [], "its columns are there"
    assert key in MigrationRecorder(connection).applied_migrations()


def test_a_table_is_partitioned_once() -> None:
    """Again it would be written anew, while nobody else can write to it."""
    table = ARCHIVE.tables[0]
    partitions.prepare(ARCHIVE, sql.now())
    with connection.execute_wrapper(_refuse):
        partitions.partition(connection, table.name)


def _refuse(execute: Any, sql: str, *rest: Any) -> Any:
    assert not sql.startswith("ALTER"), sql
    return execute(sql, *rest)
