"""Find posts and events, newest first.

A search picks the index that narrows most, reads ids from it in pages, and applies the rest of the
filter to each page. It goes over events when it asks for what is not handled yet, else over posts.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

from django.utils.translation import gettext_lazy

from msgplatform.api import filter_fields
from msgplatform.api.filters import MAX_ID, number, position, searchable
from msgplatform.core.data import ids
from msgplatform.core.data.scan import Candidates, scan
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Fields, FilterField, Found, Hit, TextFound
from notify.feed.messages import candidates, matches
from notify.feed.messages.filters import DELETED, HANDLED, OPEN, TOPIC, Filter, parse
from notify.feed.messages.hits import hits, readers
from notify.feed.messages.timeline import page
from notify.feed.models import EventQueue, Feed

__all__ = ["FIELDS", "find", "page", "search", "search_text"]

FIELDS: Fields = {
    "id": filter_fields.message_id(gettext_lazy("A post's or an event's id")),
    "user": FilterField(
        gettext_lazy("User"), gettext_lazy("The business system's own id of an author, exact")
    ),
    "biz": filter_fields.BIZ,
    "topic": TOPIC,
    "kind": FilterField(gettext_lazy("Kind"), gettext_lazy("Of the post, exact, such as update")),
    "state": filter_fields.choice(
        gettext_lazy("State"),
        [
            *((name, status.label) for name, status in OPEN.items()),
            (HANDLED, EventQueue.Status.HANDLED.label),
            (DELETED, gettext_lazy("deleted")),
        ],
    ),
    "since": filter_fields.since(gettext_lazy("Posted at this time or later")),
    "until": filter_fields.until(gettext_lazy("Posted before this time")),
}
BATCH = 500
SCANNED = 10_000  # posts or events that one page looks at
TEXT_HITS = 50  # of one piece of a search through texts


def search(query: str, limit: int, personal: bool = True) -> list[Hit]:
    """Find by a post's or an event's id, else by the id of a user: the user's timeline, and posts
    of this author, newest first."""
    query = query.strip()
    if not query or "\x00" in query:
        return []
    with suppress(InvalidInput):
        if found := hits([number(query)]):
            return list(found.values())
    return [*readers(query), *_Search(Filter(user=query), limit).run(MAX_ID).hits]


def find(given: Mapping[str, str], cursor: str, limit: int) -> Found:
    """Posts or events that match the whole filter; see `FIELDS`. Raises InvalidInput."""
    filter = parse(given, FIELDS)
    before = position(cursor)
    if filter.until is not None:
        before = min(before, filter.until)
    return _Search(filter, limit).run(before)


def search_text(query: str, since: datetime, cursor: str, seconds: float) -> TextFound:
    """Posts since a time that hold the text."""
    query, oldest = searchable(query, "text"), ids.first_id_at(since)

    def batch(before: int) -> Candidates:
        rows = Feed.objects.filter(id__lt=before, id__gte=oldest).order_by("-id")
        read = list(rows.values_list("id", "data")[:BATCH])
        return Candidates([(pk, query in text) for pk, text in read], len(read) < BATCH)

    before = position(cursor)
    page = scan(batch, before, TEXT_HITS, MAX_ID, seconds)
    lines = hits(page.ids)
    return page.texts_found([lines[pk] for pk in page.ids if pk in lines])


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
            read = self._read(before, BATCH)
            right = self._matching(read, self._filter) if read else set()
            return Candidates([(pk, pk in right) for pk in read], len(read) < BATCH)

        page = scan(batch, before, self._limit, SCANNED)
        lines = hits(page.ids)
        return page.found([lines[pk] for pk in page.ids if pk in lines])
