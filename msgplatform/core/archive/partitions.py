"""Partitions of an archive's tables on a server, a month or day each: made ahead, dropped whole.

An id begins with its time, so a month is a range of ids. Rows after the last month go into `pmax`,
which is split when a new month is made. `pmax` is empty then, unless no month was made for months;
no row is lost in any case. Rows older than the first month go into the first month. Days work like
months.
"""

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Min, QuerySet
from django.db.utils import OperationalError
from django.utils import timezone

from msgplatform.core import logging
from msgplatform.core.archive.description import MONTHLY, Archive, Step, Table
from msgplatform.core.data import engines, ids, transactions
from msgplatform.core.errors import Unavailable

log = logging.get(__name__)

LAST = "pmax"


class Partition(NamedTuple):
    """Ids from `first` to below `bound` (None: no bound). A table's first partition also has older
    ids."""

    name: str
    first: int
    bound: int | None

    def is_below(self, id: int) -> bool:
        """True if all its ids are smaller than this one."""
        return self.bound is not None and self.bound <= id


# -- made ----------------------------------------------------------------------------------------
def partition(
    connection: BaseDatabaseWrapper, *tables: str, column: str = "id", step: Step = MONTHLY
) -> None:
    """Partition tables by this column; for migrations, may be repeated.

    The server rewrites the table, and blocks other writers meanwhile. On a database without
    partitions the call has no effect.
    """
    engine = engines.of_connection(connection)
    if not engine.has_partitions:
        return
    for table in tables:
        with connection.cursor() as cursor:
            if len(engine.partitions(cursor, table)) > 1:
                continue  # already partitioned: do not rewrite the table
            cursor.execute(f"SELECT MIN({column}) FROM {table}")  # noqa: S608
            (oldest_id,) = cursor.fetchone()
            bounds: dict[str, int] = {}
            if oldest_id is not None:
                bounds = _bounds(step, ids.datetime_of(oldest_id), timezone.now())
            cursor.execute(
                f"ALTER TABLE {table} PARTITION BY RANGE ({column}) ({_list_partitions(bounds)})"
            )


def make_operation(*tables: str, model: str = "", **options: Any) -> Any:
    """The operation of a migration that calls `partition`. `model` tells the router to which
    database the tables belong; '': to the main one."""
    from django.db.migrations import RunPython  # programs have no migrations

    return RunPython(
        lambda _apps, editor: partition(editor.connection, *tables, **options),
        RunPython.noop,
        atomic=False,
        hints={"model_name": model} if model else None,
    )


def prepare(archive: Archive, now: datetime) -> None:
    """Make the partitions of this month (or day) and of the next ones in each table.

    Raises Unavailable when the archive's tables do not exist.
    """
    using, tables = archive.using, archive.all_tables()
    with alone(archive) as has_lock:
        if not has_lock:
            return
        # List tables under the lock, because a table that is being altered is not listed.
        with connections[using].cursor() as cursor:
            table_names = connections[using].introspection.table_names(cursor)
        if missing := sorted({table.name for table in tables} - set(table_names)):
            raise Unavailable(
                f"the archive has no table {missing[0]}; run: manage.py migrate --database {using}"
            )
        for table in tables:
            partitions = partitions_of(table)
            if partitions and (bounds := _missing_bounds(archive, table.step, partitions, now)):
                _change(
                    table,
                    f"REORGANIZE PARTITION {LAST} INTO ({_list_partitions(bounds)})",
                    table.rows().none(),
                )


def _missing_bounds(
    archive: Archive, step: Step, partitions: list[Partition], now: datetime
) -> dict[str, int]:
    """Name → bound of the missing partitions, ascending."""
    last_bound = max((part.bound for part in partitions if part.bound is not None), default=None)
    if last_bound is not None:
        bounds = _bounds(step, ids.datetime_of(last_bound), now)
        return {name: bound for name, bound in bounds.items() if bound > last_bound}
    oldest_id = 0
    if archive.hot:
        oldest_id = archive.hot._base_manager.aggregate(oldest=Min("id"))["oldest"]
    return _bounds(step, ids.datetime_of(oldest_id) if oldest_id else now, now)


def _bounds(step: Step, start: datetime, now: datetime) -> dict[str, int]:
    """Name → bound of the partitions from `start` (or now) to the last one made ahead."""
    return {
        step.name(begin): ids.first_id_at(step.end(begin)) for begin in step.until_ahead(start, now)
    }


def _list_partitions(bounds: dict[str, int]) -> str:
    texts = [f"PARTITION {name} VALUES LESS THAN ({bound})" for name, bound in bounds.items()]
    return ", ".join([*texts, f"PARTITION {LAST} VALUES LESS THAN MAXVALUE"])


# -- read and dropped ----------------------------------------------------------------------------
def partitions_of(table: Table) -> list[Partition]:
    """The table's partitions, oldest first."""
    with connections[table.using].cursor() as cursor:
        partitions = []
        for name, text in table.engine.partitions(cursor, table.name):
            bound = None if text == "MAXVALUE" else int(text)
            first_id = ids.first_id_at(table.step.start(ids.datetime_of(bound - 1))) if bound else 0
            partitions.append(Partition(name, first_id, bound))
    return partitions


def drop(table: Table, part: Partition, kept_rows: QuerySet[Any]) -> bool:
    """Drop a partition unless one of `kept_rows` (of this table) exists. True if dropped."""
    return _change(table, f"DROP PARTITION {part.name}", kept_rows)


def alone(archive: Archive) -> AbstractContextManager[bool]:
    """Yields True while no other process changes this archive's tables."""
    engine = archive.tables[0].engine
    return engine.lock_name(connections[archive.using], f"archive.{archive.name}")


def _change(table: Table, change: str, unless: QuerySet[Any]) -> bool:
    """Alter the table, unless one of the rows `unless` exists, or long reads block the lock. True
    if altered. The lock keeps writers out between the look at the rows and the change."""
    connection = connections[table.using]
    try:
        with table.engine.lock_table(connection, table.name):
            if unless.exists():
                return False
            with connection.cursor() as cursor:
                cursor.execute(f"ALTER TABLE {table.name} {change}")
    except OperationalError as error:
        if not transactions.is_of_lock(error):
            raise
        log.info("archive_table_busy", table=table.name, change=change[:80])
        return False
    log.info("archive_changed", table=table.name, change=change[:80])
    return True
