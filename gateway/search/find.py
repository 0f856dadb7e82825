"""Find messages, newest first: in the archive by its indexes, in Redis by id and idempotency key.

What no index narrows (system, reference, key) is asked of a bounded number of rows a page; the
cursor goes on from there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gateway.connections import sms_redis
from gateway.lifecycle import keys, store
from gateway.models import SgipMt
from gateway.search.filters import Filter, parse
from msgplatform.api.filters import MAX_ID, number
from msgplatform.core.connections import RedisError
from msgplatform.core.data.scan import Candidates, scan
from msgplatform.core.flows import Found, Hit, Text
from msgplatform.models import Biz

FIELDS: Mapping[str, Text] = {
    "id": gettext_lazy("A message's id"),
    "number": gettext_lazy("The recipient, with or without 86"),
    "key": gettext_lazy("Idempotency key"),
    "reference": gettext_lazy("The sender's own reference"),
    "biz": gettext_lazy("Name or id of a business system"),
    "account": gettext_lazy("An account's name"),
    "state": gettext_lazy("delivered, failed, expired, unknown or accepted"),
    "since": gettext_lazy("Accepted at this time or later: 2026-11-20 14:30"),
    "until": gettext_lazy("Accepted before this time"),
}
BATCH = 2000  # rows of one query, when most of them may not fit
SCANNED = 10_000  # rows that one page looks at
_SHOWN_TEXT = 40


def search(query: str, limit: int) -> list[Hit]:
    """By message id, recipient, idempotency key or reference; newest first."""
    query = query.strip()
    if not query or "\x00" in query:
        return []
    # The most telling meaning first: an id is also digits, as a number is, and a key may be both.
    asked = [Filter(key=query), Filter(reference=query)]
    if query.isascii() and query.lstrip("+").isdigit():
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
    before = number(cursor, "cursor") if cursor else MAX_ID
    return _run(filter, before, limit)


def _run(filter: Filter, before: int, limit: int) -> Found:
    problem = ""
    try:
        # All on the first page: they are few, and no cursor could follow them.
        live = _live(filter) if before == MAX_ID else []
    except RedisError:
        live, problem = [], _("The SMS Redis does not answer: only the archive was searched.")
    taken = {int(hit.id) for hit in live}
    page = scan(partial(_page, filter, limit, taken), before, limit, SCANNED)
    rows = list(SgipMt.objects.filter(id__in=page.ids))
    names = _names({row.biz_id for row in rows})
    archived = [
        Hit(
            id=str(row.pk),
            title=_title(row.user_number, row.text),
            state=_("%s (archived)") % row.get_final_display(),
            at=row.accepted_at,
            biz=names.get(row.biz_id, str(row.biz_id)),
        )
        for row in rows
    ]
    hits = sorted([*live, *archived], key=lambda hit: int(hit.id), reverse=True)
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


def _live(filter: Filter) -> list[Hit]:
    """What Redis knows by id or by key; the rest of the filter holds for it too."""
    if filter.id is not None:
        wanted = [str(filter.id)]
    elif filter.key is not None:
        wanted = ids_of_key(filter.key)
    else:
        return []
    rows = [found for found in store.read(wanted) if filter.matches(found)]
    names = _names({found.mt.biz for found in rows})
    return [
        Hit(
            id=found.mt.id,
            title=_title(found.mt.user_number, found.mt.text),
            state=str(SgipMt.Final(found.final).label) if found.final else _(found.state),
            at=datetime.fromtimestamp(found.accepted_at, UTC),
            biz=names.get(found.mt.biz, str(found.mt.biz)),
        )
        for found in rows
    ]


def ids_of_key(key: str, bizs: Iterable[int] | None = None) -> list[str]:
    """Messages of the calls with this key, of every system, while Redis keeps the key."""
    owners = list(Biz.objects.values_list("pk", flat=True) if bizs is None else bizs)
    names = [keys.idempotency(biz, key) for biz in owners]
    rows: Any = sms_redis().mget(names) if names else ()
    return [id for row in rows if row for id in msgspec.json.decode(row, type=store.First).ids]


def _names(bizs: set[int]) -> dict[int, str]:
    return {biz.pk: str(biz) for biz in Biz.objects.filter(pk__in=bizs)} if bizs else {}


def _title(number: str, text: str) -> str:
    cut = text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"
    return f"{number} · {cut}"
