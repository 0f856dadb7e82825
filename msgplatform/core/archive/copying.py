"""The steps of a move from hot tables to the cold store: copy, verify, delete. The way back is copy
and verify: the rows stay in the archive too, and the hot rows count.

The caller has locked the hot rows in a transaction of the main database, which ends after the
deletion, and has deleted rows that a killed process left in the cold store. If both stores are one
database, all steps are one transaction. A cold store elsewhere commits first: if the process dies
before the main commit, the rows are in both stores, the hot rows count, and the next move replaces
the cold rows.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from django.db import connections, models, router
from django.db.models import QuerySet

from msgplatform.core.archive.description import CHUNK
from msgplatform.core.data import chunks, sql
from msgplatform.core.errors import Temporary


class NotVerified(Temporary):
    """The rows in the archive differ from the rows to copy; no row was deleted."""


class Part(msgspec.Struct, frozen=True):
    """Rows of one table to copy from `source` to `target`: `column` IN `keys`.

    Columns that both tables have are copied; `added` has other columns of the target, as
    expressions over the source's row.
    """

    source: type[models.Model]
    target: type[models.Model]
    column: str
    keys: list[int]
    added: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        source_columns = {field.attname for field in self.source._meta.concrete_fields}
        names = [field.attname for field in self.target._meta.concrete_fields]
        return [name for name in names if name in source_columns and name not in self.added]

    def copy(self) -> None:
        using, table = router.db_for_write(self.target), self.target._meta.db_table
        names = [*self.columns, *self.added]
        for rows in self._pages(self.source):
            source_rows = rows.order_by().annotate(**self.added).values_list(*names)
            if using == rows.db:
                quote = connections[using].ops.quote_name
                select, values = source_rows.query.get_compiler(using).as_sql()
                into = f"{quote(table)} ({', '.join(map(quote, names))})"
                with connections[using].cursor() as cursor:
                    cursor.execute(f"INSERT INTO {into} {select}", values)
            else:
                sql.insert(
                    table, names, [tuple(map(_plain, row)) for row in source_rows], using=using
                )

    def verify(self) -> int:
        """The number of copied rows. Raises NotVerified if the target does not hold all of them."""
        # Compare all columns, because the source is deleted if they are equal.
        source_count, source_digest = self._fingerprint(self.source)
        target_count, target_digest = self._fingerprint(self.target)
        if (source_count, source_digest) != (target_count, target_digest):
            table = self.target._meta.db_table
            raise NotVerified(f"{table}: {target_count} rows differ from {source_count}")
        return source_count

    def delete(self, count: int) -> None:
        """Delete the source's rows. Raises NotVerified unless their number is `count`, as
        copied."""
        deleted_count = sum(rows.delete()[0] for rows in self._pages(self.source))
        if deleted_count != count:  # a new row came: the caller rolls back
            table = self.source._meta.db_table
            raise NotVerified(f"{table}: {deleted_count} rows to delete, {count} copied")

    def _pages(self, model: type[models.Model]) -> Iterator[QuerySet[Any]]:
        using = router.db_for_write(model)
        for keys in chunks(self.keys, CHUNK):
            yield model._base_manager.using(using).filter(**{f"{self.column}__in": keys})

    def _fingerprint(self, model: type[models.Model]) -> tuple[int, str]:
        """The number and the digest of the model's rows."""
        count, digest = 0, hashlib.sha256()
        for page in self._pages(model):
            for row in page.order_by("id").values_list(*self.columns):
                count += 1
                digest.update(repr(tuple(map(_plain, row))).encode())
        return count, digest.hexdigest()


def _plain(value: Any) -> Any:
    # The fingerprint is of texts, and the text of a memoryview does not have its content.
    return bytes(value) if isinstance(value, memoryview) else value
