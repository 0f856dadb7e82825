"""Group commit on a real database: what was answered is stored, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import IntegrityError, connection, transaction

from msgplatform.core.data import sql
from msgplatform.core.data.group_commit import GroupCommit
from msgplatform.core.servers.embedded import MariaDb
from msgplatform.models import Biz
from tests.integration.support.children import child

pytestmark = pytest.mark.django_db(transaction=True)


class Commits:
    """Stores names in one transaction a group; counts groups and the connections it used."""

    def __init__(self) -> None:
        self.groups = 0
        self.connections: set[int] = set()

    def __call__(self, names: list[str | None]) -> list[str]:
        self.groups += 1
        with transaction.atomic(durable=True):
            self.connections.add(id(connection.connection))
            now = sql.now()
            sql.insert(
                "biz",
                ("name", "title", "enabled", "created_at"),
                [(name, "", True, now) for name in names],
            )
        return [f"stored {name}" for name in names]


@pytest.fixture
def commits() -> Commits:
    return Commits()


@pytest.fixture
def group(commits: Commits) -> Iterator[GroupCommit[str | None, str]]:
    group = GroupCommit(commits)
    yield group
    assert group.close()


def stored() -> set[str]:
    return set(Biz.objects.values_list("name", flat=True))


def test_what_was_answered_is_stored(group: GroupCommit[str | None, str], commits: Commits) -> None:
    names = [f"b{n}" for n in range(2000)]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(group.submit, names))
    assert answers == [f"stored {name}" for name in names]
    assert stored() == set(names)
    assert len(commits.connections) == 1  # the submitters hold none
    assert commits.groups < 1000  # and they did share


def test_one_row_that_the_database_refuses(group: GroupCommit[str | None, str]) -> None:
    Biz.objects.create(name="b77")
    names = [f"b{n}" for n in range(200)]

    def submit(name: str | None) -> str:
        try:
            return group.submit(name)
        except IntegrityError:
            return f"refused {name}"

    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(submit, [*names, None]))
    wanted = {f"stored {name}" for name in names} - {"stored b77"}
    assert set(answers) == wanted | {"refused b77", "refused None"}
    assert stored() == set(names)


LOSES = """
from django.core.management import call_command
from django.db import connection, transaction
from msgplatform.core.data import sql
from msgplatform.core.data.group_commit import GroupCommit
from msgplatform.core.errors import Temporary
from msgplatform.models import Biz

def commit(names):
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SELECT CONNECTION_ID()")
            mine = cursor.fetchone()[0]
        Biz.objects.bulk_create([Biz(name=name) for name in names])
        if "in the middle" in names:
            say(mine)
            wait()
    return [mine] * len(names)

def submit(name):
    try:
        return group.submit(name)
    except Temporary as error:
        return type(error).__name__

call_command("migrate", verbosity=0)
group = GroupCommit(commit)
say(submit("first"))
wait()
say(submit("between"))
say(submit("in the middle"))
say(submit("after"))
say(sorted(Biz.objects.values_list("name", flat=True)))
"""


def test_a_connection_that_is_lost(mariadb: MariaDb) -> None:
    """Between groups it is made again unnoticed; within one the callers are told."""
    with child(LOSES, DATABASE_URL=mariadb.create("batching_lost")) as process:
        first = process.heard()
        process.ready()
        mariadb.execute(f"KILL CONNECTION {first}")
        process.go()
        assert process.heard() not in (first, "OutcomeUnknown")
        in_the_middle = process.heard()
        process.ready()
        mariadb.execute(f"KILL CONNECTION {in_the_middle}")
        process.go()
        assert process.heard() == "OutcomeUnknown"
        assert isinstance(process.heard(), int)
        assert process.heard() == ["after", "between", "first"]
