"""Find leads, and records of every source, newest first.

A search picks the index that narrows most, reads ids from it in pages, and checks the rest of the
filter for each page. It goes over leads when the filter says something about a lead (such as
a phone number), and over records when it only asks how they are doing at a CRM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from django.utils.translation import gettext_lazy

from crmsync import lead_fields
from crmsync.search import candidates, hits, policies
from crmsync.search.filters import Filter, parse
from crmsync.search.matches import Matches
from crmsync.search.timeline import page
from msgplatform.api.filters import MAX_ID, number
from msgplatform.core.data.scan import Candidates, scan
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Found, Hit, Text

__all__ = ["FIELDS", "find", "page", "search"]

FIELDS: Mapping[str, Text] = {
    "id": gettext_lazy("A lead's id"),
    "phone": gettext_lazy("The whole number: 13800000000 or +44 20 7946 0000"),
    "name": gettext_lazy("The beginning of a name"),
    "uid": gettext_lazy("The caller's own id of the person"),
    "appkey": gettext_lazy("APPKEY of a landing page"),
    "biz": gettext_lazy("Name or id of a business system"),
    "crm": gettext_lazy("Name or id of a CRM"),
    "state": gettext_lazy("At a CRM: waiting, queued, retry, confirmed, dead or dismissed"),
    "error_class": gettext_lazy(
        "At a CRM: retry, throttled, invalid, conflict, auth, unknown or mapping"
    ),
    "operation": gettext_lazy("Everything that an operation was to send: its id"),
    "remote_id": gettext_lazy("A record's id in a CRM"),
    "record_key": gettext_lazy("A record's key in its source"),
    "since": gettext_lazy("Stored, or read for a CRM, at this time or later: 2026-11-20 14:30"),
    "until": gettext_lazy("Stored, or read for a CRM, before this time"),
}
BATCH = 500
SCANNED = 10_000  # leads or records that one page looks at


def search(query: str, limit: int) -> list[Hit]:
    """By a lead's or an operation's id, phone number, uid, id in a CRM, key, APPKEY or the
    beginning of a name: the first of these that finds something, newest first."""
    query = query.strip()
    if not query or "\x00" in query:
        return []
    # What the text may be, the most exact first.
    for filter in _readings(query):
        if found := _Search(filter, limit).run(MAX_ID).hits:
            return list(found)
    return []


def find(given: Mapping[str, str], cursor: str, limit: int) -> Found:
    """Leads or records that match the whole filter; see `FIELDS`. Raises InvalidInput."""
    filter = parse(given, FIELDS)
    before = number(cursor, "cursor") if cursor else MAX_ID
    if filter.until is not None:
        before = min(before, filter.until)
    return _Search(filter, limit).run(before)


def _readings(query: str) -> Iterator[Filter]:
    with suppress(InvalidInput):
        yield Filter(id=number(query))
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
