"""How leads and records are found: fields, indexes, conditions, lines.

A search goes over leads when the filter says something about a lead (such as a phone number), and
over records, those of other sources too, when it only asks how they are doing at a CRM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.db import connection
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from crmsync import lead_fields, orders
from crmsync.messages import lines, policies
from crmsync.messages.policies import Policies
from crmsync.messages.reasons import ERROR_CLASSES
from crmsync.messages.timeline import page
from crmsync.models import Crm, Lead, Operation, Record
from msgplatform.api import filter_fields, filters
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Fields, FilterField, MessageStore, Option
from msgplatform.core.flows.messages import (
    BY_ID,
    Check,
    Index,
    Source,
    Values,
    few,
    ordered,
    read_ids,
)
from msgplatform.messages.engine import exact_id

STATES = {state.name.lower(): state for state in Record.State}
_OF_LEADS = ("id", "phone", "name", "uid", "appkey")
_OF_RECORDS = ("record_key", "crm", "state", "error_class", "operation", "remote_id")
_LAST = "\U0010ffff"  # sorts behind every other character


# -- fields --------------------------------------------------------------------------------------
def read_crm(text: str, field: str) -> int:
    """A CRM's name, or its id."""
    return filters.id_of(Crm.objects.all(), text, field, _("there is no CRM of this name"))


def _read_state(text: str, field: str) -> int:
    if text not in STATES:
        raise InvalidInput(_("use one of %s") % ", ".join(STATES), field)
    return STATES[text]


def _crms(text: str) -> Sequence[Option]:
    rows = Crm.objects.filter(name__icontains=text).order_by("name")
    return [Option(name, adapter) for name, adapter in rows.values_list("name", "adapter")]


CRM = FilterField(
    gettext_lazy("CRM"),
    gettext_lazy("Type a part of its name"),
    "name",
    options=_crms,
    read=read_crm,
)
ERROR_CLASS = filter_fields.choice(
    gettext_lazy("Error class"), ERROR_CLASSES.items(), gettext_lazy("Why it failed at a CRM")
)
FIELDS: Fields = {
    "id": filter_fields.message_id(gettext_lazy("A lead's id")),
    "phone": FilterField(
        gettext_lazy("Phone"),
        gettext_lazy("The whole number: 13800000000 or +44 20 7946 0000"),
        personal=True,
        read=lead_fields.clean_phone,
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
        read=_read_state,
    ),
    "error_class": ERROR_CLASS,
    "operation": FilterField(
        gettext_lazy("Operation"),
        gettext_lazy("Everything that an operation was to send: its id"),
        read=filters.number,
    ),
    "remote_id": FilterField(gettext_lazy("Id in the CRM"), gettext_lazy("A record's id in a CRM")),
    "record_key": FilterField(
        gettext_lazy("Record key"), gettext_lazy("A record's key in its source")
    ),
    "since": filter_fields.since(gettext_lazy("Stored, or read for a CRM, at this time or later")),
    "until": filter_fields.until(gettext_lazy("Stored, or read for a CRM, before this time")),
}


# -- leads ---------------------------------------------------------------------------------------
def _name_begins(prefix: str) -> Q:
    if connection.vendor == "mysql":
        return Q(name__istartswith=prefix)  # LIKE; `startswith` compares bytes
    return Q(name__gte=prefix, name__lt=prefix + _LAST)


def _named(values: Values) -> QuerySet[Any, int]:
    """Leads whose name begins so, read from the index on names."""
    return Lead.objects.filter(_name_begins(values["name"])).values_list("id", flat=True)


def _with_text(values: Values, ids: Sequence[int]) -> set[int]:
    rows = Lead.objects.filter(id__in=ids).order_by()
    columns = ("id", "name", "phone", "uid", "extra")
    return {
        pk
        for pk, *texts, extra in rows.values_list(*columns)
        if any(values["text"] in text for text in (*texts, *map(str, extra.values())))
    }


def _leads(policies_by_id: Policies) -> Source:
    def of_records(values: Values, ids: Sequence[int]) -> set[int]:
        # Records of the hive have their lead's id as key.
        keys = {policies.key_of(pk): pk for pk in ids}
        rows = Record.objects.filter(
            policy_id__in=policies.of_hive(policies_by_id), key__in=list(keys)
        )
        record_values = {name: value for name, value in values.items() if name in _OF_RECORDS}
        return {keys[key] for key in _matching_keys(rows, record_values, policies_by_id)}

    return Source(
        rows=Lead.objects.all,
        lines=lambda ids: lines.of_leads(ids, policies_by_id),
        indexes=[
            BY_ID,
            ordered("phone"),
            ordered("uid"),
            ordered("appkey"),
            few(("name",), _named),
            ordered("biz"),
        ],
        conditions={
            "id": "id",
            "phone": "phone",
            "uid": "uid",
            "appkey": "appkey",
            "biz": "biz_id",
            "name": _name_begins,
        },
        checks=[Check(_OF_RECORDS, of_records), Check(("text",), _with_text)],
    )


