"""The steps of a move from hot tables to the cold store: copy, verify, delete.

The caller has locked the hot rows in a transaction of the main database, which ends after the
deletion, and has cleared the cold store of what a killed process left of them. In one database all
of it is one transaction. A cold store elsewhere commits first: a process that dies in between
leaves the rows in both, the hot ones count, and the next move replaces what it finds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.models import QuerySet

from msgplatform.core.archive.router import cold_alias
from msgplatform.core.archive.rows import CHUNK
from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import Temporary

HOT = DEFAULT_DB_ALIAS


class NotVerified(Temporary):
    """What is in the archive is not what was copied; nothing was deleted."""


@dataclass(frozen=True, slots=True)
class Part:
    """One table's rows that move: `column` IN `keys`.

    The cold table's columns are copied from those of the same name; `added` gives those that the
    hot table has not, as expressions over the hot row.
    """

    hot: type[models.Model]
    cold: type[models.Model]
    column: str
    keys: list[int]
    added: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        names = [field.attname for field in self.cold._meta.concrete_fields]
        return [name for name in names if name not in self.added]

    def copy(self) -> None:
        cold, table = cold_alias(), self.cold._meta.db_table
        names = [*self.columns, *self.added]
        for rows in self._pages(self.hot, HOT):
            wanted = rows.order_by().annotate(**self.added).values_list(*names)
            if cold == HOT:
                _insert_select(table, names, wanted)
            else:
                sql.insert(table, names, [tuple(map(_plain, row)) for row in wanted], using=cold)

    def verified(self) -> int:
        """How many rows it has; raises NotVerified when the cold store does not hold them all."""
        hot, cold = self._fingerprint(self.hot, HOT), self._fingerprint(self.cold, cold_alias())
        if hot != cold:
            raise NotVerified(f"{self.cold._meta.db_table}: {cold[0]} rows differ from {hot[0]}")
        return hot[0]

    def delete(self, count: int) -> None:
        """Delete the hot rows; raises NotVerified when there are not as many as were copied."""
        deleted = sum(rows.delete()[0] for rows in self._pages(self.hot, HOT))
        if deleted != count:  # one was added meanwhile: nothing is deleted
            table = self.hot._meta.db_table
            raise NotVerified(f"{table}: {deleted} rows to delete, {count} copied")

    def _pages(self, model: type[models.Model], using: str) -> Iterator[QuerySet[Any]]:
        for keys in chunks(self.keys, CHUNK):
            yield model._base_manager.using(using).filter(**{f"{self.column}__in": keys})

    def _fingerprint(self, model: type[models.Model], using: str) -> tuple[int, str]:
        count, digest = 0, hashlib.sha256()
        for page in self._pages(model, using):
            for row in page.order_by("id").values_list(*self.columns):
                count += 1
                digest.update(repr(tuple(map(_plain, row))).encode())
        return count, digest.hexdigest()


def _insert_select(table: str, names: list[str], rows: QuerySet[Any]) -> None:
    quote = connections[HOT].ops.quote_name
    select, values = rows.query.sql_with_params()
    with connections[HOT].cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {quote(table)} ({', '.join(map(quote, names))}) {select}", values
        )


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
