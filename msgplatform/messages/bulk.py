"""Bulk actions: their filter, and the pages of the messages that they select.

The engine selects messages by id, oldest first (`Selected`). If the index of the filter has another
order, `select_in_places` reads the index place by place. A place is a subscription or a policy; its
rows come in the order of the index.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from msgplatform.core.flows.actions import Applied, BulkAction, Selection
from msgplatform.core.flows.bulk_pages import Page, read_id
from msgplatform.core.flows.messages import Fields, Source, Values
from msgplatform.messages import engine
from msgplatform.messages.filters import read_filter
from msgplatform.messages.scan import Candidates, scan

Select = Callable[[Values, datetime], Selection]


def bulk_action(
    select: Select, *, fields: Fields, required: Sequence[str] = (), **parts: Any
) -> BulkAction:
    """An action that selects messages by the values of its fields; `parts` are other arguments of
    `BulkAction`. Starting the action raises InvalidInput for an unknown field, a wrong value, or an
    empty `required` field."""

    def select_messages(entries: Mapping[str, Any], started_at: datetime) -> Selection:
        return select(read_filter(fields, entries, required), started_at)

    return BulkAction(fields=fields, required=required, select=select_messages, **parts)


class Selected(msgspec.Struct, frozen=True):
    """The messages of `sources` that match `values`, by ascending id. `change` changes them."""

    sources: Sequence[Source]
    values: Values
    change: Callable[[Sequence[int]], int]  # returns the number of changed messages

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(self.change(ids))

    def page(self, position: str, limit: int) -> Page:
        return engine.select_ids(self.sources, self.values, position, limit)


class Row(msgspec.Struct, frozen=True):
    """A row of a place. `key` is its position in the index; `is_matching`: the row is selected."""

    id: int
    key: str
    is_matching: bool


# (place, key, size) → the next `size` rows after the key ('': from the start). Fewer at the end.
ReadPlace = Callable[[int, str, int], Sequence[Row]]


def select_in_places(places: Iterable[int], read: ReadPlace, position: str, limit: int) -> Page:
    """The next page of the rows in `places`, by ascending place. A position is the place and the
    key of the last row that was read."""
    ordered_places = sorted(places)

    def read_batch(last: tuple[int, Row]) -> Candidates[tuple[int, Row]]:
        last_place, last_row = last
        verdicts: list[tuple[tuple[int, Row], bool]] = []
        for place in ordered_places:
            if place >= last_place and len(verdicts) < engine.BATCH:
                key = last_row.key if place == last_place else ""
                rows = read(place, key, engine.BATCH - len(verdicts))
                verdicts += [((place, row), row.is_matching) for row in rows]
        return Candidates(verdicts, len(verdicts) < engine.BATCH)

    place_text, _comma, key_text = position.partition(",")
    start = (read_id(place_text), Row(0, key_text, is_matching=False))
    page = scan(read_batch, start, limit, engine.MAX_SELECTED_FROM)
    ids = [row.id for _place, row in page.matches]
    return Page(ids, f"{page.last[0]},{page.last[1].key}" if page.last else "")
