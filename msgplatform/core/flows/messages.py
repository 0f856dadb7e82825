"""The messages of a flow: search fields, indexes for finding messages, the page of a message.

A flow declares a `MessageStore`; the platform's engine (`msgplatform/messages/engine.py`) searches
it. A filter maps the names of fields to texts, as in an address; a field reads its text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol

import msgspec
from django.db.models import Q, QuerySet

from msgplatform.core.data import sql
from msgplatform.core.flows.page import File, Hit, Page, TextSearchResult
from msgplatform.core.flows.text import Text

MAX_ID = 2**63 - 1  # a BIGINT
# Ids of the business systems that a person may see; None: all systems.
Systems = frozenset[int] | None
MAX_OPTIONS = 20  # in one answer to typed letters
# The number of rows that are read from an index of another order, and sorted. If more rows match, a
# search walks all rows by id, and soon finds enough.
MAX_SORTED = 20_000


class Option(msgspec.Struct, frozen=True):
    """A possible value of a field, such as orders/warehouse, and the name that people know."""

    value: str
    label: Text = ""


class FilterField(msgspec.Struct, frozen=True):
    """A field of a filter: a text, a choice, a time, a list of ids, or the name of an object.

    `choices` are (value, label). `options(text, systems)` gives up to MAX_OPTIONS objects with the
    typed text in their name, read by an index or from a small table, and only objects of `systems`
    (ids, None: all). `owners(value)` are the ids of the systems to which the value's object belongs
    (with None: to all); fields of named objects have it. `read(text, name)` gives the value, and
    raises InvalidInput naming the field; None: the platform's reader for this name
    (`messages/filters.py`), else the text itself.
    """

    label: Text
    help: Text = ""
    kind: Literal["text", "choice", "time", "ids", "name"] = "text"
    choices: Sequence[tuple[str, Text]] = ()
    nothing: Text = ""  # the label of no choice; '': any choice
    options: Callable[[str, Systems], Sequence[Option]] | None = None
    owners: Callable[[Any], Collection[int | None]] | None = None
    # True if the field searches personal data. People who may not see personal data do not get such
    # a field, because searching would let them guess masked data.
    personal: bool = False
    read: Callable[[str, str], Any] | None = None
    # The field's name in the API, if callers know another name, and its description, if `help` is
    # about a form.
    parameter: str = ""
    parameter_help: str = ""
    # The schema of its value in the API, if narrower.
    schema: Mapping[str, Any] = msgspec.field(default_factory=dict)


Fields = Mapping[str, FilterField]
# Field → value, without empty fields. `since` and `until` are ids of messages, because ids grow
# with time: since <= id < until.
Values = Mapping[str, Any]
# (last_id, size, is_ascending) → up to `size` ids: above `last_id`, ascending, or below it,
# descending. Fewer ids: the end.
Reader = Callable[[int, int, bool], Sequence[int]]


def personal_names(fields: Fields) -> set[str]:
    """Names of fields for people who may see personal data only."""
    return {name for name, field in fields.items() if field.personal}


class Index(msgspec.Struct, frozen=True):
    """A way to read ids in order for filters that have all of `fields`.

    `open` gives the reader, or None if the index does not narrow this filter. The reader's rows
    match the fields in `decides` (None: `fields`); other fields are checked. With `is_shared` the
    reader does not depend on the field `biz`, so a search in many systems opens it once.
    """

    fields: Sequence[str]
    open: Callable[[Source, Values], Reader | None]
    decides: Sequence[str] | None = None
    is_shared: bool = False


class Check(msgspec.Struct, frozen=True):
    """A check that a condition on columns cannot express, for filters with one of `fields`.
    `filter_ids(values, ids)` gives the matching ids among the rows that passed the conditions."""

    fields: Sequence[str]
    filter_ids: Callable[[Values, Sequence[int]], Collection[int]]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A table of messages, with ids that grow with time.

    The engine takes the first of `indexes` that fits the filter, else the primary key. `conditions`
    maps each field to its column, or to a function of its value to a condition; they are evaluated
    for each page of ids. `lines` gives the lines of ids, without deleted rows. Sources only for
    bulk actions need no lines.

    `reading` is around every access; it raises Unavailable when the table cannot be read.
    """

    rows: Callable[[], QuerySet[Any]]
    lines: Callable[[Sequence[int]], Mapping[int, Hit]] = lambda _ids: {}
    indexes: Sequence[Index] = ()
    conditions: Mapping[str, str | Callable[[Any], Q]] = msgspec.field(default_factory=dict)
    checks: Sequence[Check] = ()
    id: str = "id"
    reading: Callable[[], AbstractContextManager[Any]] = nullcontext

    def primary(self, values: Values) -> Reader:
        return read_parts([self.rows().order_by(f"-{self.id}")], values, self.id)


def read_parts(parts: Sequence[QuerySet[Any]], values: Values, id: str) -> Reader:
    """A reader of ids from places of an index; each of `parts` has descending ids. The newest ids
    of all are among the newest ids of each part, and the oldest among the oldest."""

    def read(last_id: int, size: int, is_ascending: bool) -> Sequence[int]:
        if is_ascending:
            min_id = max(last_id + 1, values.get("since", 0))
            bounds = {f"{id}__gte": min_id, f"{id}__lt": values.get("until", MAX_ID)}
        else:
            bounds = {f"{id}__lt": last_id, f"{id}__gte": values.get("since", 0)}
        ids: list[int] = []
        for rows in parts:
            in_order = rows.reverse() if is_ascending else rows
            ids += in_order.filter(**bounds).values_list(id, flat=True)[:size]
        return ids if len(parts) == 1 else sorted(ids, reverse=not is_ascending)[:size]

    return read


