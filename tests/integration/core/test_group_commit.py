"""Group commit on a real database: what was answered is stored, and nothing else is."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import IntegrityError, connection, transaction

from msgplatform.core.data import sql
from msgplatform.core.intake.group_commit import GroupCommit
from msgplatform.models import Biz

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


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
    group = GroupCommit(commits, timeout=180.0)
    yield group
    assert group.close(180.0)


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
