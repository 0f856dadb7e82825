"""Increment: read the rows of a source that changed since a watermark, without missing one.

A page is read by keyset in the order (time, key), from the watermark up to the safe horizon
(`horizon.py`), which is read before the rows. A row that changes meanwhile gets a later time and
is read once more. A soft delete is a change like any other.
"""

import math
import struct
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from crmsync.poller.reading.database import FIRST_TIME, Database, Table, inspect
from crmsync.poller.reading.horizon import Bound, FileHorizon, Reading, ServerHorizon
from crmsync.poller.reading.source import Source
from msgplatform.core import logging
from msgplatform.core.daemons.bisect import isolate
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import chunks, transactions
from msgplatform.core.errors import PlatformError

log = logging.get(__name__)

Key = int | str

WAITING_CAP = 1_000  # rows beyond the horizon that are counted
_KEYS_AT_ONCE = 500
_CLOCK_TOLERANCE = timedelta(seconds=1)
_MARGIN = timedelta(minutes=1)
_LOOK_SECONDS = 60.0  # between looks at the table, with a count of rows without a time


class Watermark(msgspec.Struct, frozen=True):
    """A place in a source's order: all rows up to it were read. Both parts go into JSON.

    `time` is text as the column has it, in the column's own zone.
    """

    time: str
    key: Key


class Row(msgspec.Struct, frozen=True):
    """A row as it was read. `version` is None without versions in the source. With a `problem` the
    row's values could not be read."""

    key: Key
    time: str
    deleted: bool
    version: int | None
    values: dict[str, Any]
    problem: str = ""


class Facts(msgspec.Struct, frozen=True):
    """The state of a source, for the console and for alerts; times are in UTC.

    `horizon`: no further row can appear before it. `age` grows while a transaction is left open.
    `waiting` rows lie beyond it, counted up to WAITING_CAP. `bounded_by` is the reason why the
    horizon is only assumed, by the source's `lag`; '' where it is exact. `clock_back` is the time
    by which the server's clock, or the column's with its type, went back, 0 when it did not: rows
    that were written since may lie behind the watermark (see `before`). `without_time` counts rows
    that are never read, up to WAITING_CAP.
    """

    horizon: datetime
    age: timedelta
    waiting: int
    bounded_by: Bound
    clock_back: timedelta
    without_time: int = 0

    @property
    def exact(self) -> bool:
        return not self.bounded_by


class Page(msgspec.Struct, frozen=True):
    """Rows in their order, and the watermark to store in the transaction that stores them.

    `more`: the limit ended the page, so that there may be others up to the horizon.
    """

    rows: Sequence[Row]
    watermark: Watermark | None
    more: bool
    facts: Facts


