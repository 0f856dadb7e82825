"""How leads are found: indexes, conditions, checks; and the messages of CRM sync as a whole.

A search lists leads. It lists records, also of other sources, if its filter asks for records or
only for states at a CRM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from crmsync import lead_fields
from crmsync.messages import lines, policies, records
from crmsync.messages.fields import FIELDS, NO_CRM, NO_POLICY, OF_LEADS, OF_RECORDS
from crmsync.messages.lines import RECORD
from crmsync.messages.page import page
from crmsync.messages.policies import Policies
from crmsync.models import Lead, Record
from msgplatform.core.data import engines, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.messages import (
    BY_ID,
    Check,
    MessageStore,
    Source,
    Values,
    few,
    merged,
    ordered,
)
from msgplatform.messages import filters
from msgplatform.messages.engine import exact_id

# For the console only: keys of leads are their ids, and operations are the operator's.
_NOT_IN_API = ("operation", "record_key", "rows")


def _of_phones(rows: QuerySet[Any], values: Values) -> Sequence[QuerySet[Any]]:
    return [sql.of_one(rows, "phone", form).order_by("-phone", "-id") for form in values["phone"]]


def _name_begins(prefix: str) -> Q:
    return Q(**engines.of().begins_with("name", prefix))


def _with_name(values: Values) -> QuerySet[Any, int]:
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
    def with_record(values: Values, ids: Sequence[int]) -> set[int]:
        # A record of the hive has its lead's id as key.
        keys = {policies.key_of(pk): pk for pk in ids}
        rows = Record.objects.filter(
            policy_id__in=policies.of_hive(policies_by_id), key__in=list(keys)
        )
        return {keys[key] for key in records.matching_keys(rows, values, policies_by_id)}

    return Source(
        rows=Lead.objects.all,
        lines=lambda ids: lines.of_leads(ids, policies_by_id),
        indexes=[
            BY_ID,
            merged(("phone",), _of_phones),
            ordered("uid"),
            *records.lead_indexes(policies_by_id),
            ordered("appkey"),
            few(("name",), _with_name),
            ordered("biz"),
        ],
        conditions={
            "id": "id",
            "phone": "phone__in",
            "uid": "uid",
            "appkey": "appkey",
            "biz": "biz_id",
            "name": _name_begins,
            "deleted": "is_delete",
        },
        checks=[Check(OF_RECORDS, with_record), Check(("text",), _with_text)],
    )


def _sources(values: Values) -> list[Source]:
    policies_by_id = policies.by_id()
    asks_leads = any(name in values for name in (*OF_LEADS, "text"))
    asks_records = any(name in values for name in (*OF_RECORDS, "rows"))
    if asks_records and not asks_leads:
        return [records.source(policies_by_id)]
    return [_leads(policies_by_id)]


def _check(values: Values) -> None:
    if "rows" in values and any(name in values for name in OF_LEADS):
        raise InvalidInput(_("records are not found by fields of a lead"), "rows")


def _check_of_system(values: Values) -> None:
    """Raises InvalidInput for a CRM or a policy that carries no lead of this business system, as if
    it did not exist: a key must not learn of other systems' CRMs."""
    for name, problem in (("crm", NO_CRM), ("policy", NO_POLICY)):
        if name in values:
            rows = policies.by_id()
            ids = policies.matching(rows, values)
            if not any(rows[pk].biz_id in (None, values["biz"]) for pk in ids):
                raise InvalidInput(str(problem), name)


def _readings(query: str, personal: bool) -> Iterator[Values]:
    """The id of a lead or an operation, a uid, an id in a CRM, a key or an APPKEY; if `personal`
    also a phone number or the beginning of a name."""
    yield from exact_id(query)
    if personal:
        with suppress(InvalidInput):
            yield {"phone": lead_fields.phone_forms(query)}
    yield from ({name: query} for name in ("uid", "remote_id", "record_key", "appkey"))
    with suppress(InvalidInput):
        yield {"operation": filters.number(query)}
    if personal:
        yield {"name": query}


def _id_readings(id: str) -> Iterator[Values]:
    """As `page` reads it."""
    if not id.startswith(RECORD):
        yield from exact_id(id)
        return
    with suppress(InvalidInput):
        yield {"rows": "records", "record": filters.number(id.removeprefix(RECORD))}


def _rows(biz: int, ids: Sequence[int]) -> dict[int, Lead]:
    rows = Lead.objects.filter(id__in=ids, biz_id=biz).order_by("-id")
    return {lead.pk: lead for lead in rows}


MESSAGES = MessageStore(
    fields=FIELDS,
    sources=_sources,
    readings=_readings,
    id_readings=_id_readings,
    page=page,
    check=_check,
    searched_text_label=gettext_lazy("names and fields of leads"),
)
# The leads of a business system, for the API.
LEADS = replace(
    MESSAGES,
    fields={name: field for name, field in FIELDS.items() if name not in _NOT_IN_API},
    sources=lambda _values: [_leads(policies.by_id())],
    check=_check_of_system,
    records=_rows,
)
