"""Records as adapters take them, and as a CRM holds them."""

from collections.abc import Mapping
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from crmsync.adapters.outcomes import Conflict, Ok, Outcome, Retry


class Record(msgspec.Struct, frozen=True):
    """One version of one record.

    `key` is the id that both sides know. `fields` maps the CRM's field names to values: None clears
    a field, and a field that is missing here stays as it is. With `remote_id` the CRM's record of
    that id is changed, whatever its key; without one, or when that record no longer exists, the
    record is found by `key`, or created.

    `is_adopted`: people made the CRM's record, and `deleted` only takes the key off it.
    `should_fill_empty`: only fields that are empty in the CRM get a value.
    """

    key: str
    version: int
    fields: Mapping[str, Any]
    deleted: bool = False
    remote_id: str = ""
    is_adopted: bool = False
    should_fill_empty: bool = False


class Stored(msgspec.Struct, frozen=True):
    """A record as the CRM holds it. `version` is None in a CRM that keeps no versions."""

    remote_id: str
    fields: Mapping[str, Any]
    deleted: bool = False
    version: int | None = None


class Field(msgspec.Struct, frozen=True):
    """A field of the CRM. `max_length` in characters, 0 without a known limit."""

    name: str
    kind: str = ""
    required: bool = False
    writable: bool = True
    max_length: int = 0


# The errors of values that JSON cannot have.
NOT_JSON = (UnicodeEncodeError, TypeError, ValueError, OverflowError)


def describe_not_json(error: Exception) -> str:
    return _("The values cannot be written as JSON: %s.") % type(error).__name__


def keep_empty_fields(record: Record, crm_record: Stored | None) -> Record:
    """The record without the fields that have a value in the CRM."""
    if crm_record is None or crm_record.deleted:
        return record
    empty = {
        name: value
        for name, value in record.fields.items()
        if crm_record.fields.get(name) in (None, "", [])
    }
    return msgspec.structs.replace(record, fields=empty)


def compare(record: Record, crm_record: Stored | None) -> Outcome:
    """The outcome of a record that was Unknown, now that `crm_record` is what the CRM holds."""
    if record.deleted:
        if crm_record is None or crm_record.deleted:
            return Ok(crm_record.remote_id if crm_record else "", created=False)
        return Retry(0.0, _("The CRM still holds the record that is to be deleted."))
    if crm_record is None or crm_record.deleted:
        return Retry(0.0, _("The CRM does not hold the record."))
    # Where the CRM keeps versions another one decides: fields may have been edited since. An equal
    # one does not: a correction has the version of the values that it replaces.
    if crm_record.version not in (None, record.version):
        is_same = crm_record.version > record.version
    else:
        is_same = all(
            is_same_value(value, crm_record.fields.get(n)) for n, value in record.fields.items()
        )
    # Some CRMs leave the id out of their answers; an earlier answer may have given it.
    remote_id = crm_record.remote_id or record.remote_id
    return Ok(remote_id, created=False) if is_same else Conflict(remote_id)


def is_same_value(our_value: Any, crm_value: Any) -> bool:
    """True if both values are the same to a CRM that keeps values in types of its own."""
    if our_value in (None, "") or crm_value in (None, ""):
        return our_value in (None, "") and crm_value in (None, "")
    if isinstance(our_value, bool) or isinstance(crm_value, bool):
        return str(our_value).lower() in _SPELLINGS[str(crm_value).lower() in ("1", "true")]
    # Many CRMs keep numbers as text.
    return our_value == crm_value or str(our_value) == str(crm_value)


_SPELLINGS = {True: ("1", "true"), False: ("0", "false")}