class Increment:
    """Reads the changes of one source; for one thread."""

    def __init__(self, source: Source, zone: tzinfo | None = None) -> None:
        """Inspects the table. `zone` is the time column's when the watermark was read; None: as it
        is now. Raises SourceUnavailable, SourceRefused, SourceMismatch."""
        self._source = source
        self._database = Database(source)
        table = inspect(source, self._database)
        activity = self._database.engine.activity
        self._horizon = (
            ServerHorizon(source, self._database, table.zone, activity)
            if activity
            else FileHorizon(source, self._database, table.zone)
        )
        self.zone = zone or table.zone
        self.next_look = Every(_LOOK_SECONDS)
        self._use(table)
        self._reading: Reading | None = None
        self._read_at = 0.0
        self._clock_back = timedelta(0)
        # Rows that were read early, beyond an assumed horizon: key → time and hash of the row. Such
        # a row is read again below the horizon and then left out, unless it was written again with
        # the same time, which may be a whole second.
        self._early: dict[Key, tuple[str, int]] = {}

    def _use(self, table: Table) -> None:
        self._horizon.zone, self.is_indexed = table.zone, bool(table.index)
        self._select = _Select(self._source, self._database, table)
        self._without_time = self._select.count_without_time()
        # A privilege may have been granted. A replica stays one: its threads may only be stopped.
        if self._horizon.bounded_by == "privilege":
            self._horizon.bounded_by = ""
        self.next_look.restart()

    def read(self, watermark: Watermark | None, limit: int) -> Page:
        """Up to `limit` rows after the watermark; None is the beginning.

        Repeatable: the same rows come again until `confirm` is called. Must run outside any
        transaction, whose snapshot could be older than the horizon (else RuntimeError). Raises
        SourceUnavailable, SourceRefused, SourceMismatch.
        """
        if transactions.is_in_transaction(self._database.alias):
            raise RuntimeError("changes are read outside any transaction")
        if self.next_look.is_due:  # types of columns, or indexes, may have changed
            self._use(inspect(self._source, self._database))
        if watermark and self.zone != self._horizon.zone:
            # With its type the column's texts have changed: the watermark is one of before.
            step_back = self._moment(watermark) - _in_utc(watermark.time, self.zone)
            self._clock_back = max(self._clock_back, step_back, _MARGIN)
        reading = self._read_horizon()
        rows: list[Row] = []
        place = watermark  # the last row of the page; early rows lie beyond the watermark
        more = True
        while more and len(rows) < limit and (place is None or place.time < reading.until):
            page_rows = self._select.page(place, reading.until, limit - len(rows))
            more = len(page_rows) == limit - len(rows)
            rows += [row for row in page_rows if not self._was_read_early(row)]
            for row in page_rows:
                place = Watermark(row.time, row.key)
                if row.time < reading.safe_until:
                    watermark = place
        return Page(rows, watermark, more and len(rows) == limit, self._facts(reading, watermark))

    def _was_read_early(self, row: Row) -> bool:
        return row.key in self._early and self._early[row.key] == _time_and_hash(row)

    def restart(self) -> None:
        """Call before everything is read from the beginning: early rows come again."""
        self._early = {}
        self._reading = None

    def confirm(self, page: Page) -> None:
        """Call after the page's rows and its watermark are committed."""
        watermark_time = page.watermark.time if page.watermark else ""
        self._early |= {
            row.key: _time_and_hash(row) for row in page.rows if row.time > watermark_time
        }
        self._early = {key: pair for key, pair in self._early.items() if pair[0] > watermark_time}

    def before(self, watermark: Watermark, step_back: timedelta) -> Watermark:
        """The watermark to read from after the clock went back by `step_back`; a little earlier."""
        return Watermark(
            self._horizon.column_text(self._moment(watermark) - step_back - _MARGIN), watermark.key
        )

    def forget_step_back(self) -> None:
        """Call after the watermark that `before` gave is stored."""
        self._clock_back, self.zone = timedelta(0), self._horizon.zone

    def rows(self, keys: Sequence[Key]) -> list[Row]:
        """The rows with these keys as they are now; keys without a row are left out."""
        return [row for page in chunks(keys, _KEYS_AT_ONCE) for row in self._select.of(page)]

    def newest(self, limit: int) -> list[Row]:
        """The newest rows, newest first. A row that is not committed yet is missing."""
        return self._select.newest(limit)

    def count_after(self, watermark: Watermark | None, limit: int) -> int:
        """The number of rows after the watermark, counted up to `limit`."""
        return self._select.count_after(watermark, limit)

    def _read_horizon(self) -> Reading:
        last_reading, last_read_at = self._reading, self._read_at
        self._reading = reading = self._horizon.read()
        self._read_at = time.monotonic()
        # Compare with this process's own clock, which never goes back.
        step_back = (
            last_reading.now + timedelta(seconds=reading.asked_at - last_read_at) - reading.now
            if last_reading
            else timedelta(0)
        )
        if step_back > _CLOCK_TOLERANCE:
            log.warning("source_clock_went_back", seconds=round(step_back.total_seconds(), 3))
            self._clock_back = max(self._clock_back, step_back)
        return reading

    def _moment(self, watermark: Watermark) -> datetime:
        return _in_utc(watermark.time, self._horizon.zone)

    def _facts(self, reading: Reading, watermark: Watermark | None) -> Facts:
        clock_back = self._clock_back
        if watermark:  # the watermark was below an earlier horizon: a smaller time has gone back
            clock_back = max(clock_back, self._moment(watermark) - reading.now)
        waiting = self._select.count_from(reading.until)
        age = max(reading.now - reading.horizon, timedelta(0))
        return Facts(
            reading.horizon, age, waiting, reading.bounded_by, clock_back, self._without_time
        )


def _in_utc(text: str, zone: tzinfo) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=0).astimezone(UTC)


_MAX_FLOAT = 3.4028234663852886e38  # of 32 bits


