"""The database after a test that commits: as it was after `migrate`.

Django's own way deletes from every table, and makes all permissions anew. That is most of what
hundreds of quick tests cost, so here only tables with rows are emptied, and permissions stay.
"""

from functools import cache, partial

from django.core.management.color import no_style
from django.db import connections
from django.test import TransactionTestCase

from msgplatform.core.data import transactions

# Written by `migrate`, and by no test.
_KEPT = {"django_content_type", "auth_permission"}


def install() -> None:
    """TransactionTestCase is what `django_db(transaction=True)` ends each test with."""
    TransactionTestCase._fixture_teardown = _fixture_teardown  # type: ignore[attr-defined]


def _fixture_teardown(case: TransactionTestCase) -> None:
    for alias in case._databases_names(include_mirrors=False):  # type: ignore[attr-defined]
        empty(alias)


def empty(alias: str) -> None:
    connection = connections[alias]
    filled = [
        f"SELECT '{table}' FROM (SELECT 1) one WHERE EXISTS (SELECT 1 FROM {quoted})"
        for table in _tables(alias)
        if (quoted := connection.ops.quote_name(table))
    ]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(filled))
        tables = [table for (table,) in cursor.fetchall()]
    if tables:
        statements = connection.ops.sql_flush(no_style(), tables)
        # A server that a test has started may be writing something still.
        transactions.retrying(partial(connection.ops.execute_sql_flush, statements), alias)


@cache
def _tables(alias: str) -> list[str]:
    tables = connections[alias].introspection.django_table_names(
        only_existing=True, include_views=False
    )
    return sorted(set(tables) - _KEPT)
