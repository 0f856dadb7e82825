"""The filter by which a person narrows a bulk action of CRM sync."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from crmsync.models import Policy
from crmsync.search.filters import crm
from msgplatform.api import filters
from msgplatform.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Filter:
    """Values, None where nothing was asked. Times are aware: since <= time < until."""

    crm: int | None = None
    policy: int | None = None
    error_class: str | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ids: tuple[int, ...] | None = None


def parse(given: Mapping[str, Any], allowed: Iterable[str]) -> Filter:
    """Raises InvalidInput naming the field. Empty texts count as not given."""
    return Filter(**filters.values(given, _READERS, allowed))


def policy(text: str, field: str) -> int:
    """By its id, or by source and CRM: hive/sales."""
    source, slash, crm = filters.searchable(text, field).rpartition("/")
    if not slash:
        return filters.number(text, field)
    rows = Policy.objects.filter(source__name=source.strip(), crm__name=crm.strip())
    found = rows.values_list("id", flat=True).first()
    if found is None:
        raise InvalidInput(_("there is no such policy; use source/CRM or its id"), field)
    return found


_READERS = {
    **filters.READERS,
    "crm": crm,
    "policy": policy,
    "since": filters.moment,
    "until": filters.moment,
}
