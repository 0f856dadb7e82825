"""Counts of many parts of a table, each up to a bound: the cost does not grow with the table."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from msgplatform.core.data.chunks import chunks

_TERMS = 400  # of one UNION; SQLite takes 500


def capped(table: str, condition: str, keys: Sequence[Sequence[int]], most: int) -> list[int]:
    """How many rows meet the condition with each of the keys, in their order, each counted up to
    `most`. `condition` is SQL with a place for each number of a key; an index must answer it."""
    one = f"COUNT(*) FROM (SELECT 1 FROM {table} WHERE {condition} LIMIT {most}) AS some"  # noqa: S608
    found: dict[int, int] = {}
    for some in chunks(list(enumerate(keys)), _TERMS):
        with connection.cursor() as cursor:
            cursor.execute(
                " UNION ALL ".join(f"SELECT {place}, {one}" for place, _key in some),
                [number for _place, key in some for number in key],
            )
            found.update(cursor.fetchall())
    return [found[place] for place in range(len(keys))]
