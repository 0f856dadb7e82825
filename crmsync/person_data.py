"""A person's data in CRM sync: leads, and their values in records, operations and logs.

A lead is the person's by its own fields. Another lead, or a request about it, may merely name the
person. Then only the number or the address is erased there, and the CRMs get the changed lead.

A lead is deleted first, as its business system would do it, so that every CRM deletes its record.
When the CRMs have confirmed that, its values are erased from all that was sent, and then from its
row, which stays.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from crmsync import copies, erasure, orders
from crmsync.intake import changes
from crmsync.models import (
    ExceptionEntry,
    Item,
    Lead,
    LeadIdempotency,
    Operation,
    Policy,
    Record,
    RecoveryEntry,
    Run,
)
from crmsync.models.sources import HIVE
from crmsync.orders import Request
from msgplatform.core.data import chunks, transactions
from msgplatform.core.person.identity import Person
from msgplatform.core.person.stores import SLICE, PersonStore, Row, Slice, TextTable, text_store
from msgplatform.core.personal import MARK

_OPERATIONS = 20  # operations of one slice: each may hold hundreds of requests
_CHUNK = 500
_NO_LETTERS = re.compile(r"[\W_\d]+")
# Names of fields that identify a person, after everything but letters is removed.
_IDENTIFYING = frozenset({
    "email", "mail", "emailaddress", "phone", "phonenumber", "mobile", "mobilephone",
    "mobilenumber", "tel", "telephone", "cell", "cellphone",
    "邮箱", "手机", "手机号", "电话",
})  # fmt: skip
_EMPTY = {"uid": "", "name": "", "phone": "", "extra": {}}
_COLUMNS = ("id", "biz_id", "appkey", "uid", "name", "phone", "extra", "update_time", "is_delete")


# -- leads ---------------------------------------------------------------------------------------
def _find_leads(person: Person, cursor: str) -> Slice:
    rows = Lead.objects.filter(id__gt=int(cursor or 0)).order_by("id")
    page = list(rows.values(*_COLUMNS)[:SLICE])
    own_leads = [row for row in page if _is_lead_of(person, row)]
    records = _records_of([row["id"] for row in own_leads])
    open_keys = {record.key for record in records if _is_open(record)}
    own_rows = [
        Row(str(row["id"]), row, not row["is_delete"] or str(row["id"]) in open_keys, (row["id"],))
        for row in own_leads
    ]
    return Slice(own_rows, str(page[-1]["id"]) if len(page) == SLICE else "")


def _is_lead_of(person: Person, row: dict[str, Any]) -> bool:
    if _is_erased(row):
        return False
    return (
        row["id"] in person.leads
        or (row["biz_id"], row["uid"]) in person.users
        or person.is_identifier(row["phone"], is_named=True)
        or person.is_identifier(row["uid"])
        or any(
            person.is_identifier(value, is_named=True)
            for name, value in dict(row["extra"] or {}).items()
            if _NO_LETTERS.sub("", name.casefold()) in _IDENTIFYING
        )
    )


def _is_erased(row: Mapping[str, Any]) -> bool:
    return not any(row[name] for name in _EMPTY)


def _records_of(lead_ids: Sequence[int]) -> list[Record]:
    """The records of leads at all CRMs."""
    policies = list(Policy.objects.filter(source__name=HIVE).values_list("id", flat=True))
    records: list[Record] = []
    for page in chunks([str(lead_id) for lead_id in lead_ids], _CHUNK):
        records += Record.objects.filter(policy_id__in=policies, key__in=page).order_by("id")
    return records


def _is_open(record: Record) -> bool:
    """True until the CRM has confirmed the deletion. A deletion that the CRM refused waits for a
    person. False if somebody has dismissed the record, or the CRM never had it."""
    if record.state == Record.State.DISMISSED:
        return False
    if record.state == Record.State.DEAD:
        return _is_in_crm(record)
    return record.state != Record.State.CONFIRMED or not record.deleted


def _is_in_crm(record: Record) -> bool:
    return bool(record.remote_id or record.sent_version)


def _list_unconfirmed(person: Person) -> list[str]:
    """The CRMs that have not confirmed the deletion of each of the person's leads."""
    records = [
        record
        for record in _records_of(sorted(person.leads))
        if _is_in_crm(record) and not (record.state == Record.State.CONFIRMED and record.deleted)
    ]
    policies = Policy.objects.filter(pk__in={record.policy_id for record in records})
    return sorted(set(policies.values_list("crm__name", flat=True)))


def _delete_leads(_person: Person, rows: Sequence[Row]) -> int:
    """The first step for leads: their CRMs learn that they are deleted."""
    open_rows = [row for row in rows if row.is_open and not row.data["is_delete"]]
    return sum(changes.delete(int(row.data["biz_id"]), int(row.key)) for row in open_rows)


