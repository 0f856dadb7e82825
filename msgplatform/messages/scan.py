"""Searches that read a bounded number of rows before they answer.

A search picks the index that narrows most, reads candidates from it in pages, and applies the rest
of the filter to each page. After a limit of rows the answer has the matches so far, a cursor from
which to continue, and a sentence that says how far back the search looked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec
from django.utils import formats, timezone
from django.utils.translation import gettext as _

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.flows.page import Hit, SearchResult, TextSearchResult

# A row in the order of the search: its id, or its id and its position in an index.
K = TypeVar("K")


class Candidates(msgspec.Struct, Generic[K], frozen=True):
    """A page of candidates in the order of the search: (candidate, True if it matches).

    A page that is not the last one has at least one candidate.
    """

    verdicts: Sequence[tuple[K, bool]]
    is_last: bool


class Scan(msgspec.Struct, Generic[K], frozen=True):
    """The matching candidates. The next page begins after the candidate `last`; None at the end.

    `candidate_count` is the number of candidates that were read if this number ended the search,
    else 0.
    """

    matches: Sequence[K]
    last: K | None = None
    candidate_count: int = 0

    def result(self: Scan[int], hits: Sequence[Hit], *notices: str) -> SearchResult:
        """The search's answer: the lines of these ids, the cursor, the notices that are not empty,
        and how far back the search looked."""
        range_text = ""
        if self.candidate_count and self.last is not None:
            time_text = formats.localize(timezone.localtime(id_numbers.datetime_of(self.last)))
            range_text = _(
                "%(count)d messages were looked at, back to %(time)s; go on for older ones."
            ) % {"count": self.candidate_count, "time": time_text}
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
    """The first `limit` matches after `last`. The search ends after about `max_candidates`
    candidates or about `seconds`.

    `read(last)` gives the page of candidates after `last`. Each page is read to its end, so pages
    should be small compared with `max_candidates`.
    """
    matches: list[K] = []
    candidate_count = 0
    deadline = time.monotonic() + seconds
    while True:
        # `last` moves with each candidate, because a full answer may end in the middle of a page.
        page = read(last)
        for place, (last, is_matching) in enumerate(page.verdicts, 1):
            if is_matching:
                matches.append(last)
            if len(matches) == limit:
                # No cursor after the last candidate: "next" would lead to an empty page.
                has_more = not page.is_last or place < len(page.verdicts)
                return Scan(matches, last if has_more else None)
        candidate_count += len(page.verdicts)
        if page.is_last:
            return Scan(matches)
        if candidate_count >= max_candidates or time.monotonic() >= deadline:
            return Scan(matches, last, candidate_count)
