import gc
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import pytest_django
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.utils import timezone, translation

from bench.harness import migrated
from msgplatform.core import connections
from tests.servers import DATABASE, Servers

# A tenth of a run was spent on collections that went through all modules again and again.
gc.set_threshold(20_000, 20, 20)
# A test may have set another one.
STATE_DIR = Path(settings.STATE_DIR)
# On a busy machine an example may take any time.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")
# A test that is held up in a transaction is not a program that hangs: the server keeps its
# connection.
# Programs that tests start have their own settings.
for database in settings.DATABASES.values():
    options = database.get("OPTIONS", {})
    if "idle_transaction_timeout" in (command := str(options.get("init_command", ""))):
        patient = command.replace("idle_transaction_timeout=10", "idle_transaction_timeout=300")
        database["OPTIONS"] = {**options, "init_command": patient}
if DATABASE == "mysql":
    from msgplatform.core.data.engines.mysql import base  # needs the driver

    base.DatabaseWrapper.idle_transaction_seconds = 300


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    servers: Servers, django_db_blocker: pytest_django.DjangoDbBlocker
) -> None:
    """Each process of `pytest -n` has servers of its own, so databases keep their names: a child
    process finds what the test sees by DATABASE_URL. It is a copy of the run's first one."""
    url = servers.database_url()
    if not url.startswith("sqlite:"):
        servers.mariadb().create("msgplatform")
    with django_db_blocker.unblock():
        migrated.fill(url, lambda: call_command("migrate", verbosity=0), "everything")
        connection.close()


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """pytest takes the database as it is, and it goes away with the run's folder."""
    return True


@pytest.fixture(autouse=True)
def language_and_time_zone_of_its_own() -> Iterator[None]:
    """A request chooses both for its thread, and Django leaves them chosen after the answer."""
    yield
    translation.deactivate()
    timezone.deactivate()


@pytest.fixture(autouse=True)
def no_list_of_erasures() -> Iterator[None]:
    """The list is outside of the database on purpose: an erasure that a test asked for would be run
    once more in a later test."""
    yield
    (STATE_DIR / "erasures.jsonl").unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def no_server_counts_as_away() -> Iterator[None]:
    """A Redis that a test has taken away, or that was slow in one, is asked in the next one."""
    yield
    connections._away_until.clear()


@pytest.fixture
def ids_of_its_own() -> Iterator[None]:
    """For a test that sets the clock ahead: ids go on from the last one, so those of later tests
    in this process would be of that time too."""
    from msgplatform.core.data import ids

    ids.release()
    yield
    ids.release()
