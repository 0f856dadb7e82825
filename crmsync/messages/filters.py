"""The filter by which a person narrows a search of CRM sync."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from crmsync import lead_fields
from crmsync.messages.reasons import ERROR_CLASSES
from crmsync.models import Crm, Record
from msgplatform.api import filter_fields, filters
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import FilterField, Option

STATES = {state.name.lower(): state for state in Record.State}


@dataclass(frozen=True, slots=True)
class Filter:
    """Values, None where nothing was asked. Times are ids: since <= id < until."""

    id: int | None = None
    phone: str | None = None
    name: str | None = None
    uid: str | None = None
    appkey: str | None = None
    biz: int | None = None
    record_key: str | None = None
    crm: int | None = None
    state: int | None = None
    error_class: str | None = None
    operation: int | None = None
    remote_id: str | None = None
    since: int | None = None
    until: int | None = None

    @property
    def asks_leads(self) -> bool:
        """Whether only leads of the hive can match."""
        asked = (self.id, self.phone, self.name, self.uid, self.appkey)
        return any(value is not None for value in asked)

    @property
    def asks_records(self) -> bool:
        asked = (
            self.record_key, self.crm, self.state, self.error_class, self.operation, self.remote_id,
        )  # fmt: skip
        return any(value is not None for value in asked)

    @property
    def lists_records(self) -> bool:
        """Whether the search goes over records, so that those of other sources are found too."""
        return self.asks_records and not self.asks_leads


def parse(given: Mapping[str, Any], allowed: Iterable[str]) -> Filter:
    """Raises InvalidInput naming the field. Empty texts count as not given."""
    return Filter(**filters.values(given, _READERS, allowed))


def crm(text: str, field: str) -> int:
    """A CRM's name, or its id."""
    return filters.id_of(Crm.objects.all(), text, field, _("there is no CRM of this name"))


def _state(text: str, field: str) -> int:
    if text not in STATES:
        raise InvalidInput(_("use one of %s") % ", ".join(STATES), field)
    return STATES[text]


def _crms(typed: str) -> Sequence[Option]:
    rows = Crm.objects.filter(name__icontains=typed).order_by("name")
    return [Option(name, adapter) for name, adapter in rows.values_list("name", "adapter")]


CRM = FilterField(
    gettext_lazy("CRM"), gettext_lazy("Type a part of its name"), "name", options=_crms
)
ERROR_CLASS = filter_fields.choice(
    gettext_lazy("Error class"), ERROR_CLASSES.items(), gettext_lazy("Why it failed at a CRM")
)
_READERS = {
    **filters.READERS,
    "phone": lead_fields.clean_phone,
    "crm": crm,
    "state": _state,
    "operation": filters.number,
}