def _erase_leads(_person: Person, rows: Sequence[Row]) -> int:
    lead_ids = [int(row.key) for row in rows]
    _erase_records([record.pk for record in _records_of(lead_ids)])
    # Erase the leads last: the work of a killed program is found again by their values.
    leads = Lead.objects.filter(id__in=lead_ids, is_delete=True)
    return transactions.retrying(lambda: leads.update(**_EMPTY))


def _erase_records(record_ids: Sequence[int]) -> int:
    """Erase what was sent, or is to be sent, about these records; the number of requests."""
    requests = erasure.erase(record_ids).requests
    for ids_of_chunk in chunks(list(record_ids), _CHUNK):
        items = Item.objects.filter(record_id__in=ids_of_chunk).exclude(message__in=["", MARK])
        transactions.retrying(partial(items.update, message=MARK))
        entries = RecoveryEntry.objects.filter(record_id__in=ids_of_chunk)
        entries = entries.exclude(request=b"", reason__in=["", MARK])
        transactions.retrying(partial(entries.update, request=b"", reason=MARK))
    return requests


def _end_leads(_person: Person, rows: Sequence[Row]) -> int:
    """End the wait for the CRMs: erase what is on its way, and dismiss records that are dead, or
    confirmed and not deleted."""
    lead_ids = [int(row.key) for row in rows if row.data["is_delete"]]
    record_ids = [record.pk for record in _records_of(lead_ids)]
    erasure.erase(record_ids)
    records = Record.objects.filter(id__in=record_ids).filter(
        Q(state=Record.State.CONFIRMED, deleted=False) | Q(state=Record.State.DEAD)
    )
    values = {"state": Record.State.DISMISSED}
    return transactions.retrying(partial(records.update, **values)) or len(record_ids)


# -- leads of others that name the person --------------------------------------------------------
def _find_texts(person: Person, cursor: str) -> Slice:
    if not (person.phones or person.emails):
        return Slice(())
    rows = Lead.objects.filter(id__gt=int(cursor or 0)).order_by("id")
    page = list(rows.values(*_COLUMNS)[:SLICE])
    other_rows: list[Row] = []
    for row in page:
        if _is_lead_of(person, row):
            continue
        fields = {name: row[name] for name in _EMPTY if name != "extra"} | dict(row["extra"] or {})
        hits = {
            name: person.mentions(value)
            for name, value in fields.items()
            if _has_hit(person, name, value)
        }
        if hits:
            other_rows.append(Row(str(row["id"]), {"id": str(row["id"]), **hits}))
    return Slice(other_rows, str(page[-1]["id"]) if len(page) == SLICE else "")


def _has_hit(person: Person, name: str, value: Any) -> bool:
    return bool(person.erased_value({name: value}) != {name: value})


def _erase_texts(person: Person, rows: Sequence[Row]) -> int:
    return sum(_erase_text(person, page) for page in chunks([int(row.key) for row in rows], _CHUNK))


@transactions.repeatable
def _erase_text(person: Person, lead_ids: Sequence[int]) -> int:
    # Lock the row: a change of `extra` by its business system must not be lost.
    rows = Lead.objects.select_for_update().filter(id__in=lead_ids).order_by("id")
    other_leads = [row for row in rows.values(*_COLUMNS) if not _is_lead_of(person, row)]
    for row in other_leads:
        erased_fields = {name: person.erased_value(row[name]) for name in _EMPTY}
        Lead.objects.filter(id=row["id"]).update(**erased_fields)
    return len(other_leads)


# -- operations ----------------------------------------------------------------------------------
def _find_operations(person: Person, cursor: str) -> Slice:
    """Operations with requests about the person, also of rows of other sources than leads."""
    if not (person.phones or person.emails):
        return Slice(())
    rows = Operation.objects.filter(id__gt=int(cursor or 0)).order_by("id")
    page = list(rows.values_list("id", "policy_id", "data")[:_OPERATIONS])
    own_rows = [
        Row(str(pk), {"id": str(pk), "policy_id": policy_id, "requests": requests})
        for pk, policy_id, data in page
        if (requests := _requests(person, pk, policy_id, bytes(data)))
    ]
    return Slice(own_rows, str(page[-1][0]) if len(page) == _OPERATIONS else "")


def _requests(
    person: Person, operation_id: int, policy_id: int, data: bytes
) -> list[dict[str, Any]]:
    """Requests about the person, and the fields that name the person in requests about others."""
    if not person.is_in_bytes(data):
        return []
    requests = [
        request
        for request in orders.load_readable(operation_id, data)
        if person.erased_value(request.fields) != request.fields
    ]
    if not requests:  # nearly always: most operations name other people only
        return []
    own_keys = set(_record_key_by_request_key(person, policy_id, requests))
    return [
        {**msgspec.to_builtins(request), "fields": {
            name: value for name, value in request.fields.items()
            if request.key in own_keys or _has_hit(person, name, value)
        }}
        for request in requests
    ]  # fmt: skip


