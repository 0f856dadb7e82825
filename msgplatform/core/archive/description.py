"""The description of a flow's archive: the tables, and how long a row is kept.

    ARCHIVE = Archive(
        "sms",
        (Table(SgipMt, (Table(SgipMtPart, of="mt_id"),), not_final=...), Table(SgipMo)),
        keep=lambda: settings.SMS_ARCHIVE_DAYS * DAY,
    )

Every table has an `id` that sorts by time (`core.data.ids`) as its primary key and, so that a
server can partition it, no other unique key and no foreign key. A migration calls
`partitions.partition` for each table; from then on `Retention` looks after it. A table whose
rows are no parts of other rows may name another column than `id` (`column`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db import router, transaction
from django.db.models import Model, Q, QuerySet

from msgplatform.core.data import chunks, engines, ids
from msgplatform.core.data.engines.contract import Engine
from msgplatform.core.failpoints import failpoint

DAY = 86400.0
# The id of a part can be a little smaller than the id of its row if another machine made the part,
# because clocks differ. A day is far more than the difference of set clocks.
_CLOCK_SLACK = ids.TICKS_PER_SECOND * 86400 << ids.TICK_SHIFT


def horizon(now: datetime, age: float) -> int:
    """Ids below this one are at least `age` seconds old: ids are ordered by time."""
    return ids.first_id_at(now - timedelta(seconds=age))


def earliest_part(id: int) -> int:
    """The smallest id that a part of the row `id` can have."""
    return max(0, id - _CLOCK_SLACK)


class Step(msgspec.Struct, frozen=True):
    """The period of one partition: a month or a day. `pattern` (strftime) makes a partition's name
    from its beginning; `days` is the greatest length; `ahead` is how many partitions are made
    before they are needed."""

    pattern: str
    days: int
    ahead: int

    def start(self, moment: datetime) -> datetime:
        """The beginning (UTC) of the step that holds this moment."""
        day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        return day if self.days == 1 else day.replace(day=1)

    def end(self, start: datetime) -> datetime:
        """The beginning of the next step."""
        return self.start(start + timedelta(days=self.days))

    def name(self, start: datetime) -> str:
        return start.strftime(self.pattern)

    def until_ahead(self, start: datetime, now: datetime) -> Iterator[datetime]:
        """The beginnings of the steps from `start` (or now) to the last step that is made ahead."""
        begin, last_begin = self.start(min(start, now)), self.start(now)
        for _ in range(self.ahead):
            last_begin = self.end(last_begin)
        while begin <= last_begin:
            yield begin
            begin = self.end(begin)


MONTHLY = Step("p%Y%m", days=31, ahead=2)
DAILY = Step("p%Y%m%d", days=1, ahead=2)


class Table(msgspec.Struct, frozen=True):
    """A table of an archive, and the tables of its parts, which are deleted with its rows.

    `of` is the indexed column of a part with the id of its row; a part with 0 has no row, and is
    deleted by its own age. `not_final` gives the condition (for a time, with columns of the table)
    of rows that may not be deleted at any age; it is not used for tables of parts. `column` holds
    the ids by which the table is partitioned, one partition for each `step`.
    """

    model: type[Model]
    parts: tuple[Table, ...] = ()
    of: str = ""
    not_final: Callable[[datetime], Q] | None = None
    column: str = "id"
    step: Step = MONTHLY

    @property
    def name(self) -> str:
        return self.model._meta.db_table

    @property
    def using(self) -> str:
        return router.db_for_write(self.model)

    @property
    def engine(self) -> Engine:
        """The engine of the table's database."""
        return engines.of(self.using)

    def rows(self) -> QuerySet[Any]:
        return self.model._base_manager.using(self.using).order_by(self.column)

    def below(self, end_id: int) -> Q:
        return Q(**{f"{self.column}__lt": end_id})

    def of_these(self, row_ids: Sequence[int]) -> QuerySet[Any]:
        """The parts of these rows of the table above. Parts much older than the oldest row are not
        searched."""
        # The bound lets MariaDB skip older partitions (partition pruning).
        first_id = earliest_part(min(row_ids, default=0))
        return self.rows().filter(**{f"{self.of}__in": row_ids}, id__gte=first_id)

    def with_parts(self) -> list[Table]:
        """This table and all tables of its parts."""
        return [self, *(table for part in self.parts for table in part.with_parts())]


class Archive(msgspec.Struct, frozen=True):
    """`keep()` is the number of seconds that a row is kept after its id's time; None: for ever.

    All tables are in one database. `hot` is the table from which rows are moved, if there is only
    one: months begin with its oldest row.
    """

    name: str
    tables: tuple[Table, ...]
    keep: Callable[[], float | None]
    hot: type[Model] | None = None

    @property
    def using(self) -> str:
        return self.tables[0].using

    def all_tables(self) -> list[Table]:
        return [table for root in self.tables for table in root.with_parts()]


CHUNK = 500  # ids in one statement


def delete_whole(table: Table, row_ids: Sequence[int]) -> None:
    """Delete rows and their parts, in one transaction."""
    with transaction.atomic(using=table.using, savepoint=False):
        for ids_of_chunk in chunks(row_ids, CHUNK):
            for part in table.parts:
                delete_whole(part, list(part.of_these(ids_of_chunk).values_list("id", flat=True)))
            failpoint("archive_half_gone")
            table.rows().filter(**{f"{table.column}__in": ids_of_chunk}).delete()
