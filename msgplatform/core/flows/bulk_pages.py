"""The pages of a bulk action: its cursor, and its messages counted and grouped page by page.

The first step of a job only stores the time, which later steps use as a bound: a step that is
repeated after a kill has the same bound, and skips messages that it has changed. A previewed job
begins with the preview's time, so that it changes the messages that were shown.
"""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Generic, Self, TypeVar

import msgspec

from msgplatform.core.data import chunks
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.messages import MAX_ID
from msgplatform.core.flows.page import Hit

# A count or a preview stops here and says "or more": an exact number would only cost time.
MAX_COUNT = 100_000
COUNT_PAGE = 2000
_COUNT_STEPS = 200  # pages may have few matches: a count must not take minutes
_SECONDS = 2.0  # for a preview: a person waits for it
SAMPLE = 5
SHOWN_GROUPS = 20

K = TypeVar("K", bound=Hashable)
# The rows of a page: (id, group, time) for each.
Described = Iterable[tuple[Any, K, datetime]]


class Counted(msgspec.Struct, frozen=True):
    """The number of messages a bulk action would change; `more`: the count stopped at a bound."""

    count: int
    more: bool = False


class PreviewGroup(msgspec.Struct, frozen=True):
    """The counted messages of one group, such as one subscription and event type."""

    title: str
    count: int


class Preview(msgspec.Struct, frozen=True):
    """The messages that a bulk action would change now. Groups and times are of counted messages.

    `pace` is the limit per second of the one recipient of all messages, or None. `notices` are
    sentences about reasons why the messages would wait. A job that begins with `cursor` changes the
    previewed messages, and no later ones.
    """

    counted: Counted
    groups: Sequence[PreviewGroup] = ()
    oldest: datetime | None = None
    newest: datetime | None = None
    sample: Sequence[Hit] = ()
    pace: float | None = None
    cursor: str = ""
    notices: Sequence[str] = ()


class BulkCursor(msgspec.Struct, frozen=True):
    """`begun` is aware, by the database's clock. `position` is the flow's own text, '' at first."""

    begun: datetime
    position: str = ""

    def start(self) -> str:
        """The cursor before the first page."""
        return f"{self.begun.isoformat()}|"

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises InvalidInput."""
        # A time has no "|". The text after the first "|" is the flow's.
        started_at, _separator, position = text.partition("|")
        return cls(read_time(started_at), position)

    def moved_to(self, position: str) -> str:
        """The cursor of the next page, '' when there is none."""
        return f"{self.begun.isoformat()}|{position}" if position else ""


def read_id(text: str) -> int:
    """The id of the last row, from a position that is an id; 0 for ''. Raises InvalidInput."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_ID):
        raise _wrong_cursor()
    return int(text)


def read_time(text: str) -> datetime:
    """An aware time of a position, as isoformat() writes it. Raises InvalidInput."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _wrong_cursor() from None
    if moment.tzinfo is None:
        raise _wrong_cursor()
    return moment


def _wrong_cursor() -> InvalidInput:
    return InvalidInput("this is not the cursor of a bulk job", "cursor")


class Page(msgspec.Struct, frozen=True):
    """The ids of a step, and the position after them ('' at the end)."""

    ids: list[int]
    position: str


def count_ids(read_page: Callable[[str, int], Page]) -> Counted:
    """The number of ids in all pages, up to MAX_COUNT."""
    id_count, position = 0, ""
    for _step in range(_COUNT_STEPS):
        page = read_page(position, COUNT_PAGE)
        id_count += len(page.ids)
        if id_count > MAX_COUNT:
            return Counted(MAX_COUNT, more=True)
        position = page.position
        if not position:
            return Counted(id_count)
    return Counted(id_count, more=True)


class Tally(msgspec.Struct, Generic[K]):
    """The counts of messages. `sample` has ids, of different groups if possible."""

    counted: Counted = msgspec.field(default_factory=lambda: Counted(0))
    groups: Counter[K] = msgspec.field(default_factory=Counter)
    oldest: datetime | None = None
    newest: datetime | None = None
    sample: list[Any] = msgspec.field(default_factory=list)

    def preview(
        self,
        started_at: datetime,
        titles: Mapping[K, str],
        sample: Sequence[Hit],
        pace: float | None = None,
    ) -> Preview:
        """The preview of these counts; `started_at` is the bound with which the pages were read."""
        groups = [
            PreviewGroup(titles[key], count) for key, count in self.groups.most_common(SHOWN_GROUPS)
        ]
        return Preview(
            self.counted, groups, self.oldest, self.newest, sample, pace,
            BulkCursor(started_at).start(),
        )  # fmt: skip


def count_groups(
    read_page: Callable[[str, int], Page],
    describe: Callable[[Sequence[Any]], Described[K]],
) -> Tally[K]:
    """Read pages up to MAX_COUNT ids, for about _SECONDS."""
    tally: Tally[K] = Tally()
    id_by_group: dict[K, Any] = {}
    first_ids: list[Any] = []
    id_count, position, has_more = 0, "", True
    end = time.monotonic() + _SECONDS
    while has_more and id_count < MAX_COUNT and time.monotonic() < end:
        page = read_page(position, COUNT_PAGE)
        # A page may be larger than COUNT_PAGE, and databases limit the values of a statement.
        id_chunks = chunks(page.ids, COUNT_PAGE)
        for row_id, group, at in chain.from_iterable(map(describe, id_chunks)):
            tally.groups[group] += 1
            id_by_group.setdefault(group, row_id)
            if len(first_ids) < SAMPLE:
                first_ids.append(row_id)
            tally.oldest = at if tally.oldest is None else min(tally.oldest, at)
            tally.newest = at if tally.newest is None else max(tally.newest, at)
        id_count += len(page.ids)
        position, has_more = page.position, bool(page.position)
    tally.counted = Counted(id_count, has_more)
    sample_ids = dict.fromkeys([*list(id_by_group.values())[:SAMPLE], *first_ids])
    tally.sample = list(sample_ids)[:SAMPLE]
    return tally
