"""The messages of a flow: search fields, the indexes by which they are found, the page of one.

A flow declares a `MessageStore`; the platform's engine (`msgplatform/messages/engine.py`) searches
it. A filter is a mapping of field names to texts, as they stand in an address; the engine reads the
texts by the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from django.db.models import Q, QuerySet

from msgplatform.core.data import sql
from msgplatform.core.flows.page import File, Hit, Page, TextSearchResult
from msgplatform.core.flows.text import Text

MAX_ID = 2**63 - 1  # a BIGINT
# Ids of the business systems that somebody may see; None: all of them.
Systems = frozenset[int] | None
MAX_OPTIONS = 20  # that one answer to a few typed letters has
# Rows that can be read from an index of another order, and sorted. When more match, a search walks
# all rows, where it finds enough of them soon.
MAX_SORTED = 20_000


@dataclass(frozen=True)
class Option:
    """A value that a field may hold, such as orders/warehouse, and the name that people know."""

    value: str
    label: Text = ""


@dataclass(frozen=True)
class FilterField:
    """One field: a text, one of a few choices, a time, a list of ids, or the name of something.

    `choices` are (value, label). `options(text, systems)` gives up to MAX_OPTIONS things that have
    the typed text in their name, read by an index or from a small table; of people who are limited
    to business systems those of `systems` (their ids, None: all). `owners(value)` are the ids of
    the systems to which the thing of a value belongs, None among them: to all; a field of things
    that are listed by name has it. `read(text, name)` gives the value, and
    raises InvalidInput naming the field; None: the reader that the platform has for this name
    (`api/filters.py`), else the text itself.
    """

    label: Text
    help: Text = ""
    kind: Literal["text", "choice", "time", "ids", "name"] = "text"
    choices: Sequence[tuple[str, Text]] = ()
    nothing: Text = ""  # the label of no choice; '': any of them
    options: Callable[[str, Systems], Sequence[Option]] | None = None
    owners: Callable[[Any], Collection[int | None]] | None = None
    # The field asks for data that is masked for people who may not see personal data. These people
    # could guess it by searching, so the field is not for them.
    personal: bool = False
    read: Callable[[str, str], Any] | None = None
    # The name of this field in the API, where callers know it by another one, and its description,
    # where `help` is about a form.
    parameter: str = ""
    parameter_help: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)  # of its value in the API, if narrower


Fields = Mapping[str, FilterField]
# Field → its value; a field that was not entered is absent. `since` and `until` are ids of
# messages, for ids grow with time: since <= id < until.
Values = Mapping[str, Any]
# (last_id, size, is_ascending) → up to `size` ids above `last_id`, ascending, or else below it,
# descending. Fewer: there are no others.
Reader = Callable[[int, int, bool], Sequence[int]]


def personal_names(fields: Fields) -> set[str]:
    """The fields that are only for people who may see personal data."""
    return {name for name, field in fields.items() if field.personal}


@dataclass(frozen=True)
class Index:
    """A way to read ids in their order for filters that have all of `fields`.

    `open` gives the reader, or None when the index does not narrow this filter. Rows that it reads
    match the fields in `decides` (None: `fields`); the others are checked.
    """

    fields: Sequence[str]
    open: Callable[[Source, Values], Reader | None]
    decides: Sequence[str] | None = None


@dataclass(frozen=True)
class Check:
    """A question that no column of the row answers. It is asked of the rows that are left after the
    conditions, when the filter has one of `fields`: `left(values, ids)` are those that match."""

    fields: Sequence[str]
    left: Callable[[Values, Sequence[int]], Collection[int]]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One table of messages, with ids that grow with time.

    The engine takes the first of `indexes` that fits the filter, else the primary key. `conditions`
    tells for each field its column, or the condition of a value; they hold for each page of ids
    that was read. `lines` gives the lines of ids; an id that is gone has none. Sources from which
    only bulk actions select need no lines.

    `reading` is around every access; it raises Unavailable when the table cannot be read.
    """

    rows: Callable[[], QuerySet[Any]]
    lines: Callable[[Sequence[int]], Mapping[int, Hit]] = lambda _ids: {}
    indexes: Sequence[Index] = ()
    conditions: Mapping[str, str | Callable[[Any], Q]] = field(default_factory=dict)
    checks: Sequence[Check] = ()
    id: str = "id"
    reading: Callable[[], AbstractContextManager[Any]] = nullcontext

    def primary(self, values: Values) -> Reader:
        return read_parts([self.rows().order_by(f"-{self.id}")], values, self.id)


