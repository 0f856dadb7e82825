"""The engine finds messages by a flow's declaration (`MessageStore`): newest first for people,
oldest first for bulk jobs.

A search picks the index that narrows most, reads ids from it in pages, and checks the rest of the
filter for each page. The cost does not grow with the tables: one page of an answer reads at most
MAX_SCANNED messages, and the next page goes on from there.

    values ─▶ sources: hot table, archive …   each: index ─▶ ids below the cursor
                       └─ merged by id ─▶ conditions and checks of the page ─▶ lines
    live messages (Redis) stand on the first page, before all others; no bulk job selects them
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from typing import Any, TypeVar

from django.db.models import BooleanField, ExpressionWrapper, Q
from django.utils.translation import gettext as _
from msgspec.structs import replace

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.errors import UNAVAILABLE, InvalidInput, Unavailable
from msgplatform.core.flows.bulk_pages import Page, read_id
from msgplatform.core.flows.messages import (
    MAX_ID,
    Fields,
    MessageStore,
    Reader,
    Source,
    Systems,
    Values,
)
from msgplatform.core.flows.page import Hit, SearchResult, TextSearchResult
from msgplatform.messages import filters
from msgplatform.messages.scan import Candidates, Scan, scan

BATCH = 500  # ids of one page of candidates
MAX_SCANNED = 10_000  # messages that are read for one page of an answer
MAX_SCANNED_TEXTS = 2_000  # the same for a search through texts
MAX_SELECTED_FROM = 5_000  # read by one step of a bulk job, within the job's lease
TEXT_HITS = 50  # hits in one piece of a search through texts
_LIVE, _WITHOUT_LIVE = "live:", "without-live:"  # prefixes of cursors of a text search
# The readers of shared indexes, by the ids of the source and the index as Python objects.
Readers = dict[tuple[int, int], Reader | None]
T = TypeVar("T")


def read_limited(fields: Fields, entered: Mapping[str, Any], systems: Systems) -> dict[str, Any]:
    """`read_filter` for a person who sees `systems`. The error for an object of another system is
    the same as for an object that does not exist."""
    if systems is None:
        return filters.read_filter(fields, entered)
    try:
        values = filters.read_filter(fields, entered)
    except InvalidInput as error:
        if error.field in fields and fields[error.field].owners is not None:
            raise _not_theirs(error.field) from None
        raise
    for name in values:
        owners = fields[name].owners if name in fields else None
        if owners is not None and not {None, *systems}.intersection(owners(values[name])):
            raise _not_theirs(name)
    return values


def _not_theirs(field: str) -> InvalidInput:
    return InvalidInput(_("there is nothing of this name in your business systems"), field)


def find(
    store: MessageStore,
    entered: Mapping[str, str],
    cursor: str,
    limit: int,
    systems: Systems = None,
) -> SearchResult:
    """Messages that match all fields of the filter, page by page. `systems` limits them; None: all.

    A page may hold fewer than `limit` and still have a next one. Raises InvalidInput naming the
    field, or "cursor".
    """
    values = read_limited(store.fields, entered, systems)
    store.check(values)
    return find_values(store, values, filters.position(cursor), limit, systems)


def is_of_systems(store: MessageStore, message_id: str, systems: Systems) -> bool:
    """True if the message with this id belongs to one of these systems. Raises Unavailable when it
    may be in a store that cannot be read at present."""
    if systems is None:
        return True
    for values in (store.id_readings or exact_id)(message_id):
        result = find_values(store, values, MAX_ID, 1, systems)
        if not result.hits and result.notice:
            raise Unavailable(result.notice)
        return any(hit.id == message_id for hit in result.hits)
    return False


def find_values(
    store: MessageStore, values: Values, before: int, limit: int, systems: Systems = None
) -> SearchResult:
    """The same for values, below the id `before` (MAX_ID: the first page)."""
    live: Sequence[Hit] = ()
    warning = ""
    if store.live is not None and before == MAX_ID:
        try:
            live, warning = store.live.find(values, limit, systems)
        except UNAVAILABLE:
            warning = store.live.missing
    tables = _Tables(store.sources(values), values, limit, systems)
    page = tables.page(before, skipped_ids=frozenset(int(hit.id) for hit in live))
    lines = tables.lines(page)
    if live:
        lines = sorted([*live, *lines], key=lambda hit: int(hit.id), reverse=True)
    return page.result(lines, warning, tables.problem)


def find_ids(
    store: MessageStore, values: Values, before: int, limit: int
) -> tuple[Sequence[int], int | None]:
    """The ids of such a page without live messages, and the id below which the next page begins
    (None at the end). Raises Unavailable if a source that may have messages of this page cannot be
    read."""
    tables = _Tables(store.sources(values), values, limit)
    page = tables.page(before)
    if not tables.problem:
        return page.matches, page.last
    certain_ids = [pk for pk in page.matches if pk >= store.first_certain_id()]
    if len(certain_ids) < limit:
        raise Unavailable(tables.problem)
    return certain_ids, certain_ids[-1]


def select_ids(sources: Sequence[Source], values: Values, position: str, limit: int) -> Page:
    """The next page of a bulk action: ids of matching messages after a position, ascending. Raises
    Unavailable if a source that may have messages of this page cannot be read."""
    tables = _Tables(sources, values, limit, is_ascending=True)
    page = tables.run(read_id(position), MAX_SELECTED_FROM)
    if tables.problem:
        raise Unavailable(tables.problem)
    return Page(list(page.matches), "" if page.last is None else str(page.last))


def search(
    store: MessageStore, query: str, limit: int, personal: bool = True, systems: Systems = None
) -> SearchResult:
    """Messages for the text in the search box, newest first. The first reading of the text that
    finds messages decides. With `systems` there are no `other_lines`, which belong to no system.

    The notice says how far back the search looked if it found nothing before its limit."""
    query = query.strip()
    if not query or "\x00" in query:
        return SearchResult([])
    lines = list(store.other_lines(query)) if systems is None else []
    notices: list[str] = []
    for values in store.readings(query, personal):
        result = find_values(store, values, MAX_ID, limit, systems)
        if result.hits:
            return SearchResult([*lines, *result.hits])
        # Readings that read the same messages have the same notice, or a part of it.
        if result.cursor and not any(result.notice in notice for notice in notices):
            notices = [notice for notice in notices if notice not in result.notice]
            notices.append(result.notice)
    return SearchResult(lines, notice=" ".join(notices))


def search_text(
    store: MessageStore,
    query: str,
    since: datetime,
    cursor: str,
    seconds: float,
    systems: Systems = None,
) -> TextSearchResult:
    """Messages accepted at `since` or later with the text; live messages by their number too.

    Newest first, in pieces of about `seconds` each. Live messages come first, so that a message
    which is archived during the search is found in the archive. Their cursor is `live:` and the
    store's own; then it is the id below which tables are searched, with `without-live:` before it
    if live messages could not be read. Raises InvalidInput naming "cursor".
    """
    query = filters.searchable(query, "text")
    missing = ""
    if store.live is not None and (not cursor or cursor.startswith(_LIVE)):
        try:
            piece = store.live.search_text(query, cursor.removeprefix(_LIVE), seconds, systems)
            following = f"{_LIVE}{piece.cursor}" if piece.cursor else str(MAX_ID)
            return replace(piece, cursor=following)
        except UNAVAILABLE:
            cursor = f"{_WITHOUT_LIVE}{MAX_ID}"
    if store.live is not None and cursor.startswith(_WITHOUT_LIVE):
        cursor, missing = cursor.removeprefix(_WITHOUT_LIVE), store.live.missing
    values = {"text": query, "since": id_numbers.first_id_at(since)}
    tables = _Tables(store.sources(values), values, TEXT_HITS, systems)
    page = tables.run(filters.position(cursor), MAX_ID, seconds=seconds)
    piece = page.text_result(tables.lines(page), tables.problem, missing)
    return (
        replace(piece, cursor=_WITHOUT_LIVE + piece.cursor) if missing and piece.cursor else piece
    )


class _Tables:
    """The tables of one search. A table that cannot be read is left out; `problem` has the
    reason."""

    def __init__(
        self,
        sources: Sequence[Source],
        values: Values,
        limit: int,
        systems: Systems = None,
        is_ascending: bool = False,
    ) -> None:
        self._values, self._limit, self._is_ascending = values, limit, is_ascending
        if systems is None:
            self._tables = [Table(source, values) for source in sources]
        else:
            # One Table for each system, so that each system uses its own index. The ids are merged.
            readers: Readers = {}
            self._tables = [
                Table(source, {**values, "biz": system}, readers)
                for source in sources
                for system in sorted(systems)
                if values.get("biz", system) == system
            ]
        self.problem = ""

    def page(self, before: int, skipped_ids: Collection[int] = ()) -> Scan[int]:
        """The next page of an answer."""
        if "until" in self._values:
            before = min(before, self._values["until"])
        max_scanned = MAX_SCANNED_TEXTS if "text" in self._values else MAX_SCANNED
        return self.run(before, max_scanned, skipped_ids=skipped_ids)

    def run(
        self,
        last_id: int,
        max_scanned: int,
        seconds: float = math.inf,
        skipped_ids: Collection[int] = (),
    ) -> Scan[int]:
        """The next page after `last_id`. A page ends after `max_scanned` candidates, so it may have
        fewer ids than the limit, or none, and still not be the last."""

        def read(last_id: int) -> Candidates[int]:
            page = self._candidates(last_id)
            verdicts = [
                (pk, is_matching and pk not in skipped_ids) for pk, is_matching in page.verdicts
            ]
            return replace(page, verdicts=verdicts)

        return scan(read, last_id, self._limit, max_scanned, seconds)

    def lines(self, page: Scan[int]) -> list[Hit]:
        """The lines of the page's ids. A message that was deleted after the search has no line."""
        lines: dict[int, Hit] = {}
        for ids, table in self._split(list(page.matches)):
            lines |= self._read(table, partial(table.source.lines, ids)) or {}
        return [lines[pk] for pk in page.matches if pk in lines]

    def _candidates(self, last_id: int) -> Candidates[int]:
        """Ids after `last_id` from all sources, each with True if it matches."""
        tables = self._readable()
        is_exact = all(self._read(table, table.is_exact) for table in tables)
        size = self._limit + 1 if is_exact else BATCH
        merged_ids: set[int] = set()
        ends = list[int]()
        for table in tables:
            ids = self._read(table, partial(table.ids, last_id, size, self._is_ascending)) or ()
            merged_ids.update(ids)
            if len(ids) == size:
                # This source may have more ids. Ids of other sources after its last id wait for the
                # next page, because ids between may be missing.
                ends.append(ids[-1])
        if self._is_ascending:
            end = min(ends, default=MAX_ID)
            page = sorted(pk for pk in merged_ids if pk <= end)
        else:
            end = max(ends, default=0)
            page = sorted((pk for pk in merged_ids if pk >= end), reverse=True)
        matching_ids = set(page)
        if not is_exact:
            matching_ids = set()
            # A list asks only the source that holds a message. An action asks every source about
            # all ids, so that it does not miss a message that moves to a later source meanwhile;
            # it checks the message's state again when it applies.
            if self._is_ascending:
                parts = [(page, table) for table in self._readable() if page]
            else:
                parts = self._split(page)
            for ids, table in parts:
                matching_ids |= self._read(table, partial(table.matching, ids)) or set()
        return Candidates([(pk, pk in matching_ids) for pk in page], not ends)

    def _split(self, ids: list[int]) -> list[tuple[list[int], Table]]:
        """The ids that each source holds. The first source with an id counts: a killed archiver may
        have left a copy of a hot message in the archive."""
        parts: list[tuple[list[int], Table]] = []
        remaining_ids, tables = ids, self._readable()
        for table in tables:
            if not remaining_ids:
                break
            if len(tables) == 1:
                return [(remaining_ids, table)]
            present_ids = self._read(table, partial(table.present, remaining_ids)) or set()
            if present_ids:
                parts.append(([pk for pk in remaining_ids if pk in present_ids], table))
                remaining_ids = [pk for pk in remaining_ids if pk not in present_ids]
        return parts

    def _readable(self) -> list[Table]:
        return [table for table in self._tables if not table.has_failed]

    def _read(self, table: Table, ask: Callable[[], T]) -> T | None:
        """The answer; None if the source cannot be read, with the reason in `problem`."""
        try:
            with table.source.reading():
                return ask()
        except Unavailable as error:
            table.has_failed, self.problem = True, str(error)
            return None


