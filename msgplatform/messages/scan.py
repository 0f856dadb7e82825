"""Searches that read a bounded number of rows before they answer.

A search picks the index that narrows most, reads candidates from it in pages, and applies the rest
of the filter to each page. When it has read enough it answers with the matches so far, a cursor
from which to continue, and a sentence that says how far back it looked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.utils import formats, timezone
from django.utils.translation import gettext as _

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.flows.page import Hit, SearchResult, TextSearchResult

# A row in the order of the search: its id, or its id and where it stands in an index.
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Candidates(Generic[K]):
    """A page of candidates in the order of the search: (id, whether it matches).

    `last` is true when there are no more. Any other page holds at least one candidate.
    """

    judged: Sequence[tuple[K, bool]]
    last: bool


@dataclass(frozen=True, slots=True)
class Scan(Generic[K]):
    """Ids that match. The next page goes on behind `last`, a candidate; None at the end.

    `scanned` is how many candidates were read if that limit ended the search, else 0.
    """

    ids: Sequence[K]
    last: K | None = None
    scanned: int = 0

    def result(self: Scan[int], hits: Sequence[Hit], *notices: str) -> SearchResult:
        """The search's answer: the lines of these ids, the cursor, and the notices that are not
        empty, followed by how far back it looked."""
        range_text = ""
        if self.scanned and self.last is not None:
            time_text = formats.localize(timezone.localtime(id_numbers.datetime_of(self.last)))
            range_text = _(
                "%(count)d messages were looked at, back to %(time)s; go on for older ones."
            ) % {"count": self.scanned, "time": time_text}
        notice_text = " ".join(notice for notice in (*notices, range_text) if notice)
        return SearchResult(hits, "" if self.last is None else str(self.last), notice_text)

    def text_result(self: Scan[int], hits: Sequence[Hit], *notices: str) -> TextSearchResult:
        """The same for a piece of a search through texts."""
        if self.last is None:
            range_text = _("all searched")
        else:
            time_text = formats.localize(timezone.localtime(id_numbers.datetime_of(self.last)))
            range_text = _("Looked at back to %s.") % time_text
        notice_text = " ".join(notice for notice in (range_text, *notices) if notice)
        return TextSearchResult(hits, "" if self.last is None else str(self.last), notice_text)


def scan(
    read: Callable[[K], Candidates[K]],
    last: K,
    limit: int,
    max_candidates: int,
    seconds: float = math.inf,
) -> Scan[K]:
    """The first `limit` matches behind `last`, looking at about `max_candidates` candidates and for
    about `seconds`.

    `read(last)` gives the page of candidates behind one. A page is always looked at to its end, so
    it should be small compared with `max_candidates`.
    """
    matches: list[K] = []
    candidate_count = 0
    until = time.monotonic() + seconds
    while True:
        # A page at a time; `last` moves with each candidate, so a full answer ends in mid-page.
        page = read(last)
        for place, (last, is_matching) in enumerate(page.judged, 1):
            if is_matching:
                matches.append(last)
            if len(matches) == limit:
                # A cursor only if there is something left: no "next" that leads to an empty page.
                more = not page.last or place < len(page.judged)
                return Scan(matches, last if more else None)
        candidate_count += len(page.judged)
        if page.last:
            return Scan(matches)
        # The bounds that keep the cost of a search from growing with the table.
        if candidate_count >= max_candidates or time.monotonic() >= until:
            return Scan(matches, last, candidate_count)