def _record_key_by_request_key(
    person: Person, policy_id: int, requests: Sequence[Request]
) -> dict[str, str]:
    """The keys of requests about the person → the keys of their records.

    A request about a lead of another person is left out. In all others a field must be just the
    identifier.
    """
    policy = Policy.objects.filter(pk=policy_id).values("key_prefix", "source__name").first()
    prefix = policy["key_prefix"] if policy else ""
    keys = {request.key: request.key.removeprefix(prefix) for request in requests}
    others: set[str] = set()
    if policy and policy["source__name"] == HIVE:
        lead_ids = [int(key) for key in keys.values() if key.isascii() and key.isdigit()]
        leads = Lead.objects.filter(id__in=lead_ids).values(*_COLUMNS)
        others = {
            str(row["id"]) for row in leads if not (_is_lead_of(person, row) or _is_erased(row))
        }
    return {
        request.key: keys[request.key]
        for request in requests
        if keys[request.key] not in others
        and any(person.is_identifier(value) for value in request.fields.values())
    }


def _erase_operations(person: Person, rows: Sequence[Row]) -> int:
    count = 0
    for row in rows:
        policy_id = int(row.data["policy_id"])
        requests = msgspec.convert(row.data["requests"], list[Request])
        keys = _record_key_by_request_key(person, policy_id, requests).values()
        records = Record.objects.filter(policy_id=policy_id, key__in=list(keys))
        count += _erase_records(list(records.order_by().values_list("id", flat=True)))
        count += erasure.erase_texts(policy_id, int(row.key), person)
    return count


def _find_copies(person: Person, cursor: str) -> Slice:
    """Copies of operations in the work Redis, a part of a slot at a time."""
    if not (person.phones or person.emails):
        return Slice(())
    slot_text, _colon, position_text = cursor.partition(":")
    slots = [slot for slot in copies.slots() if slot >= int(slot_text or 0)]
    if not slots:
        return Slice(())
    slot = slots[0]
    position = int(position_text or 0) if str(slot) == slot_text else 0
    next_position, page = copies.scan(slot, position)
    own_rows = [
        Row(str(copy.id), {"id": str(copy.id), "policy_id": copy.policy_id, "requests": requests})
        for copy in page
        if (requests := _requests(person, copy.id, copy.policy_id, copy.data))
    ]
    if next_position:
        return Slice(own_rows, f"{slot}:{next_position}")
    return Slice(own_rows, f"{slots[1]}:0" if len(slots) > 1 else "")


# -- recovery log --------------------------------------------------------------------------------
_entries = TextTable(RecoveryEntry, ("reason", "field", "request"))


def _erase_entries(person: Person, rows: Sequence[Row]) -> int:
    """Erase entries about the person as a whole: their operations may be gone. In others only the
    person's numbers and addresses are erased."""
    entries = RecoveryEntry.objects.filter(id__in=[row.key for row in rows])
    own_ids: set[int] = set()
    columns = ("id", "policy_id", "operation_id", "request")
    for pk, policy_id, operation_id, data in entries.values_list(*columns):
        requests = orders.load_readable(operation_id, b"[%b]" % bytes(data))
        if _record_key_by_request_key(person, policy_id, requests):
            own_ids.add(pk)
    own_entries = entries.filter(id__in=own_ids)
    count = transactions.retrying(lambda: own_entries.update(request=b"", reason=MARK))
    other_rows = [row for row in rows if int(row.key) not in own_ids]
    return count + _entries.erase(person, other_rows)


def stores() -> Sequence[PersonStore]:
    """Leads come first: CRMs must learn of the deletion before anything about them is erased."""
    return (
        PersonStore("crmsync.leads", _("leads"), _find_leads, _erase_leads, _end_leads,
                    prepare=_delete_leads, unconfirmed=_list_unconfirmed),
        PersonStore("crmsync.lead_texts", _("leads of others"), _find_texts, _erase_texts),
        PersonStore("crmsync.operations", _("operations"), _find_operations, _erase_operations),
        PersonStore("crmsync.copies", _("copies of operations in Redis"), _find_copies,
                    _erase_operations, redis_prefix=copies.PREFIX),
        text_store("crmsync.items", _("outcomes"), Item, ("message", "field")),
        PersonStore("crmsync.recovery", _("recovery log"), _entries.find, _erase_entries),
        text_store("crmsync.exceptions", _("exception log"), ExceptionEntry, ("message",)),
        text_store("crmsync.runs", _("runs"), Run, ("problem",)),
        text_store("crmsync.keys", _("idempotency keys"), LeadIdempotency, ("key",),
                   unique_column="key"),
    )  # fmt: skip
