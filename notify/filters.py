"""What a person may narrow a search or a bulk action by: texts from a form into values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, time
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _

from msgplatform.core import ids as id_numbers
from msgplatform.core.errors import InvalidInput
from msgplatform.models import Biz
from notify.models import BizReceive

MAX_ID = 2**63 - 1
MAX_SELECTION = 500


@dataclass(frozen=True, slots=True)
class Filter:
    """Values, None where nothing was asked. Times are message ids: since <= id < until."""

    id: int | None = None
    key: str | None = None
    biz: int | None = None
    subscription: int | None = None
    event_type: str | None = None
    channel: str | None = None
    status: str | None = None
    since: int | None = None
    until: int | None = None
    text: str | None = None
    ids: tuple[int, ...] | None = None


def parse(given: Mapping[str, Any], allowed: Iterable[str], required: Iterable[str] = ()) -> Filter:
    """Raises InvalidInput naming the field. Empty texts count as not given."""
    texts = {name: str(value).strip() for name, value in given.items()}
    if unknown := texts.keys() - set(allowed):
        known = ", ".join(allowed)
        raise InvalidInput(_("unknown filter; use %s") % known, sorted(unknown)[0])
    texts = {name: text for name, text in texts.items() if text}
    for name in required:
        if name not in texts:
            raise InvalidInput(_("this one is needed"), name)
    return Filter(**{name: _READERS.get(name, _text)(text, name) for name, text in texts.items()})


def number(text: str, field: str = "id") -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_ID):
        raise InvalidInput(_("use the id, a whole number"), field)
    return int(text)


def moment(text: str, field: str) -> datetime:
    """A time as people write it, in the time zone in which they see times."""
    try:
        found = parse_datetime(text)
        if found is None and (day := parse_date(text)):
            found = datetime.combine(day, time())
    except ValueError:
        found = None
    if found is None:
        raise InvalidInput(_("use a time such as 2026-11-20 14:30, or a day"), field)
    return timezone.make_aware(found) if timezone.is_naive(found) else found


def _first_id(text: str, field: str) -> int:
    return min(id_numbers.first_id_at(moment(text, field)), MAX_ID)


def _selection(text: str, field: str) -> tuple[int, ...]:
    parts = text.replace(",", " ").split()
    if len(parts) > MAX_SELECTION:
        raise InvalidInput(_("at most %d at once") % MAX_SELECTION, field)
    return tuple(sorted({number(part, field) for part in parts}))


def _biz(text: str, field: str) -> int:
    """By its id or its name."""
    if text.isascii() and text.isdigit():
        return number(text, field)
    found = Biz.objects.filter(name=text).values_list("id", flat=True).first()
    if found is None:
        raise InvalidInput(_("no business system has this name; use its name or its id"), field)
    return found


def _subscription(text: str, field: str) -> int:
    """By its id, or by system and consumer: orders/warehouse."""
    biz, slash, receive = text.partition("/")
    if not slash:
        return number(text, field)
    rows = BizReceive.objects.filter(biz__name=biz.strip(), receive__name=receive.strip())
    found = rows.values_list("id", flat=True).first()
    if found is None:
        raise InvalidInput(_("there is no such subscription; use system/consumer or its id"), field)
    return found


def _text(text: str, field: str) -> str:
    if "\x00" in text:
        raise InvalidInput(_("this character cannot be searched for"), field)
    return text


_READERS: dict[str, Any] = {
    "id": number,
    "biz": _biz,
    "subscription": _subscription,
    "since": _first_id,
    "until": _first_id,
    "ids": _selection,
}
FIELDS = tuple(field.name for field in fields(Filter))
