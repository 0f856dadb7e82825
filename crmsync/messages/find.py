"""Find leads, and records of every source, newest first.

A search picks the index that narrows most, reads ids from it in pages, and checks the rest of the
filter for each page. It goes over leads when the filter says something about a lead (such as
a phone number), and over records when it only asks how they are doing at a CRM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime

from django.utils.translation import gettext_lazy

from crmsync import lead_fields
from crmsync.messages import candidates, hits, policies
from crmsync.messages.filters import CRM, ERROR_CLASS, STATES, Filter, parse
from crmsync.messages.matches import Matches
from crmsync.messages.timeline import page
from crmsync.models import Lead
from msgplatform.api import filter_fields
from msgplatform.api.filters import MAX_ID, number, position, searchable
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Fields, FilterField, Found, Hit, TextFound
from msgplatform.messages.scan import Candidates, scan

__all__ = ["FIELDS", "find", "page", "search", "search_text"]

FIELDS: Fields = {
    "id": filter_fields.message_id(gettext_lazy("A lead's id")),
    "phone": FilterField(
        gettext_lazy("Phone"),
        gettext_lazy("The whole number: 13800000000 or +44 20 7946 0000"),
        personal=True,
    ),
    "name": FilterField(
        gettext_lazy("Name"), gettext_lazy("The beginning of a name"), personal=True
    ),
    "uid": FilterField("UID", gettext_lazy("The caller's own id of the person")),
    "appkey": FilterField("APPKEY", gettext_lazy("APPKEY of a landing page")),
    "biz": filter_fields.BIZ,
    "crm": CRM,
    "state": filter_fields.choice(
        gettext_lazy("State"),
        [(name, state.label) for name, state in STATES.items()],
        gettext_lazy("At a CRM"),
    ),
    "error_class": ERROR_CLASS,
    "operation": FilterField(
        gettext_lazy("Operation"), gettext_lazy("Everything that an operation was to send: its id")
    ),
    "remote_id": FilterField(gettext_lazy("Id in the CRM"), gettext_lazy("A record's id in a CRM")),
    "record_key": FilterField(
        gettext_lazy("Record key"), gettext_lazy("A record's key in its source")
    ),
    "since": filter_fields.since(gettext_lazy("Stored, or read for a CRM, at this time or later")),
    "until": filter_fields.until(gettext_lazy("Stored, or read for a CRM, before this time")),
}
BATCH = 500
SCANNED = 10_000  # leads or records that one page looks at
TEXT_HITS = 50  # of one piece of a search through texts


def search(query: str, limit: int, personal: bool = True) -> list[Hit]:
    """By a lead's or an operation's id, uid, id in a CRM, key or APPKEY, and if `personal` by phone
    number or the beginning of a name: the first of these that finds something, newest first."""
    query = query.strip()
    if not query or "\x00" in query:
        return []
    # What the text may be, the most exact first.
    for filter in _readings(query, personal):
        if found := _Search(filter, limit).run(MAX_ID).hits:
            return list(found)
    return []


def find(given: Mapping[str, str], cursor: str, limit: int) -> Found:
    """Leads or records that match the whole filter; see `FIELDS`. Raises InvalidInput."""
    filter = parse(given, FIELDS)
    before = position(cursor)
    if filter.until is not None:
        before = min(before, filter.until)
    return _Search(filter, limit).run(before)


def search_text(query: str, since: datetime, cursor: str, seconds: float) -> TextFound:
    """Leads stored since a time with the text in their name, phone number, uid or other fields."""
    query, oldest = searchable(query, "text"), id_numbers.first_id_at(since)

    def batch(before: int) -> Candidates:
        rows = Lead.objects.filter(id__lt=before, id__gte=oldest).order_by("-id")
        columns = ("id", "name", "phone", "uid", "extra")
        read = list(rows.values_list(*columns)[:BATCH])
        judged = [
            (pk, any(query in text for text in (*texts, *map(str, extra.values()))))
            for pk, *texts, extra in read
        ]
        return Candidates(judged, len(read) < BATCH)

    before = position(cursor)
    page = scan(batch, before, TEXT_HITS, MAX_ID, seconds)
    lines = hits.of_leads(page.ids, policies.by_id())
    return page.texts_found([lines[pk] for pk in page.ids if pk in lines])


def _readings(query: str, personal: bool) -> Iterator[Filter]:
    with suppress(InvalidInput):
        yield Filter(id=number(query))
    if personal:
        with suppress(InvalidInput):
            yield Filter(phone=lead_fields.clean_phone(query))
    yield from (
        Filter(uid=query),
        Filter(remote_id=query),
        Filter(record_key=query),
        Filter(appkey=query),
    )
    with suppress(InvalidInput):
        yield Filter(operation=number(query))
    if personal:
        yield Filter(name=query)


class _Search:
    def __init__(self, filter: Filter, limit: int) -> None:
        self._policies = policies.by_id()
        self._limit = limit
        matches = Matches(filter, self._policies)
        if filter.lists_records:
            self._read = candidates.Records(filter, self._policies).page
            self._matching, self._hits = matches.records, hits.of_records
        else:
            self._read = candidates.Leads(filter).page
            self._matching, self._hits = matches.leads, hits.of_leads

    def run(self, before: int) -> Found:
        """The next page below `before`."""
        page = scan(self._page, before, self._limit, SCANNED)
        lines = self._hits(page.ids, self._policies)
        return page.found([lines[pk] for pk in page.ids if pk in lines])

    def _page(self, before: int) -> Candidates:
        ids = self._read(before, BATCH)
        right = self._matching(ids) if ids else set()
        return Candidates([(pk, pk in right) for pk in ids], len(ids) < BATCH)
