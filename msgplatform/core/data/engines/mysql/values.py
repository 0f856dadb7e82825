"""Values in the form in which a statement has them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import NoneType
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

# Far below the smallest max_allowed_packet in use (1 MiB for old clients, 16 MiB by default); a
# longer row goes alone.
_STATEMENT_BYTES = 512 * 1024
_ROWS = 1000

Literal = Callable[[Any], bytes]


def statements(
    connection: BaseDatabaseWrapper, rows: Sequence[Sequence[Any]], end: Sequence[Any] = ()
) -> Iterator[list[bytes]]:
    """Rows as `(1, 'a', NULL)`, each followed by the values of `end`, in portions of one
    statement."""
    by_type = _literals(connection)
    anything = connection.connection.literal
    last = b"".join(b"," + literal for literal in literals(connection, end)) + b")"
    batch: list[bytes] = []
    size = 0
    for row in rows:
        literal = b"(" + b",".join([by_type.get(type(v), anything)(v) for v in row]) + last
        if batch and (size + len(literal) > _STATEMENT_BYTES or len(batch) == _ROWS):
            yield batch
            batch, size = [], 0
        batch.append(literal)
        size += len(literal)
    if batch:
        yield batch


def literals(connection: BaseDatabaseWrapper, row: Iterable[Any]) -> list[bytes]:
    """The values of a row, each as a statement has it."""
    by_type, anything = _literals(connection), connection.connection.literal
    return [by_type.get(type(value), anything)(value) for value in row]


def _literals(connection: BaseDatabaseWrapper) -> dict[type, Literal]:
    quote: Literal = connection.connection.string_literal
    anything: Literal = connection.connection.literal
    adapt = connection.ops.adapt_datetimefield_value
    is_utc = connection.timezone is UTC

    def text(value: str) -> bytes:
        return quote(value.encode())

    def moment(value: datetime) -> bytes:
        if is_utc and value.tzinfo is UTC:  # what adapt would do, in a tenth of the time
            return b"'%s'" % str(value.replace(tzinfo=None)).encode()
        return text(str(adapt(value)))

    def payload(value: memoryview) -> bytes:
        return anything(bytes(value))

    return {
        int: b"%d".__mod__,
        bool: lambda value: b"1" if value else b"0",
        memoryview: payload,  # the client library would store its name
        str: text,
        datetime: moment,
        NoneType: lambda _: b"NULL",
    }


def conversions() -> Mapping[Any, Any]:
    """Django's, but for TIME: a duration of up to 838 hours, which no time of Python holds, comes
    as text."""
    from django.db.backends.mysql.base import django_conversions  # needs the driver
    from MySQLdb.constants import FIELD_TYPE

    return {**django_conversions, FIELD_TYPE.TIME: str}