def read_ids(ids: Iterable[int], values: Values) -> Reader:
    """A reader of known ids."""
    min_id, below = values.get("since", 0), values.get("until", MAX_ID)
    ascending = sorted({pk for pk in ids if min_id <= pk < below})

    def read(last_id: int, size: int, is_ascending: bool) -> Sequence[int]:
        if is_ascending:
            first = bisect_right(ascending, last_id)
            return ascending[first : first + size]
        end = bisect_left(ascending, last_id)
        return ascending[max(0, end - size) : end][::-1]

    return read


def ordered(*fields: str) -> Index:
    """An index with the columns of the fields, then the id, serves condition and order."""

    def open(source: Source, values: Values) -> Reader:
        rows, order = source.rows(), list[str]()
        for name in fields:
            column = str(source.conditions[name])
            rows = sql.of_one(rows, column, values[name])
            order.append(f"-{column}")
        return read_parts([rows.order_by(*order, f"-{source.id}")], values, source.id)

    return Index(fields, open)


def merged(
    fields: Sequence[str],
    parts: Callable[[QuerySet[Any], Values], Sequence[QuerySet[Any]]],
    decides: Sequence[str] | None = None,
) -> Index:
    """Several places of an index, each ordered by id; `parts` are ordered querysets."""

    def open(source: Source, values: Values) -> Reader:
        return read_parts(parts(source.rows(), values), values, source.id)

    return Index(fields, open, decides)


def few(
    fields: Sequence[str],
    ids: Callable[[Values], QuerySet[Any, int]],
    decides: Sequence[str] | None = None,
    max_sorted: int = MAX_SORTED,
) -> Index:
    """Ids from an index of another order, sorted here; no index when there are too many. `ids` must
    not depend on the field `biz`."""

    def open(_source: Source, values: Values) -> Reader | None:
        rows = list(ids(values).order_by()[: max_sorted + 1])
        return None if len(rows) > max_sorted else read_ids(rows, values)

    return Index(fields, open, decides, is_shared=True)


def named(fields: Sequence[str], ids: Callable[[Values], Iterable[int]]) -> Index:
    """The few ids that the filter names. The engine checks that they exist and match."""
    return Index(fields, lambda _source, values: read_ids(ids(values), values), ())


BY_ID = named(("id",), lambda values: [values["id"]])


class Live(Protocol):
    """Messages outside of the database, such as messages in flight in Redis: few, and all on the
    first page. The functions raise errors of the other server."""

    def find(
        self, values: Values, limit: int, systems: Systems = None
    ) -> tuple[Sequence[Hit], str]:
        """Lines, and a sentence if not all messages were read; with `systems` the sentence counts
        only messages of these systems."""

    def search_text(
        self, query: str, cursor: str, seconds: float, systems: Systems = None
    ) -> TextSearchResult: ...

    @property
    def missing(self) -> str:
        """The sentence when the server does not answer."""


class _Page(Protocol):
    def __call__(self, id: str, after: str = "", /) -> Page | None: ...


class MessageStore(msgspec.Struct, kw_only=True, eq=False):
    """A flow's messages, for the console's search, list and page.

    `sources(values)` are the tables that a search with these values reads, by priority: an id of an
    earlier source is not looked for in a later source. `check(values)` raises InvalidInput for
    values that do not go together.

    `readings(query, personal)` are the filters that a text in the search box may mean, the most
    exact first: an id, a key, a number or a type. Without `personal` readings use no personal data.
    `other_lines(query)` lead to pages of other objects, such as a user's timeline, and come first.

    `id_readings(id)` are the filters that an id of a page means; None: a number.

    `page(id, after)` is one message, its recipients and its timeline, or None for an unknown id.
    `after` is the cursor from the page with the former recipients. Raises Unavailable when the
    message may be in a store that cannot be read at present, and InvalidInput for a wrong cursor.
    `file(id)` is the whole content of a message; it raises the errors of `page`.

    `records(biz, ids)` are these messages of a business system in the form of the API's list, by id
    and in this order, without the last messages of a page that would be too large. Messages from
    `first_certain_id` on are in no source that may be away.

    With `searched_text_label`, such as "payloads and answers", texts of the newest messages can be
    searched: the sources have a condition or a check on the field `text`.
    """

    fields: Fields
    sources: Callable[[Values], Sequence[Source]]
    readings: Callable[[str, bool], Iterable[Values]]
    page: _Page
    id_readings: Callable[[str], Iterable[Values]] | None = None
    other_lines: Callable[[str], Sequence[Hit]] = lambda _query: ()
    check: Callable[[Values], None] = lambda _values: None
    file: Callable[[str], File | None] = lambda _id: None
    searched_text_label: Text = ""
    # A sentence if some messages of these systems cannot be searched at present, else ''.
    search_warning: Callable[[Systems], str] = lambda _systems: ""
    live: Live | None = None
    records: Callable[[int, Sequence[int]], Mapping[int, Any]] | None = None
    first_certain_id: Callable[[], int] = lambda: MAX_ID
