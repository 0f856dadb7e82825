"""How leads and records are found: indexes, conditions, checks; and the messages of CRM sync as a
whole.

A search lists leads. It lists records, also of other sources, if its filter asks for records or
only for states at a CRM.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.db.models import BooleanField, ExpressionWrapper, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact
from django.utils.translation import gettext as _, gettext_lazy
from msgspec.structs import replace

from crmsync import lead_fields, orders
from crmsync.messages import lines, policies
from crmsync.messages.fields import FIELDS, NO_CRM, NO_POLICY, OF_LEADS, OF_RECORDS
from crmsync.messages.lines import RECORD
from crmsync.messages.page import page
from crmsync.messages.policies import Policies
from crmsync.messages.states import ENDED, UNSOLVED
from crmsync.models import Lead, Operation, Record, RecoveryEntry
from crmsync.models.operations import UNKNOWN
from msgplatform.core.data import engines, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.messages import (
    BY_ID,
    MAX_SORTED,
    Check,
    Index,
    MessageStore,
    Reader,
    Source,
    Values,
    few,
    merged,
    named,
    ordered,
    read_ids,
)
from msgplatform.messages import filters
from msgplatform.messages.engine import exact_id

_State = Record.State
# Most records are confirmed, without an error.
_RARE_STATES = [state for state in _State if state != _State.CONFIRMED]


# -- records of every source, by their state at a CRM ----------------------------------------------
def _records(policies_by_id: Policies) -> Source:
    def of_system(values: Values, ids: Sequence[int]) -> set[int]:
        """A business system has the records of its leads and the records of its own policies."""
        hive = set(policies.of_hive(policies_by_id))
        rows = list(Record.objects.filter(id__in=ids).values_list("id", "policy_id", "key"))
        keys = [policies.lead_of(key) for _pk, policy, key in rows if policy in hive]
        leads = Lead.objects.filter(id__in=[key for key in keys if key is not None])
        lead_ids = set(leads.filter(biz_id=values["biz"]).order_by().values_list("id", flat=True))
        # A policy of the hive carries the leads of all systems: the lead decides.
        of_leads = {
            pk for pk, policy, key in rows if policy in hive and policies.lead_of(key) in lead_ids
        }
        own_policies = {pk for pk in policies_by_id if policies_by_id[pk].biz_id == values["biz"]}
        return of_leads | {pk for pk, policy, _key in rows if policy in own_policies - hive}

    def in_state(values: Values) -> QuerySet[Any, int]:
        return _in_state(values, policies_by_id).values_list("id", flat=True)

    def with_error(values: Values) -> QuerySet[Any, int]:
        return _with_error(values, policies_by_id).values_list("id", flat=True)

    return Source(
        rows=Record.objects.all,
        lines=lambda ids: lines.of_records(ids, policies_by_id),
        indexes=[
            named(("record",), lambda values: [values["record"]]),
            ordered("remote_id"),
            ordered("record_key"),
            Index(("operation",), lambda _source, values: read_ids(
                _of_operation(values["operation"], policies_by_id), values
            ), is_shared=True),
            few(("state",), in_state, decides=("state", "crm", "policy")),
            few(("error_class",), with_error, decides=()),
        ],
        conditions=_conditions(policies_by_id),
        checks=[Check(("biz",), of_system)],
    )  # fmt: skip


def _lead_indexes(policies_by_id: Policies) -> list[Index]:
    """Indexes that find the ids of leads by their records."""

    hive = {pk: policies_by_id[pk] for pk in policies.of_hive(policies_by_id)}

    def index(field: str, rows: Callable[[Values, Policies], QuerySet[Record]]) -> Index:
        def open_reader(_source: Source, values: Values) -> Reader | None:
            if values.get("state") == _State.CONFIRMED and field != "remote_id":
                return None
            records = rows(values, hive).order_by()
            keys = list(records.values_list("key", flat=True)[: MAX_SORTED + 1])
            lead_ids = [pk for key in keys if (pk := policies.lead_of(key)) is not None]
            return read_ids(lead_ids, values) if len(keys) <= MAX_SORTED else None

        return Index((field,), open_reader, (), is_shared=True)

    return [
        index("remote_id", lambda values, _: Record.objects.filter(remote_id=values["remote_id"])),
        index("state", _in_state),
        index("error_class", _with_error),
    ]


def _conditions(policies_by_id: Policies) -> dict[str, str | Callable[[Any], Q]]:
    return {
        "record_key": "key",
        "state": "state",
        "error_class": _has_error,
        "remote_id": "remote_id",
        "policy": "policy_id",
        "crm": lambda crm: Q(policy_id__in=policies.matching(policies_by_id, {"crm": crm})),
        "operation": lambda pk: Q(id__in=_of_operation(pk, policies_by_id)),
    }


def _in_state(values: Values, policies_by_id: Policies) -> QuerySet[Record]:
    policy_ids = policies.matching(policies_by_id, values)
    return Record.objects.filter(policy_id__in=policy_ids, state=values["state"])


def _with_error(values: Values, policies_by_id: Policies) -> QuerySet[Record]:
    policy_ids = policies.matching(policies_by_id, values)
    return Record.objects.filter(policy_id__in=policy_ids, state__in=_RARE_STATES)


def _has_error(error_class: str) -> Q:
    """True for records with this error class. Dead and dismissed records that are to be looked up
    count too: their newest entry has the class."""
    entries = RecoveryEntry.objects.filter(record_id=OuterRef("pk"), state__in=UNSOLVED)
    reason = Subquery(entries.order_by("-id").values("error_class")[:1])
    is_checked = Q(state__in=ENDED, error_class=UNKNOWN)
    # A record without an entry was dismissed by the erasure of its person.
    reason_text = Coalesce(reason, Value(UNKNOWN))
    return Q(error_class=error_class) & ~is_checked | is_checked & Q(
        Exact(reason_text, error_class)
    )


def _of_operation(operation_id: int, policies_by_id: Policies) -> list[int]:
    """The records whose requests an operation holds."""
    operation = Operation.objects.filter(id=operation_id).first()
    if operation is None or operation.policy_id not in policies_by_id:
        return []
    prefix = policies_by_id[operation.policy_id].key_prefix
    keys = [request.key.removeprefix(prefix) for request in orders.load(bytes(operation.data))]
    rows = Record.objects.filter(policy_id=operation.policy_id, key__in=keys)
    return list(rows.order_by().values_list("id", flat=True))


# -- leads ----------------------------------------------------------------------------------------
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
        hive = policies.of_hive(policies_by_id)
        rows = Record.objects.filter(policy_id__in=hive, key__in=list(keys)).order_by()
        # As in the engine, conditions are columns, not WHERE.
        conditions, fits = _conditions(policies_by_id), Q()
        for name in OF_RECORDS:
            if name in values:
                column = conditions[name]
                fits &= column(values[name]) if callable(column) else Q(**{column: values[name]})
        columns = rows.values_list("key", ExpressionWrapper(fits, BooleanField()))
        return {keys[key] for key, is_matching in columns if is_matching}

    return Source(
        rows=Lead.objects.all,
        lines=lambda ids: lines.of_leads(ids, policies_by_id),
        indexes=[
            BY_ID,
            merged(("phone",), _of_phones),
            ordered("uid"),
            *_lead_indexes(policies_by_id),
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
        return [_records(policies_by_id)]
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
