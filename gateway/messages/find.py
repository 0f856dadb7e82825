"""Find messages, newest first: in the archive by its indexes, in Redis by id, idempotency key and,
as far as a short walk gets, by what else they have.

What no index narrows (system, reference, key) is asked of a bounded number of rows a page; the
cursor goes on from there.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import partial

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gateway.connections import sms_redis
from gateway.lifecycle import store
from gateway.messages import in_flight
from gateway.messages.filters import ACCOUNT, NUMBER, Filter, parse
from gateway.messages.hits import archived
from gateway.models import SgipMt
from msgplatform.api import filter_fields
from msgplatform.api.filters import MAX_ID, position
from msgplatform.core.connections import RedisError
from msgplatform.core.flows import Fields, FilterField, Found, Hit
from msgplatform.messages.scan import Candidates, scan
from msgplatform.models import Biz

FIELDS: Fields = {
    "id": filter_fields.message_id(gettext_lazy("A message's id")),
    "number": NUMBER,
    "key": FilterField(gettext_lazy("Idempotency key")),
    "reference": FilterField(gettext_lazy("Reference"), gettext_lazy("The sender's own reference")),
    "biz": filter_fields.BIZ,
    "account": ACCOUNT,
    "state": filter_fields.choice(gettext_lazy("State"), SgipMt.Final),
    "since": filter_fields.SINCE,
    "until": filter_fields.UNTIL,
}
BATCH = 2000  # rows of one query, when most of them may not fit
SCANNED = 10_000  # rows that one page looks at
WALK_SECONDS = 0.1  # in which messages in flight are looked at
_MAX_WALKED = 5000  # of which the newest are shown


def search(query: str, limit: int, personal: bool = True) -> list[Hit]:
    """By message id, recipient (if `personal`), idempotency key or reference; newest first."""
    query = query.strip()
    if not query or "\x00" in query:
        return []
    # The most telling meaning first: an id is also digits, as a number is, and a key may be both.
    asked = [Filter(key=query), Filter(reference=query)]
    if query.isascii() and query.lstrip("+").isdigit():
        if personal:
            asked = [Filter(number=parse({"number": query}, ("number",)).number), *asked]
        if len(query) <= 19 and query.isdigit() and int(query) <= MAX_ID:
            asked = [Filter(id=int(query)), *asked]
    for filter in asked:
        if found := _run(filter, MAX_ID, limit).hits:
            return list(found)
    return []


def find(given: Mapping[str, str], cursor: str, limit: int) -> Found:
    """Messages that match the whole filter; see `FIELDS`. Raises InvalidInput."""
    filter = parse(given, FIELDS)
    before = position(cursor)
    return _run(filter, before, limit)


def warning() -> str:
    """A sentence when the messages in flight cannot be searched at present, else ''."""
    try:
        sms_redis().ping()
    except RedisError:
        return _("The SMS Redis does not answer.")
    return ""


def _run(filter: Filter, before: int, limit: int) -> Found:
    try:
        # All on the first page: they are few, and no cursor could follow them.
        live, problem = _live(filter, limit) if before == MAX_ID else ([], "")
    except RedisError:
        live, problem = [], _("The SMS Redis does not answer: only the archive was searched.")
    taken = {int(hit.id) for hit in live}
    page = scan(partial(_page, filter, limit, taken), before, limit, SCANNED)
    hits = sorted([*live, *archived(page.ids)], key=lambda hit: int(hit.id), reverse=True)
    return page.found(hits, problem)


def _page(filter: Filter, limit: int, taken: Container[int], before: int) -> Candidates:
    """Rows of the archive below `before`; those in `taken` are in the answer already."""
    size = BATCH if filter.residual else limit + 1
    # Few columns: a text is read only of what is shown.
    columns = ("id", "biz_id", "reference", "idempotency_key")
    rows = list(filter.indexed().filter(id__lt=before).values_list(*columns)[:size])
    judged = [
        (pk, filter.fits(biz, reference, key) and pk not in taken)
        for pk, biz, reference, key in rows
    ]
    return Candidates(judged, len(rows) < size)


def _live(filter: Filter, limit: int) -> tuple[list[Hit], str]:
    """What is in Redis, and a sentence when not all of it was looked at. By id or key it is found
    at once, by what else a message has as far as a short walk gets."""
    if filter.id is not None:
        wanted, said = [str(filter.id)], ""
    elif filter.key is not None:
        wanted, said = ids_of_key(filter.key), ""
    else:
        part = in_flight.walk(filter.wants, 0, WALK_SECONDS, _MAX_WALKED)
        # The newest: all of them are on the first page.
        wanted, said = sorted(part.found, key=int, reverse=True)[:limit], ""
        if part.cursor is not None or len(part.found) > limit:
            said = _("%d messages in flight were looked at, not all; an id or a key finds each.")
            said %= part.seen
    return in_flight.hits(wanted, filter.matches), said


def ids_of_key(key: str) -> list[str]:
    """Messages of the calls with this key, of every system, while Redis keeps the key."""
    owners = Biz.objects.values_list("pk", flat=True)
    calls = store.first_calls([(biz, key) for biz in owners])
    return [id for call in calls if call for id in call.ids]
