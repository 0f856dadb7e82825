"""Stores with data of people, in one form: tables of texts, keys of a Redis, and others of flows.

A store is read in slices: `find` returns the rows of the person in the next slice, and `erase`
removes the person's data from these rows. Erased rows are not found again, so that a pass over a
store can be repeated until it finds no rows. No step depends on an earlier step: a killed program
repeats its slice.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import redis
from django.db import models, router
from django.db.models import QuerySet

from msgplatform.core.data import transactions
from msgplatform.core.flows.text import Text
from msgplatform.core.person.identity import Person
from msgplatform.core.personal import MARK

SLICE = 1000  # rows of a table in one slice
# Numbers keep their spelling: 99.10 stays 99.10.
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode


class Row(msgspec.Struct, frozen=True):
    """The person's data in a row, or a key of Redis.

    `data` is exported, as JSON values. `is_open`: the row's message has not ended; the row is
    erased afterwards. `leads` are ids of leads for finding more data of the person, also after the
    row is erased.
    """

    key: str
    data: Mapping[str, Any]
    is_open: bool = False
    leads: Sequence[int] = ()


class Slice(msgspec.Struct, frozen=True):
    """The rows of one slice; `cursor` is where the next one begins, '' at the end."""

    rows: Sequence[Row]
    cursor: str = ""


def nothing_to_do(_person: Person, _rows: Sequence[Row]) -> int:
    """`prepare` or `end` of a store whose open rows end by themselves."""
    return 0


class PersonStore(msgspec.Struct, frozen=True):
    """A kind of data. Functions raise errors of the database and of Redis.

    `find(person, cursor)`: the next slice; the first one begins at ''. `erase(person, rows)`: erase
    the data of found rows that are not open; returns the number of changed rows. A row that changed
    meanwhile may stay: the next pass finds the row again. `prepare(person, rows)`: do the work
    before open rows can end, such as telling other systems of the deletion; returns the number of
    rows. `end(person, rows)`: end open rows without delivering them; returns their number.
    `unconfirmed(person)`: the names of other systems that have not confirmed the deletion.
    `redis_prefix`: keys of the work Redis that this store looks after.
    """

    name: str
    title: Text
    find: Callable[[Person, str], Slice]
    erase: Callable[[Person, Sequence[Row]], int]
    end: Callable[[Person, Sequence[Row]], int] = nothing_to_do
    prepare: Callable[[Person, Sequence[Row]], int] = nothing_to_do
    redis_prefix: str = ""
    unconfirmed: Callable[[Person], Sequence[str]] = lambda _person: ()


def all_slices(store: PersonStore, person: Person) -> Iterator[Slice]:
    """Every slice of a store. Most have no row of the person."""
    row_slice = store.find(person, "")
    yield row_slice
    while row_slice.cursor:
        row_slice = store.find(person, row_slice.cursor)
        yield row_slice


# -- tables of texts -----------------------------------------------------------------------------
class TextTable(msgspec.Struct, frozen=True):
    """A table whose texts may mention a person: only the person's numbers and addresses are erased,
    and the rest of the text stays.

    `columns` are text, JSON and binary (UTF-8) columns. A value of a `unique_column` becomes MARK
    with the row's id. `context_columns` are exported with a mention, and `new_values` are written
    with each erasure.
    """

    model: type[models.Model]
    columns: Sequence[str]
    unique_column: str = ""
    # The rows that still need their texts; by default none.
    open_condition: models.Q = msgspec.field(default_factory=lambda: models.Q(pk__in=[]))
    context_columns: Sequence[str] = ()
    new_values: Mapping[str, Any] = {}

    @property
    def rows(self) -> QuerySet[Any]:
        using = router.db_for_write(self.model)
        return self.model._base_manager.using(using).order_by("pk")

    def find(self, person: Person, cursor: str) -> Slice:
        if not (person.phones or person.emails):
            return Slice(())
        rows = self.rows.filter(pk__gt=cursor) if cursor else self.rows
        page = list(rows.values("pk", *self.columns, *self.context_columns)[:SLICE])
        hits = {
            row["pk"]: {name: row[name] for name in self.context_columns} | hit
            for row in page
            if (hit := self._hits(person, row))
        }
        open_rows = self.rows.filter(self.open_condition, pk__in=list(hits))
        open_ids = set(open_rows.values_list("pk", flat=True))
        own_rows = [Row(str(pk), hit, pk in open_ids) for pk, hit in hits.items()]
        return Slice(own_rows, str(page[-1]["pk"]) if len(page) == SLICE else "")

    def erase(self, person: Person, rows: Sequence[Row]) -> int:
        count, ended_rows = 0, self.rows.exclude(self.open_condition)
        for row in ended_rows.filter(pk__in=[row.key for row in rows]).values("pk", *self.columns):
            changes = {name: erased_column(person, row[name]) for name in self._hits(person, row)}
            if self.unique_column in changes:
                changes[self.unique_column] = f"{MARK}-{row['pk']}"
            if changes:
                # Update only if the texts are as read, so that a text written meanwhile is not
                # lost. Not every database compares JSON columns; few programs write them twice.
                as_read = {name: row[name] for name in changes if isinstance(row[name], str)}
                update = partial(ended_rows.filter(pk=row["pk"], **as_read).update, **changes)
                count += transactions.retrying(partial(update, **self.new_values), ended_rows.db)
        return count

    def _hits(self, person: Person, row: Mapping[str, Any]) -> dict[str, Any]:
        """Column → the person's mentions in it, for the columns of a row that have any."""
        return {
            name: person.mentions(
                value.decode(errors="replace") if isinstance(value, bytes) else value
            )
            for name in self.columns
            if erased_column(person, row[name]) != (value := _plain(row[name]))
        }


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def erased_column(person: Person, value: Any) -> Any:
    """A column's value without the person's numbers and addresses."""
    value = _plain(value)
    if isinstance(value, bytes):
        if not person.is_in_bytes(value):
            return value
        return _erased_text(person, value.decode(errors="replace")).encode()
    return _erased_text(person, value) if isinstance(value, str) else person.erased_value(value)


