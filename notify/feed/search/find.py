"""Find posts and events, newest first.

A search picks the index that narrows most, reads ids from it in pages, and applies the rest of the
filter to each page. It goes over events when it asks for what is not handled yet, else over posts.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from django.utils.translation import gettext_lazy

from msgplatform.api.filters import MAX_ID, number
from msgplatform.core.data.scan import Candidates, scan
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Found, Hit, Text
from notify.feed.search import candidates, matches
from notify.feed.search.filters import Filter, parse
from notify.feed.search.hits import hits
from notify.feed.search.timeline import page

__all__ = ["FIELDS", "find", "page", "search"]

FIELDS: Mapping[str, Text] = {
    "id": gettext_lazy("A post's or an event's id"),
    "user": gettext_lazy("The business system's own id of an author, exact"),
    "biz": gettext_lazy("Name or id of a business system"),
    "topic": gettext_lazy("friend, vip or upkeep"),
    "kind": gettext_lazy("Of the post, exact, such as update"),
    "state": gettext_lazy("waiting, in_slices, set_aside, handled or deleted"),
    "since": gettext_lazy("Posted at this time or later: 2026-11-20 14:30"),
    "until": gettext_lazy("Posted before this time"),
}
BATCH = 500
SCANNED = 10_000  # posts or events that one page looks at


def search(query: str, limit: int) -> list[Hit]:
    """Find by a post's or an event's id, else by the id of an author; newest first."""
    query = query.strip()
    if not query or "\x00" in query:
        return []
    with suppress(InvalidInput):
        if found := hits([number(query)]):
            return list(found.values())
    return list(_Search(Filter(user=query), limit).run(MAX_ID).hits)


def find(given: Mapping[str, str], cursor: str, limit: int) -> Found:
    """Posts or events that match the whole filter; see `FIELDS`. Raises InvalidInput."""
    filter = parse(given, FIELDS)
    before = number(cursor, "cursor") if cursor else MAX_ID
    if filter.until is not None:
        before = min(before, filter.until)
    return _Search(filter, limit).run(before)


class _Search:
    def __init__(self, filter: Filter, limit: int) -> None:
        self._filter, self._limit = filter, limit
        if filter.lists_events:
            self._read = candidates.Events(filter).page
            self._matching = matches.of_events
        else:
            self._read = candidates.Posts(filter).page
            self._matching = matches.of_posts

    def run(self, before: int) -> Found:
        """The next page below `before`. It may have fewer than `limit` lines, or none, and still
        not be the last one: it ends after SCANNED candidates."""

        def batch(before: int) -> Candidates:
            ids = self._read(before, BATCH)
            right = self._matching(ids, self._filter) if ids else set()
            return Candidates([(pk, pk in right) for pk in ids], len(ids) < BATCH)

        page = scan(batch, before, self._limit, SCANNED)
        lines = hits(page.ids)
        return page.found([lines[pk] for pk in page.ids if pk in lines])
