"""The description of a source: a table of a database, and the meaning of its columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from django.utils.translation import gettext as _

from msgplatform.core.data.engines.contract import (
    IDLE_TRANSACTION_SECONDS,
    LOCK_WAIT_SECONDS,
    STATEMENT_SECONDS,
)
from msgplatform.core.errors import InvalidInput, Permanent, Unavailable

if TYPE_CHECKING:  # the table's description is used without models, too
    from crmsync import models

_NAME = re.compile(r"[^\x00-\x1f\x7f`\"'\\.;%/]{1,64}")
_OFFSET = re.compile(r"([+-])(\d\d):([0-5]\d)")
_QUARTER = timedelta(minutes=15)


class SourceUnavailable(Unavailable):
    """The source's server cannot be reached, or did not answer in time."""


class SourceRefused(Permanent):
    """The source's server refuses the credentials, or the user lacks a privilege.

    `code` is the server's own number of the error.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class SourceMismatch(Permanent):
    """The source's database, table or columns are not as its description has them."""


class Columns(msgspec.Struct, frozen=True):
    """Names of columns. `is_deleted` and `version` are empty where the table has none.

    `key` is unique, and an integer or text. The database sets `update_time` inside the transaction
    that writes the row. `values` are the other columns that are read.
    """

    key: str = "id"
    update_time: str = "UpdateTime"
    is_deleted: str = ""
    version: str = ""
    values: tuple[str, ...] = ()

    def all(self) -> tuple[str, ...]:
        names = (self.key, self.update_time, self.is_deleted, self.version, *self.values)
        return tuple(name for name in names if name)


@dataclass(frozen=True, slots=True)
class Source:
    """A table whose changes are read.

    `database` is a URL, or empty for the platform's own. `zone` is the time zone in which a
    DATETIME column (or text in SQLite) is written: an IANA name, or an offset such as +08:00;
    TIMESTAMP columns need none. `lag` is used only where the database does not show its open
    transactions: a change that is committed later than this after it was written is missed.

    Raises InvalidInput with the part at fault in `field`.
    """

    table: str
    columns: Columns
    database: str = field(default="", repr=False)  # may hold a password
    zone: str = "UTC"
    lag: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        _check_name(self.table, "table")
        for part in ("key", "update_time"):
            if not getattr(self.columns, part):
                raise InvalidInput(_("the column %s needs a name") % part, part)
        names = self.columns.all()
        for name in names:
            _check_name(name, "columns")
        if len({name.lower() for name in names}) < len(names):
            raise InvalidInput(_("a column is named twice"), "columns")
        if self.lag <= timedelta(0):
            raise InvalidInput(_("the lag must be longer than 0"), "lag")
        parse_zone(self.zone)


def parse_zone(text: str) -> tzinfo:
    """A time zone by IANA name or by offset. Raises InvalidInput."""
    if offset := _OFFSET.fullmatch(text):
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if ahead < timedelta(hours=24):
            return timezone(ahead if offset[1] == "+" else -ahead)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        why = _("%r is no time zone: use a name such as Asia/Shanghai, or +08:00") % text
        raise InvalidInput(why, "zone") from None


def earliest_wall_clock(moment: datetime, zone: tzinfo) -> datetime:
    """The earliest (naive) time that a wall clock in `zone` shows at `moment` or later.

    In the hour before clocks are set back that is the hour's beginning: it will be shown again.
    """
    upcoming = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    quarters = (upcoming + n * _QUARTER for n in range(17))  # four hours
    moments = [moment, *(quarter for quarter in quarters if quarter >= moment)]
    return min(instant.astimezone(zone).replace(tzinfo=None) for instant in moments)


def _check_name(name: str, part: str) -> None:
    if not _NAME.fullmatch(name) or name != name.strip():
        why = _("%r is no usable name: at most 64 characters, without quotes, dots, slashes, "
                "semicolons, percent signs and spaces around it")  # fmt: skip
        raise InvalidInput(why % name, part)


# The maximum duration of a transaction of the platform's own programs, by their time-outs. It is
# used in a cluster, where not all open transactions are visible.
_OWN_LAG = timedelta(seconds=STATEMENT_SECONDS + IDLE_TRANSACTION_SECONDS + LOCK_WAIT_SECONDS)


def source_from_row(row: models.Source) -> Source:
    """The source of a row, as the poller reads it. Raises InvalidInput, Undecryptable."""
    columns = Columns(
        row.key_column, row.time_column, row.deleted_column, row.version_column,
        tuple(row.value_columns),
    )  # fmt: skip
    lag = timedelta(seconds=row.lag_seconds)
    if not row.database:
        lag = max(lag, _OWN_LAG)
    return Source(row.table, columns, row.database, row.zone, lag)
