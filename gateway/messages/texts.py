"""Short messages by what stands in them: first those in Redis, then the archive.

A cursor is `redis:<where its walk goes on>:<looked at>`, then the id below which the archive is
searched, after `archive-only:` when Redis did not answer. Redis comes first: what is archived
meanwhile is found in the archive.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from gateway.lifecycle.messages import Mt
from gateway.messages import in_flight
from gateway.messages.filters import read_number
from gateway.messages.hits import archived
from gateway.models import SgipMt
from msgplatform.api.filters import MAX_ID, number, searchable
from msgplatform.core.connections import RedisError
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import TextFound
from msgplatform.messages.scan import Candidates, scan

_HITS = 50  # of one piece
_BATCH = 500
_REDIS, _ARCHIVE_ONLY = "redis:", "archive-only:"


def search_text(query: str, since: datetime, cursor: str, seconds: float) -> TextFound:
    """Messages in Redis by their number, reference or text; those that were accepted since then by
    their reference or text."""
    query = searchable(query, "text")
    if not cursor or cursor.startswith(_REDIS):
        try:
            return _in_redis(query, cursor, seconds)
        except RedisError:
            cursor = f"{_ARCHIVE_ONLY}{MAX_ID}"
    missing = ""
    if cursor.startswith(_ARCHIVE_ONLY):
        cursor = cursor.removeprefix(_ARCHIVE_ONLY)
        missing = _("The SMS Redis does not answer: messages in flight are missing.")
    oldest = id_numbers.first_id_at(since)

    def batch(before: int) -> Candidates:
        rows = SgipMt.objects.filter(id__lt=before, id__gte=oldest).order_by("-id")
        read = list(rows.values_list("id", "text", "reference")[:_BATCH])
        judged = [(pk, query in text or query == reference) for pk, text, reference in read]
        return Candidates(judged, len(read) < _BATCH)

    page = scan(batch, number(cursor, "cursor"), _HITS, MAX_ID, seconds)
    found = page.texts_found(archived(page.ids), missing)
    if missing and found.cursor:
        return replace(found, cursor=_ARCHIVE_ONLY + found.cursor)
    return found


def _in_redis(query: str, cursor: str, seconds: float) -> TextFound:
    begin, _colon, seen = cursor.removeprefix(_REDIS).partition(":")
    wanted_number = ""
    with suppress(InvalidInput):
        wanted_number = read_number(query, "number")

    def wanted(mt: Mt, _final: str) -> bool:
        return query in mt.text or query == mt.reference or wanted_number == mt.user_number

    at = number(begin, "cursor") if begin else 0
    part = in_flight.walk(wanted, at, seconds, _HITS)
    looked_at = part.seen + (number(seen, "cursor") if seen else 0)
    following = str(MAX_ID) if part.cursor is None else f"{_REDIS}{part.cursor}:{looked_at}"
    looked = ngettext(
        "%d message in flight was looked at.", "%d messages in flight were looked at.", looked_at
    )
    return TextFound(in_flight.hits(part.found), following, looked % looked_at)
