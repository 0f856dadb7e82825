"""Searches that read a bounded number of rows before they answer.

A search picks the index that narrows most, reads candidates from it in pages, newest first, and
asks the rest of the filter of each page. What it found by then is its answer, with a cursor to go
on from, and a sentence that says how far back it looked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils import formats, timezone
from django.utils.translation import gettext as _

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.flows import Found, Hit


@dataclass(frozen=True, slots=True)
class Candidates:
    """A page of candidates: (id, whether it matches), by descending id.

    `last`: there are no others below. A page that is not the last one holds at least one.
    """

    judged: Sequence[tuple[int, bool]]
    last: bool


@dataclass(frozen=True, slots=True)
class Scan:
    """Ids that match, descending. `before` is where to go on, below that id; None at the end.

    `scanned` is how many candidates were looked at when that was what ended it, else 0.
    """

    ids: Sequence[int]
    before: int | None = None
    scanned: int = 0

    def found(self, hits: Sequence[Hit], *notices: str) -> Found:
        """The search's answer: lines of these ids, the cursor, and what there is to say about it
        after `notices` (empty ones are left out)."""
        said = " ".join(notice for notice in (*notices, self._notice()) if notice)
        return Found(hits, "" if self.before is None else str(self.before), said)

    def _notice(self) -> str:
        if not self.scanned or self.before is None:
            return ""
        seen = formats.localize(timezone.localtime(id_numbers.datetime_of(self.before)))
        return _("%(count)d messages were looked at, back to %(time)s; go on for older ones.") % {
            "count": self.scanned,
            "time": seen,
        }


def scan(read: Callable[[int], Candidates], before: int, limit: int, most: int) -> Scan:
    """The first `limit` matches below the id `before`, looking at about `most` candidates.

    `read(before)` gives the page of candidates below an id; the last page that is read is looked
    at to its end, so that a page should be small against `most`.
    """
    found: list[int] = []
    scanned = 0
    while True:
        page = read(before)
        for place, (candidate, matches) in enumerate(page.judged, 1):
            before = candidate
            if matches:
                found.append(candidate)
            if len(found) == limit:
                more = not page.last or place < len(page.judged)
                return Scan(found, before if more else None)
        scanned += len(page.judged)
        if page.last:
            return Scan(found)
        if scanned >= most:
            return Scan(found, before, scanned)
