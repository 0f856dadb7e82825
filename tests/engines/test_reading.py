"""A page of a large table costs what it holds, however many rows the table has."""

import os
from typing import Any

import pytest
from django.db import connection

from bench.harness.plans import read_plan
from msgplatform.core.data import engines, sql
from msgplatform.core.data.engines.contract import Engine
from tests.engines.conftest import run
from tests.engines.tables import Large

IS_FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
SIZES = [10_000, 1_000_000 if IS_FULL else 200_000]
PAGE = 50
STATE = 7  # of a hundred
INDEX = "suite_large_of_state"


@pytest.fixture(scope="module", params=SIZES)
def size(request: pytest.FixtureRequest, database: None) -> int:
    size: int = request.param
    run(connection, "DELETE FROM suite_large")
    sql.insert("suite_large", ("id", "key", "state"), [(n, "key", n % 100) for n in range(1000)])
    count = 1000
    while count < size:  # each statement doubles them; a thousand keeps the states as they are
        run(connection, "INSERT INTO suite_large (id, `key`, state) SELECT id + %s, `key`, state "
                        "FROM suite_large WHERE id < %s", [count, size - count])  # fmt: skip
        count = min(2 * count, size)
    run(connection, f"ANALYZE {'TABLE ' if engines.of().is_server else ''}suite_large")
    return size


def rows_read(rows: Any, engine: Engine) -> int:
    """The rows that the server read for a queryset, or a statement with its parameters. SQLite
    counts none: its plan has to use an index in each step and to sort nothing, and PAGE is it."""
    statement, parameters = rows if isinstance(rows, tuple) else rows.query.sql_with_params()
    if engine.is_server:
        before = _handler_reads()
        assert run(connection, statement, parameters)
        return _handler_reads() - before
    with connection.cursor() as cursor:
        steps = [str(step["detail"]) for step in read_plan(cursor, statement, parameters)]
    assert not [step for step in steps if step.startswith(("SCAN suite_large", "USE TEMP"))], steps
    assert run(connection, statement, parameters)
    return PAGE


def _handler_reads() -> int:
    rows = run(connection, "SHOW SESSION STATUS LIKE 'Handler_read%%'")
    return sum(int(value) for _name, value in rows)


def test_a_page_by_key(size: int, engine: Engine) -> None:
    rows = Large.objects.filter(id__gt=size // 2).order_by("id")[:PAGE]
    assert rows_read(rows, engine) <= PAGE + 5


@pytest.mark.parametrize("part", [0.001, 0.5, 0.999])
def test_a_page_of_one_state_from_anywhere(part: float, size: int, engine: Engine) -> None:
    rows = sql.of_one(Large.objects.all(), "state", STATE).filter(id__lt=int(size * part) + PAGE)
    page = rows.order_by("-state", "-id")[:PAGE]
    assert rows_read(page, engine) <= PAGE + 5
    first = sql.first(rows.order_by("-state", "-id"), 3)
    assert [row.pk % 100 for row in first] == [STATE] * len(first)


def test_the_first_of_several_states(size: int, engine: Engine) -> None:
    """As the maker takes messages of several systems, and a timeline posts of several authors."""
    part = engine.branch(
        f"SELECT id FROM suite_large {engine.force_index(INDEX)} "
        "WHERE state = %s AND id > %s ORDER BY state, id LIMIT 10"
    )
    parameters = [number for state in (1, 2, 3) for number in (state, size // 2)]
    statement = " UNION ALL ".join([part] * 3)
    assert rows_read((statement, parameters), engine) <= 2 * PAGE
    ids = [number for (number,) in run(connection, statement, parameters)]
    assert sorted(number % 100 for number in ids) == [1] * 10 + [2] * 10 + [3] * 10


def test_a_page_behind_a_pair_of_columns(size: int, engine: Engine) -> None:
    """As a source is read: by time and key."""
    condition, places = engine.seek_condition("state", "id")
    parameters = [(STATE, size // 2)[place] for place in places]
    statement = (
        f"SELECT state, id FROM suite_large {engine.force_index(INDEX)} WHERE {condition} "
        f"ORDER BY state, id LIMIT {PAGE}"
    )
    assert rows_read((statement, parameters), engine) <= 2 * PAGE
    rows = run(connection, statement, parameters)
    assert list(rows) == sorted(rows)
    assert tuple(rows[0]) > (STATE, size // 2)


def test_a_count_up_to_a_bound(size: int, engine: Engine) -> None:
    statement = (
        f"SELECT COUNT(*) FROM (SELECT 1 FROM suite_large {engine.force_index(INDEX)} "
        f"WHERE state = %s LIMIT {PAGE}) AS first_rows"
    )
    assert rows_read((statement, [STATE]), engine) <= 2 * PAGE + 10


def test_keys_are_found_one_by_one(size: int, engine: Engine) -> None:
    rows = Large.objects.filter(pk__in=range(0, size, size // PAGE))
    assert rows_read(rows, engine) <= PAGE + 5
