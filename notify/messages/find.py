"""Find messages, hot and archived, newest first.

A search picks the index that narrows most, reads message ids from it in pages, and checks each page
against the rest of the filter. So no search reads more than a bounded number of rows before it
answers; the cursor goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from django.urls import reverse
from django.utils.translation import gettext as _

from msgplatform.api.filters import MAX_ID, number, position, searchable
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.flows import Found, Hit, TextFound
from msgplatform.messages.scan import Candidates as Page
from msgplatform.messages.scan import scan
from notify.archive import stores
from notify.archive.stores import Store, reading
from notify.messages.candidates import Candidates
from notify.messages.fields import SEARCH
from notify.messages.filters import Filter, parse
from notify.messages.hits import hits
from notify.messages.matches import matching
from notify.messages.timeline import file, page
from notify.models import BizReceive

__all__ = ["FIELDS", "file", "find", "notice", "page", "search", "search_text"]

FIELDS = SEARCH
T = TypeVar("T")
BATCH = 500
SCANNED = 10_000  # messages that one page looks at
SCANNED_TEXT = 2000  # each of these is read whole
TEXT_HITS = 50  # of one piece of a search through texts


def search(query: str, limit: int, personal: bool = True) -> list[Hit]:
    """By message id, delivery id, idempotency key, exact event type or a consumer's URL; newest
    first."""
    query = query.strip()
    if not query or "\x00" in query:
        return []
    if query.startswith(("http://", "https://")):
        return _delivering_to(query, limit)
    asked: list[Filter] = [Filter(key=query), Filter(event_type=query)]
    with suppress(InvalidInput):
        asked.insert(0, Filter(id=number(query)))
    for filter in asked:
        if found := _Search(filter, limit).run(MAX_ID).hits:
            return list(found)
    return []


def find(given: Mapping[str, str], cursor: str, limit: int) -> Found:
    """Messages that match the whole filter; see `FIELDS`. Raises InvalidInput."""
    filter = parse(given, FIELDS)
    narrowed = (filter.biz, filter.subscription, filter.since, filter.until, filter.id, filter.key)
    if filter.text is not None and all(value is None for value in narrowed):
        raise InvalidInput(_("narrow it by a system, a subscription or a time"), "text")
    before = position(cursor)
    if filter.until is not None:
        before = min(before, filter.until)
    return _Search(filter, limit).run(before)


def search_text(query: str, since: datetime, cursor: str, seconds: float) -> TextFound:
    """Messages since a time whose payload, or an answer to which, holds the text."""
    filter = Filter(text=searchable(query, "text"), since=id_numbers.first_id_at(since))
    before = position(cursor)
    return _Search(filter, TEXT_HITS).run_for(before, seconds)


def _delivering_to(url: str, limit: int) -> list[Hit]:
    """Subscriptions that deliver to exactly this URL. Not those that begin with it: an address may
    hold a secret, which nobody should find out letter by letter."""
    rows = BizReceive.objects.filter(receive__url=url).select_related("biz", "receive")
    return [
        Hit(
            id=str(row.pk),
            title=_("Messages for %s") % row.receive,
            state=str(row.get_status_display()),
            at=row.created_at,
            biz=str(row.biz),
            link=f"{reverse('console:find', args=['notify'])}?subscription={row.pk}",
        )
        for row in rows.order_by("-id")[:limit]
    ]


def notice() -> str:
    """A sentence when the archive cannot be read."""
    place = stores.cold()
    try:
        with reading(place):
            place.messages.order_by().exists()
    except Unavailable as error:
        return str(error)
    return ""


class _Search:
    """One page of one search. When the archive cannot be read it goes on without, and says so."""

    def __init__(self, filter: Filter, limit: int) -> None:
        self._candidates = Candidates(filter)
        self._filter, self._limit = filter, limit
        self._places = [stores.hot(), stores.cold()]
        self._problem = ""

    def run(self, before: int) -> Found:
        """The next page below `before`."""
        most = SCANNED_TEXT if self._filter.text is not None else SCANNED
        page = scan(self._page, before, self._limit, most)
        # A message that is gone since it was found has no line.
        lines = self._in_places(hits, page.ids)
        return page.found([lines[pk] for pk in page.ids if pk in lines], self._problem)

    def run_for(self, before: int, seconds: float) -> TextFound:
        """The next piece below `before`, which takes about as many seconds."""
        page = scan(self._page, before, self._limit, MAX_ID, seconds)
        lines = self._in_places(hits, page.ids)
        return page.texts_found([lines[pk] for pk in page.ids if pk in lines], self._problem)

    def _page(self, before: int) -> Page:
        """Candidates below `before` from both places."""
        size = BATCH if self._candidates.residual else self._limit + 1
        merged: set[int] = set()
        floor = 0
        for place in self._readable():
            ids = self._read(place, self._candidates.page, before, size)
            merged.update(ids or ())
            if ids and len(ids) == size:
                # The place may have others below its last one: until those are read, ids of the
                # other place that are lower must wait, or the order would be wrong.
                floor = max(floor, ids[-1])
        page = sorted((pk for pk in merged if pk >= floor), reverse=True)
        right = set(page)
        if self._candidates.residual:
            filter = self._filter
            right = set(
                self._in_places(lambda at, ids: dict.fromkeys(matching(at, ids, filter)), page)
            )
        return Page([(pk, pk in right) for pk in page], not floor)

    def _in_places(
        self, ask: Callable[[Store, Sequence[int]], dict[int, T]], message_ids: Sequence[int]
    ) -> dict[int, T]:
        """What `ask` answers for the ids that are in a place, the hot one first: what a killed
        archiver left in the archive of a message that is still hot does not count."""
        left = list(message_ids)
        answers: dict[int, T] = {}
        for place in self._readable() if left else ():
            there = self._read(place, _present, left)
            if there:
                answers |= self._read(place, ask, there) or {}
                left = [pk for pk in left if pk not in set(there)]
        return answers

    def _readable(self) -> list[Store]:
        return [place for place in self._places if not (place.cold and self._problem)]

    def _read(self, place: Store, ask: Callable[..., T], *given: Any) -> T | None:
        """What `ask(place, …)` answers; None, and a notice, when the archive cannot be read."""
        try:
            with reading(place):
                return ask(place, *given)
        except Unavailable as error:
            self._problem = str(error)
            return None


def _present(place: Store, message_ids: Sequence[int]) -> list[int]:
    return list(place.messages.filter(id__in=message_ids).values_list("id", flat=True))
