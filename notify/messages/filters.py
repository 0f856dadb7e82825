"""What a person may narrow a search or a bulk action of Notify by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.utils.translation import gettext as _

from msgplatform.api import filters
from msgplatform.core.errors import InvalidInput
from notify.models import BizReceive


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
    answer: str | None = None
    since: int | None = None
    until: int | None = None
    text: str | None = None
    ids: tuple[int, ...] | None = None


def parse(given: Mapping[str, Any], allowed: Iterable[str], required: Iterable[str] = ()) -> Filter:
    """Raises InvalidInput naming the field. Empty texts count as not given."""
    return Filter(**filters.values(given, _READERS, allowed, required))


def _subscription(text: str, field: str) -> int:
    """By its id, or by system and consumer: orders/warehouse."""
    biz, slash, receive = text.partition("/")
    if not slash:
        return filters.number(text, field)
    rows = BizReceive.objects.filter(biz__name=biz.strip(), receive__name=receive.strip())
    found = rows.values_list("id", flat=True).first()
    if found is None:
        raise InvalidInput(_("there is no such subscription; use system/consumer or its id"), field)
    return found


_READERS = {**filters.READERS, "subscription": _subscription}
FIELDS = tuple(field.name for field in fields(Filter))