def _erased_text(person: Person, text: str) -> str:
    """The text without the person's numbers and addresses. JSON stays JSON: in the place of a
    number it gets MARK as a text."""
    new_text = person.erased(text)
    if new_text != text and text.lstrip()[:1] in ("{", "["):
        with suppress(msgspec.DecodeError, RecursionError):
            content = _decode(text)
            try:
                _decode(new_text)
            except msgspec.DecodeError:
                return _encode(person.erased_value(content)).decode()
    return new_text


def text_store(
    name: str,
    title: Text,
    model: type[models.Model],
    columns: Sequence[str],
    **options: Any,
) -> PersonStore:
    """The store of a TextTable, with its options."""
    table = TextTable(model, columns, **options)
    return PersonStore(name, title, table.find, table.erase)


# -- keys of a Redis -----------------------------------------------------------------------------
_SCANNED_KEYS = 500  # of one slice
_READERS: dict[bytes, Callable[[Any, bytes], Any]] = {
    b"string": lambda pipe, key: pipe.get(key),
    b"hash": lambda pipe, key: pipe.hgetall(key),
    b"list": lambda pipe, key: pipe.lrange(key, 0, -1),
    b"set": lambda pipe, key: pipe.smembers(key),
    b"zset": lambda pipe, key: pipe.zrange(key, 0, -1),
}


def find_keys(
    client: redis.Redis,
    person: Person,
    cursor: str,
    is_skipped: Callable[[str], bool],
    is_open: Callable[[str], bool],
) -> Slice:
    """The keys of the next slice with a number or an address of the person in their name or values,
    whatever their types. Values may be compressed by zlib, such as RQ's jobs.

    A key that exists all the time is found in any case; a new key may be found. Only the name of a
    key is shown, because its value may be about other people, too.
    """
    if not (person.phones or person.emails):
        return Slice(())
    answer: Any = client.scan(int(cursor or 0), count=_SCANNED_KEYS)
    next_cursor, keys = answer
    keys = [key for key in keys if not is_skipped(key.decode(errors="replace"))]
    rows = []
    for key, value in zip(keys, _values(client, keys), strict=True):
        name = key.decode(errors="replace")
        if any(person.is_in_bytes(part) for part in (key, *_pieces(value))):
            rows.append(Row(name, {"key": name}, is_open(name)))
    return Slice(rows, str(next_cursor) if next_cursor else "")


def _values(client: redis.Redis, keys: Sequence[bytes]) -> list[Any]:
    if not keys:
        return []
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.type(key)
        kinds = pipe.execute()
        # A key of another kind, such as a stream, is of no program of the platform.
        readers = [_READERS.get(kind) for kind in kinds]
        for key, reader in zip(keys, readers, strict=True):
            if reader:
                reader(pipe, key)
        # A key whose type has changed meanwhile is an error, and read in the next pass.
        values = iter(pipe.execute(raise_on_error=False))
    return [next(values) if reader else None for reader in readers]


def _pieces(value: Any) -> Iterator[bytes]:
    """Each piece of a value, unchanged and decompressed."""
    if isinstance(value, dict):
        pieces: Sequence[Any] = [*value.keys(), *value.values()]
    elif isinstance(value, list | set):
        pieces = list(value)
    else:
        pieces = [value]
    for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
            if piece[:1] == b"\x78":  # how zlib's streams begin
                with suppress(zlib.error):
                    yield zlib.decompress(piece)