class Table:
    """A source in one search, with the index that is chosen for it."""

    def __init__(self, source: Source, values: Values, readers: Readers | None = None) -> None:
        """`readers`: of the tables of all systems, when this is the table of a system."""
        self.source, self._values, self._is_of_system = source, values, readers is not None
        self._readers: Readers = {} if readers is None else readers
        self.has_failed = False

    @cached_property
    def _index(self) -> tuple[Reader, frozenset[str]]:
        """The reader of the first index that fits, and the fields that it decides. A search chooses
        once, for all its pages."""
        for index in self.source.indexes:
            if not all(name in self._values for name in index.fields):
                continue
            readers, key = self._readers if index.is_shared else {}, (id(self.source), id(index))
            if key not in readers:
                readers[key] = index.open(self.source, self._values)
            if reader := readers[key]:
                return reader, frozenset(index.fields if index.decides is None else index.decides)
        return self.source.primary(self._values), frozenset()

    def _residual_fields(self) -> set[str]:
        """The fields of the filter that the index does not decide."""
        _reader, decided_names = self._index
        return self._values.keys() - decided_names - {"since", "until"}

    def is_exact(self) -> bool:
        """True if each row that the index gives matches the whole filter."""
        return not self._residual_fields()

    def ids(self, last_id: int, size: int, is_ascending: bool = False) -> Sequence[int]:
        reader, _decided_names = self._index
        return reader(last_id, size, is_ascending)

    def present(self, ids: Sequence[int]) -> set[int]:
        """The ids that the source holds, of the searched system if there is one."""
        return self._fitting(ids, {"biz"} if self._is_of_system else set())

    def matching(self, ids: Sequence[int]) -> set[int]:
        """The ids (of at most BATCH) that match the fields which the index does not decide.

        The conditions are selected as expressions, not put into WHERE: MariaDB might then choose
        another index, and read all rows of a system, a type or a state.
        """
        return self._fitting(ids, self._residual_fields())

    def _fitting(self, ids: Sequence[int], names: set[str]) -> set[int]:
        """The ids that match the fields of these names."""
        source, condition = self.source, Q()
        for name in sorted(names & source.conditions.keys()):
            column, value = source.conditions[name], self._values[name]
            condition &= column(value) if callable(column) else Q(**{column: value})
        rows = source.rows().filter(**{f"{source.id}__in": ids}).order_by()
        if condition:
            expression = ExpressionWrapper(condition, BooleanField())
            pairs = rows.values_list(source.id, expression)
            matching_ids = {pk for pk, is_matching in pairs if is_matching}
        else:
            matching_ids = set(rows.values_list(source.id, flat=True))
        # Each check reads only the rows that passed the checks before. Texts are read last.
        for check in source.checks:
            if matching_ids and names.intersection(check.fields):
                ordered_ids = sorted(matching_ids, reverse=True)
                matching_ids = set(check.filter_ids(self._values, ordered_ids))
        return matching_ids


def exact_id(query: str) -> Iterator[dict[str, int]]:
    """The reading of a text as an id, if it can be one."""
    with suppress(InvalidInput):
        yield {"id": filters.number(query)}
