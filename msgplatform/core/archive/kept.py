"""Retention for people: each kind of data with its setting, its oldest row, and the next
deletion."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import msgspec
from django.db import DatabaseError, router
from django.db.models import Model, QuerySet
from django.utils.translation import gettext_lazy as _

from msgplatform.core.archive import retention
from msgplatform.core.archive.description import Archive, Step, Table
from msgplatform.core.daemons import bounded_call
from msgplatform.core.data import ids, sql
from msgplatform.core.flows.metric import Metric, Sample
from msgplatform.core.flows.text import Text

# Seconds that a scrape waits for an archive, which may be in another database.
_SAMPLE_SECONDS = 0.5
_unanswered_names: set[str] = set()  # names of archives whose databases have not answered yet
ARCHIVED, DELETED = _("moves to the archive"), _("is deleted")


class KeptData(msgspec.Struct, frozen=True):
    """One kind of data. `settings` are the variables of its retention, and `seconds` the result
    (None: for ever). `oldest` is the time of the oldest row, None without rows. `ending` says what
    happens to old rows. With a `step` rows are deleted month by month, or day by day."""

    title: Text
    settings: tuple[str, ...]
    seconds: Callable[[], float | None]
    oldest: Callable[[], datetime | None]
    ending: Text = DELETED
    step: Step | None = None

    def next_at(self, oldest: datetime) -> datetime | None:
        """The time at which the oldest row is deleted; None: never."""
        if (seconds := self.seconds()) is None:
            return None
        # A month is deleted as a whole when its last row is old enough.
        end = self.step.end(self.step.start(oldest)) if self.step else oldest
        return end + timedelta(seconds=seconds)


def of_table(
    title: Text, table: Table, seconds: Callable[[], float | None], *settings: str
) -> KeptData:
    """An archive's table. Ids begin with their time."""

    def oldest() -> datetime | None:
        return _time_of_first(table.rows(), table.column)

    step = table.step if table.engine.has_partitions else None
    return KeptData(title, settings, seconds, oldest, step=step)


def of_ids(
    title: Text, model: type[Model], seconds: Callable[[], float | None], *settings: str,
    ending: Text = DELETED,
) -> KeptData:  # fmt: skip
    """A table without partitions. Ids begin with their time."""

    def oldest() -> datetime | None:
        rows = model._base_manager.using(router.db_for_read(model)).order_by("pk")
        return _time_of_first(rows, "pk")

    return KeptData(title, settings, seconds, oldest, ending)


def _time_of_first(rows: QuerySet[Any], column: str) -> datetime | None:
    """The time of the first id in `column`; None without rows."""
    first_id = rows.values_list(column, flat=True).first()
    return None if first_id is None else ids.datetime_of(first_id)


def of_column(
    title: Text, model: type[Model], column: str, seconds: Callable[[], float | None],
    *settings: str,
) -> KeptData:  # fmt: skip
    """A table with an index that begins with a column of times or days."""

    def oldest() -> datetime | None:
        value: Any = model._base_manager.order_by(column).values_list(column, flat=True).first()
        if isinstance(value, datetime):
            return value
        return datetime.combine(value, time(), UTC) if isinstance(value, date) else None

    return KeptData(title, settings, seconds, oldest)


def for_ever() -> None:
    """The `seconds` of data that no program deletes."""


def metric(archive: Archive) -> Metric:
    """The metric of `samples`."""
    return Metric(
        f"{archive.name.replace('.', '_')}_archive_overdue_seconds",
        "For how long archived rows have been overdue for deletion",
    )


def samples(archive: Archive) -> list[Sample]:
    """Samples of an archive for `/metrics`; none if its database cannot be read, or hangs."""
    if archive.name in _unanswered_names:  # an earlier scrape still waits for the archive
        return []
    now = sql.now()

    def ask() -> tuple[float, str]:
        try:
            return retention.overdue(archive, now)
        finally:
            _unanswered_names.discard(archive.name)

    _unanswered_names.add(archive.name)
    try:
        seconds, _table = bounded_call.ask(ask, _SAMPLE_SECONDS)
    except (DatabaseError, TimeoutError):
        return []
    return [metric(archive).of(seconds)]
