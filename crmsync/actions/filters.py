"""The filter by which a person narrows a bulk action of CRM sync."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from crmsync.messages.index import read_crm
from crmsync.models import Policy
from msgplatform.api import filters
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import MAX_OPTIONS, FilterField, Option


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


def _policies(typed: str) -> Sequence[Option]:
    """By a part of the name of the source or the CRM; also hive/sa."""
    rows = Policy.objects.select_related("source", "crm")
    source, slash, crm_name = typed.rpartition("/")
    if slash:
        rows = rows.filter(source__name__icontains=source.strip())
        rows = rows.filter(crm__name__icontains=crm_name.strip())
    else:
        rows = rows.filter(Q(source__name__icontains=typed) | Q(crm__name__icontains=typed))
    names = rows.order_by("source__name", "crm__name").values_list("source__name", "crm__name")
    return [Option(f"{source}/{crm_name}") for source, crm_name in names[:MAX_OPTIONS]]


POLICY = FilterField(
    gettext_lazy("Policy"),
    gettext_lazy("Type a part of its source or CRM"),
    "name",
    options=_policies,
)
_READERS = {
    **filters.READERS,
    "crm": read_crm,
    "policy": policy,
    "since": filters.moment,
    "until": filters.moment,
}
