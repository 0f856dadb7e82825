"""`migrate` brings a database of a tree before the squash over, and refuses one that it cannot."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.harness.mariadb import MariaDb
from tests.earlier_database import NAMES, disguise
from tests.migrated import fill
from tests.support.command_console import CommandConsole

pytestmark = pytest.mark.usefixtures("work_redis", "sms_redis")

RECORDS = "SELECT app, name FROM django_migrations ORDER BY app, name"
USER = (
    "INSERT INTO auth_user (username, password, first_name, last_name, email, is_superuser, "
    "is_staff, is_active, date_joined) "
    "VALUES ('{}', 'hash', '', '', '', 1, 1, 1, '2026-11-24 12:00:00')"
)
ONE_TIME_PASSWORD = (
    "INSERT INTO msgplatform_onetimepassword SELECT id FROM auth_user WHERE username = 'ann'"
)
MODELS = "SELECT model FROM django_content_type WHERE app_label = 'msgplatform' ORDER BY model"


class Database:
    """A database with the tables of today, and manage.py for it."""

    def __init__(self, kind: str, folder: Path, server: MariaDb) -> None:
        self._file = folder / "platform.db"
        self._server = server if kind == "mariadb" else None
        self._url = server.url("earlier") if self._server else f"sqlite:///{self._file}"
        self.console = CommandConsole(self._url, folder)
        self.manage = self.console.manage

    def renew(self) -> None:
        """Make it as `migrate` leaves it."""
        if self._server:
            self._server.create("earlier")
        for file in self._file.parent.glob(f"{self._file.name}*"):
            file.unlink()
        fill(self._url, self._migrate, "earlier")

    def _migrate(self) -> None:
        assert self.manage("migrate").returncode == 0

    def execute(self, *statements: str) -> Sequence[tuple[Any, ...]]:
        """The rows of the last statement."""
        rows: Sequence[tuple[Any, ...]] = ()
        connection: Any = (
            self._server.connect("earlier") if self._server else sqlite3.connect(self._file)
        )
        with closing(connection), closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = cursor.fetchall()
            connection.commit()
        return list(rows)


@pytest.fixture(scope="module", params=["sqlite", "mariadb"])
def running(
    request: pytest.FixtureRequest, mariadb: MariaDb, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    database = Database(request.param, tmp_path_factory.mktemp("earlier"), mariadb)
    yield database
    database.console.close()


@pytest.fixture
def database(running: Database) -> Database:
    running.renew()
    return running


def test_a_database_of_an_earlier_tree_keeps_its_tables(database: Database) -> None:
    records, models = database.execute(RECORDS), database.execute(MODELS)
    earlier = database.execute(*disguise(), RECORDS)
    assert len(earlier) == len(records) + 49 - sum(app in NAMES for app, _name in records)
    assert database.execute(MODELS) != models
    database.execute(*(USER.format(name) for name in ("ann", "bob")), ONE_TIME_PASSWORD)
    refused = database.manage("migrate", "--plan")
    assert refused.returncode == 1
    assert "run migrate without" in refused.stderr
    assert "migrations are not applied" in database.manage("doctor").stdout
    assert database.execute(RECORDS) == earlier, "nothing has changed by looking"
    result = database.manage("migrate")
    assert result.returncode == 0, result.stderr[-2000:]
    for name in ("0002_resend_and_replay", "0003_cell"):
        assert f"Applying msgplatform.{name}... OK" in result.stdout
    assert database.execute("SELECT COUNT(*) FROM cell") == [(0,)]
    assert "msgplatform, notify, gateway, crmsync" in result.stdout
    assert database.execute(RECORDS) == records
    assert database.execute(MODELS) == models
    passwords = dict(database.execute("SELECT username, password FROM auth_user"))
    assert passwords["ann"].startswith("!"), "it was for one login"
    assert passwords["bob"] == "hash"
    assert database.manage("migrate", "--check").returncode == 0


def test_stored_actions_follow_their_new_names_once(database: Database) -> None:
    database.console.run(
        "from msgplatform.models import AuditLog, BulkJob\n"
        "for flow, action in (('notify', 'requeue'), ('crmsync', 'resend'), ('crmsync', 'retry'),"
        " ('feed', 'replay')):\n"
        "    BulkJob.objects.create(flow=flow, action=action, total=1, created_by='ann')\n"
        "AuditLog.objects.create(actor='ann', action='message_sent_again', target='notify 1')"
    )
    database.execute(*disguise())
    assert database.manage("migrate", "msgplatform", "0002").returncode == 0
    for _ in range(2):  # a kill before it was recorded, and once more
        database.execute("DELETE FROM django_migrations WHERE name = '0002_resend_and_replay'")
        assert database.manage("migrate", "msgplatform", "0002").returncode == 0
        assert database.execute("SELECT flow, action FROM msgplatform_bulkjob ORDER BY id") == [
            ("notify", "resend"), ("crmsync", "replay"), ("crmsync", "resend"), ("feed", "resend"),
        ]  # fmt: skip
    actions = database.execute("SELECT action FROM msgplatform_auditlog ORDER BY id")
    assert actions == [("message_resent",), ("bulk_actions_renamed",)]


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        (
            "DELETE FROM django_migrations WHERE app = 'notify' AND name LIKE '001%'",
            "its last migration of notify is 0009_list_by_event_type, and 0016_turns_of_systems",
        ),
        ("ALTER TABLE attempt ADD COLUMN own INTEGER", "the table attempt has own besides"),
        ("ALTER TABLE attempt RENAME COLUMN seconds TO s", "the table attempt lacks seconds"),
        ("ALTER TABLE attempt RENAME TO gone", "there is no table attempt"),
    ],
)
def test_another_database_is_refused_and_left_alone(
    database: Database, statement: str, sentence: str
) -> None:
    earlier = database.execute(*disguise(), statement, RECORDS)
    result = database.manage("migrate")
    assert result.returncode == 1
    assert sentence in result.stderr
    assert database.execute(RECORDS) == earlier


def test_a_flow_that_was_left_out_is_brought_over_later(database: Database) -> None:
    """A flow that FLOWS leaves out keeps its earlier names until it is there again."""
    records = database.execute(RECORDS)
    database.execute(*disguise("crmsync"))
    own_count = sum(app == "crmsync" for app, _name in records)
    earlier_count = len(records) - own_count + len(NAMES["crmsync"].split())
    assert len(database.execute(RECORDS)) == earlier_count
    result = database.manage("migrate")
    assert result.returncode == 0, result.stderr[-2000:]
    assert "have new names now: crmsync." in result.stdout
    assert database.execute(RECORDS) == records
