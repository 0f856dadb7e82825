"""The cursor of a bulk job: when the job began, and the position after which its next page begins.

An action's `step` uses it like this:

    if not cursor:
        return Step(BulkCursor.begin(), 0)
    at = BulkCursor.read(cursor)
    … do the page after `at.position`, of what did not change since `at.begun` …
    return Step(at.moved_to(position of its last row, '' at the end), done)

The first step only stores the time, before any step uses it as a bound: a step that is repeated
after a kill finds the same bound, and skips what it did the first time. A job that was previewed
begins with the preview's time (`core.bulk.preview`), so that it changes what was shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Counted

# A count or a preview stops here and says "or more": an exact number would only cost time.
COUNT_MOST = 100_000
COUNT_PAGE = 2000
_COUNT_STEPS = 200  # pages may have few matches: a count must not take minutes
_MAX_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BulkCursor:
    """`begun` is aware, by the database's clock. `position` is the flow's own text, '' at first."""

    begun: datetime
    position: str = ""

    @classmethod
    def begin(cls) -> str:
        """The cursor after the first step."""
        return cls(sql.now()).start()

    def start(self) -> str:
        """The cursor before the first page."""
        return f"{self.begun.isoformat()}|"

    @classmethod
    def read(cls, text: str) -> BulkCursor:
        """Raises InvalidInput."""
        # A time has no "|", and whatever follows the first one is the flow's.
        begun, _separator, position = text.partition("|")
        return cls(read_time(begun), position)

    def moved_to(self, position: str) -> str:
        """The cursor of the next page, '' when there is none."""
        return f"{self.begun.isoformat()}|{position}" if position else ""


def read_id(text: str) -> int:
    """The id of the last row, from a position that holds it; 0 for ''. Raises InvalidInput."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _MAX_ID):
        raise _wrong()
    return int(text)


def read_time(text: str) -> datetime:
    """An aware time of a position, as isoformat() writes it. Raises InvalidInput."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _wrong() from None
    if moment.tzinfo is None:
        raise _wrong()
    return moment


def _wrong() -> InvalidInput:
    return InvalidInput("this is not the cursor of a bulk job", "cursor")


@dataclass(frozen=True, slots=True)
class Page:
    """The ids that a step is about, and the position after them, '' at the end."""

    ids: list[int]
    position: str


def count(page: Callable[[str, int], Page]) -> Counted:
    """How many ids the pages have, up to COUNT_MOST."""
    found, position = 0, ""
    for _step in range(_COUNT_STEPS):
        read = page(position, COUNT_PAGE)
        found += len(read.ids)
        if found > COUNT_MOST:
            return Counted(COUNT_MOST, more=True)
        position = read.position
        if not position:
            return Counted(found)
    return Counted(found, more=True)