def read_parts(parts: Sequence[QuerySet[Any]], values: Values, id: str) -> Reader:
    """Reads ids from places of an index, each of which is in descending order. The newest of all
    are among the newest of each place, and the oldest among the oldest."""

    def read(last_id: int, size: int, is_ascending: bool) -> Sequence[int]:
        if is_ascending:
            first = max(last_id + 1, values.get("since", 0))
            bounds = {f"{id}__gte": first, f"{id}__lt": values.get("until", MAX_ID)}
        else:
            bounds = {f"{id}__lt": last_id, f"{id}__gte": values.get("since", 0)}
        ids: list[int] = []
        for rows in parts:
            in_order = rows.reverse() if is_ascending else rows
            ids += in_order.filter(**bounds).values_list(id, flat=True)[:size]
        return ids if len(parts) == 1 else sorted(ids, reverse=not is_ascending)[:size]

    return read


def read_ids(ids: Iterable[int], values: Values) -> Reader:
    """Reads from ids that are known."""
    min_id, below = values.get("since", 0), values.get("until", MAX_ID)
    ascending = sorted({pk for pk in ids if min_id <= pk < below})

    def read(last_id: int, size: int, is_ascending: bool) -> Sequence[int]:
        if is_ascending:
            return [pk for pk in ascending if pk > last_id][:size]
        return [pk for pk in reversed(ascending) if pk < last_id][:size]

    return read


def ordered(*fields: str) -> Index:
    """One index holds the columns of the fields, then the id: condition and order."""

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
    """Several places of an index, each of which goes on with the id; `parts` are ordered."""

    def open(source: Source, values: Values) -> Reader:
        return read_parts(parts(source.rows(), values), values, source.id)

    return Index(fields, open, decides)


def few(
    fields: Sequence[str],
    ids: Callable[[Values], QuerySet[Any, int]],
    decides: Sequence[str] | None = None,
    max_sorted: int = MAX_SORTED,
) -> Index:
    """Ids from an index of another order, sorted here; no index when there are too many."""

    def open(_source: Source, values: Values) -> Reader | None:
        rows = list(ids(values).order_by()[: max_sorted + 1])
        return None if len(rows) > max_sorted else read_ids(rows, values)

    return Index(fields, open, decides)


def named(fields: Sequence[str], ids: Callable[[Values], Iterable[int]]) -> Index:
    """Few ids that the filter names; whether they exist and match is checked."""
    return Index(fields, lambda _source, values: read_ids(ids(values), values), ())


BY_ID = named(("id",), lambda values: [values["id"]])


class Live(Protocol):
    """Messages outside of the database, such as those in flight in Redis: few, and all of them on
    the first page. Its functions raise errors of that server."""

    def find(
        self, values: Values, limit: int, systems: Systems = None
    ) -> tuple[Sequence[Hit], str]:
        """Lines, and a sentence when not all messages were looked at; with `systems` only what is
        theirs is counted in it."""

    def search_text(
        self, query: str, cursor: str, seconds: float, systems: Systems = None
    ) -> TextSearchResult: ...

    @property
    def missing(self) -> str:
        """The sentence when the server does not answer."""


class _Page(Protocol):
    def __call__(self, id: str, after: str = "", /) -> Page | None: ...


@dataclass(kw_only=True, eq=False)
class MessageStore:
    """The messages of a flow, for the console's search, list and page.

    `sources(values)` are the tables that a search with these values reads, the one that counts
    first: an id in an earlier source is not looked for in a later one. `check(values)` raises
    InvalidInput for values that do not go together.

    `readings(query, personal)` are the filters that a text in the search box may mean, the most
    exact first: an id, a key, a number or a type. Without `personal` it uses nothing that is masked
    for people who may not see personal data. `other_lines(query)` lead to pages that are no
    message, such as a user's timeline; they stand first.

    `id_readings(id)` are the filters that an id of a page means; None: a number.

    `page(id, after)` is one message, its recipients and its timeline, or None when this flow does
    not know the id. `after` is the cursor of the page with the recipients before. Raises
    Unavailable when the message may be in a store that cannot be read at present, and InvalidInput
    for a wrong cursor. `file(id)` is the whole content of a message; it raises what `page` raises.

    `records(biz, ids)` are these messages of a business system as the API's list shows them, by id
    and in this order; it may leave out the last ones of a page that would be too large. Messages
    with `first_certain_id` or above lie in no source that may be away.

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
    # A sentence when a part of these systems' messages cannot be searched at present, else ''.
    search_warning: Callable[[Systems], str] = lambda _systems: ""
    live: Live | None = None
    records: Callable[[int, Sequence[int]], Mapping[int, Any]] | None = None
    first_certain_id: Callable[[], int] = lambda: MAX_ID
