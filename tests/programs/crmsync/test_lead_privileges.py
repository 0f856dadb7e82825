"""Who may make the triggers of leads on a MariaDB: a user with rights on one database only."""

import os
import sys
from collections.abc import Callable, Iterator

import pytest

from bench.harness.mariadb import MariaDb
from tests.program_host import run_program

MIGRATE = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
"""


@pytest.fixture
def migrate(mariadb: MariaDb) -> Iterator[Callable[[str], str]]:
    """What the error was when a user with these privileges migrated, '' for none."""
    url = mariadb.create("leads")
    mariadb.execute("CREATE USER crm@localhost IDENTIFIED BY 'pw'")

    def migrate(privileges: str) -> str:
        mariadb.execute(f"GRANT {privileges} ON leads.* TO crm@localhost")
        environment = {**os.environ, "DATABASE_URL": url.replace("root@", "crm:pw@")}
        done = run_program([sys.executable, "-c", MIGRATE], environment)
        return done.stderr.strip() if done.returncode else ""

    yield migrate
    mariadb.execute("DROP USER crm@localhost")
    mariadb.execute("DROP DATABASE leads")


def triggers(mariadb: MariaDb) -> set[str]:
    rows = mariadb.execute(
        "SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = 'leads'"
    )
    return {str(name) for (name,) in rows}


@pytest.mark.full
def test_no_super_is_needed(mariadb: MariaDb, migrate: Callable[[str], str]) -> None:
    assert migrate("ALL PRIVILEGES") == ""
    assert triggers(mariadb) == {"lead_on_insert", "lead_on_update"}


def test_without_the_privilege_it_says_what_to_grant(
    mariadb: MariaDb, migrate: Callable[[str], str]
) -> None:
    """And goes on from there when it is granted."""
    everything_else = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES"
    assert "Grant TRIGGER on the database" in migrate(everything_else).splitlines()[-1]
    assert migrate("TRIGGER") == ""
    assert triggers(mariadb) == {"lead_on_insert", "lead_on_update"}