class _Select:
    """The statements that read a source's rows. The server's optimizer does not choose the index:
    with old statistics it may take another one, and sort the whole table for each page."""

    def __init__(self, source: Source, database: Database, table: Table) -> None:
        self._database = database
        self._names = source.columns.values
        columns, quote, index = source.columns, database.quote, table.index
        self._key, self._time = quote(columns.key), quote(columns.update_time)
        self._table = self._from = f"FROM {quote(source.table)}"
        engine = database.engine
        time_text = engine.time_text(self._time)
        if index and engine.is_server:
            self._from += f" {engine.force_index(quote(index))}"
        is_deleted = f"COALESCE({quote(columns.is_deleted)}, 0) <> 0" if columns.is_deleted else "0"

        def value(name: str) -> str:
            # The driver returns bits as bytes, which look like text. The server prints a FLOAT with
            # six digits.
            is_number = name.lower() in table.bits or name.lower() in table.floats
            return f"{quote(name)} + 0" if is_number else quote(name)

        self._readers = [_reader(name.lower(), table) for name in self._names]

        version = value(columns.version) if columns.version else "NULL"
        self._row_columns = f"{self._key}, {time_text}, {is_deleted}, {version}"
        self._columns = self._row_columns + "".join(f", {value(name)}" for name in self._names)

    def page(self, after: Watermark | None, until: str, limit: int) -> list[Row]:
        condition, parameters = self._after(after)
        clause = (
            f"{self._from} WHERE {condition} AND {self._time} < %s "
            f"ORDER BY {self._time}, {self._key} LIMIT {limit:d}"
        )
        return self._readable(clause, [*parameters, until])

    def newest(self, limit: int) -> list[Row]:
        order = f"{self._time} DESC, {self._key} DESC"
        return self._readable(f"{self._from} ORDER BY {order} LIMIT {limit:d}", [])

    def of(self, keys: Sequence[Key]) -> list[Row]:
        places = ", ".join(["%s"] * len(keys))
        return self._readable(f"{self._table} WHERE {self._key} IN ({places})", list(keys))

    def _readable(self, clause: str, parameters: list[Any]) -> list[Row]:
        """The rows of a statement. A row with a value that the driver cannot read comes without its
        values."""
        try:
            return self._read(f"SELECT {self._columns} {clause}", parameters)
        except PlatformError:
            raise
        except Exception as error:  # noqa: BLE001 - of the driver, for a value
            log.warning("source_values_unreadable", error_class=type(error).__name__)
        bare_rows = self._read(f"SELECT {self._row_columns} {clause}", parameters)
        unreadable: dict[Key, Exception] = {}
        keys = [row.key for row in bare_rows]
        whole_rows = isolate(
            keys, self._of_readable, unreadable.__setitem__,
            lambda error: isinstance(error, PlatformError),  # concerns the whole source, and no row
        )  # fmt: skip
        by_key = {row.key: row for row in whole_rows}
        # Keep the times of the first statement: a row that has changed since is read again.
        return [
            msgspec.structs.replace(
                row,
                problem=_("A value of the row cannot be read: %s.")
                % type(unreadable[row.key]).__name__,
            )
            if row.key in unreadable
            else msgspec.structs.replace(by_key[row.key], time=row.time)
            for row in bare_rows
            if row.key in unreadable or row.key in by_key
        ]

    def _of_readable(self, keys: Sequence[Key]) -> list[Row]:
        places = ", ".join(["%s"] * len(keys))
        statement = f"SELECT {self._columns} {self._table} WHERE {self._key} IN ({places})"
        return self._read(statement, list(keys))

    def _read(self, statement: str, parameters: list[Any]) -> list[Row]:
        return [
            Row(key, moment, bool(is_deleted), version, self._values(others))
            for key, moment, is_deleted, version, *others in self._database.rows(
                statement, parameters
            )
        ]

    def _values(self, raw: Sequence[Any]) -> dict[str, Any]:
        return {
            name: value if read is None else read(value)
            for name, read, value in zip(self._names, self._readers, raw, strict=False)
        }

    def count_after(self, after: Watermark | None, limit: int) -> int:
        return self._count(*self._after(after), limit)

    def count_from(self, until: str) -> int:
        """The number of rows at a time or beyond it, up to WAITING_CAP."""
        return self._count(f"{self._time} >= %s", [until])

    def count_without_time(self) -> int:
        """The number of rows without a place in the order of time, up to WAITING_CAP."""
        return self._count(f"{self._time} IS NULL OR {self._time} < '{FIRST_TIME}'")

    def _count(
        self, condition: str, parameters: Sequence[Any] = (), limit: int = WAITING_CAP
    ) -> int:
        ((count,),) = self._database.rows(
            f"SELECT COUNT(*) FROM (SELECT 1 {self._from} WHERE {condition} LIMIT {limit:d}) AS x",  # noqa: S608
            parameters,
        )
        return int(count)

    def _after(self, after: Watermark | None) -> tuple[str, list[Any]]:
        if after is None:
            return f"{self._time} >= %s", [FIRST_TIME]
        condition, places = self._database.engine.seek_condition(self._time, self._key)
        return condition, [(after.time, after.key)[place] for place in places]


def _reader(name: str, table: Table) -> Callable[[Any], Any] | None:
    """The function that converts a column's value; None if no conversion is needed."""
    if name in table.floats:
        return _shortest_float
    if zone := table.zones.get(name):
        return partial(_in_zone, zone=zone, local_zone=table.local_zone)
    return None


def _in_zone(value: Any, zone: tzinfo, local_zone: tzinfo) -> Any:
    """A time with the zone in which it was stored, converted to the source's zone."""
    if not isinstance(value, datetime) or value.tzinfo is not None:
        return value
    return value.replace(tzinfo=zone).astimezone(local_zone)


def _shortest_float(value: Any) -> Any:
    """The number with the fewest digits that is the same in 32 bits: 1.1, not 1.10000002384."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    bits = struct.pack("f", value)
    shorter = (float(f"{value:.{digits}g}") for digits in range(6, 10))
    # The greatest such float, rounded up, is too large for a column of the type.
    return next((n for n in shorter if abs(n) <= _MAX_FLOAT and struct.pack("f", n) == bits), value)


def _time_and_hash(row: Row) -> tuple[str, int]:
    return row.time, hash(repr((row.deleted, row.version, row.values)))