# -- records -------------------------------------------------------------------------------------
def of_operation(operation_id: int, policies_by_id: Policies) -> list[int]:
    """The records whose requests an operation holds, descending."""
    operation = Operation.objects.filter(id=operation_id).first()
    if operation is None or operation.policy_id not in policies_by_id:
        return []
    prefix = policies_by_id[operation.policy_id].key_prefix
    keys = [request.key.removeprefix(prefix) for request in orders.load(bytes(operation.data))]
    rows = Record.objects.filter(policy_id=operation.policy_id, key__in=keys)
    return list(rows.order_by("-id").values_list("id", flat=True))


def _conditions(policies_by_id: Policies) -> dict[str, str | Callable[[Any], Q]]:
    return {
        "record_key": "key",
        "state": "state",
        "error_class": "error_class",
        "remote_id": "remote_id",
        "crm": lambda crm: Q(policy_id__in=policies.of_crm(policies_by_id, crm)),
        "operation": lambda pk: Q(id__in=of_operation(pk, policies_by_id)),
    }


def _matching_keys(rows: QuerySet[Record], values: Values, policies_by_id: Policies) -> list[str]:
    """The keys of the records that match, checked as the engine does: never as WHERE."""
    conditions, fits = _conditions(policies_by_id), Q()
    for name, value in values.items():
        column = conditions[name]
        fits &= column(value) if callable(column) else Q(**{column: value})
    columns = rows.order_by().values_list("key", ExpressionWrapper(fits, BooleanField()))
    return [key for key, is_matching in columns if is_matching]


def _records(policies_by_id: Policies) -> Source:
    def in_state(values: Values) -> QuerySet[Any, int]:
        rows = Record.objects.filter(
            policy_id__in=policies.of_crm(policies_by_id, values.get("crm"))
        )
        return rows.filter(state=values["state"]).values_list("id", flat=True)

    def of_system(values: Values, ids: Sequence[int]) -> set[int]:
        """To a business system belong the records of its leads, and those of its own policies."""
        hive = set(policies.of_hive(policies_by_id))
        rows = list(Record.objects.filter(id__in=ids).values_list("id", "policy_id", "key"))
        keys = [policies.lead_of(key) for _pk, policy, key in rows if policy in hive]
        leads = Lead.objects.filter(id__in=[key for key in keys if key is not None])
        lead_ids = set(leads.filter(biz_id=values["biz"]).order_by().values_list("id", flat=True))
        return {
            pk
            for pk, policy, key in rows
            if (
                # A policy of all systems carries the leads of each of them.
                policies.lead_of(key) in lead_ids
                if policy in hive
                else policies_by_id[policy].biz_id == values["biz"]
            )
        }

    return Source(
        rows=Record.objects.all,
        lines=lambda ids: lines.of_records(ids, policies_by_id),
        indexes=[
            ordered("remote_id"),
            ordered("record_key"),
            Index(("operation",), lambda _source, values: read_ids(
                of_operation(values["operation"], policies_by_id), values
            )),
            few(("state",), in_state, decides=("state", "crm")),
        ],
        conditions=_conditions(policies_by_id),
        checks=[Check(("biz",), of_system)],
    )  # fmt: skip


def _sources(values: Values) -> list[Source]:
    policies_by_id = policies.by_id()
    asks_leads = any(name in values for name in (*_OF_LEADS, "text"))
    asks_records = any(name in values for name in _OF_RECORDS)
    return [_records(policies_by_id) if asks_records and not asks_leads else _leads(policies_by_id)]


def _readings(query: str, personal: bool) -> Iterator[Values]:
    """A lead's or an operation's id, a uid, an id in a CRM, a key or an APPKEY, and if `personal` a
    phone number or the beginning of a name."""
    yield from exact_id(query)
    if personal:
        with suppress(InvalidInput):
            yield {"phone": lead_fields.clean_phone(query, "phone")}
    yield from ({name: query} for name in ("uid", "remote_id", "record_key", "appkey"))
    with suppress(InvalidInput):
        yield {"operation": filters.number(query)}
    if personal:
        yield {"name": query}


MESSAGES = MessageStore(
    fields=FIELDS,
    sources=_sources,
    readings=_readings,
    page=page,
    searched_text_label=gettext_lazy("names and fields of leads"),
)
