"""The outcomes of sending one record to a CRM. The set is closed: a handler treats each of them.

Ok          the CRM holds this version, or a newer one
Retry       not stored; the record is sent again after a while. Costs an attempt
Throttled   not stored; the CRM wants fewer calls. Costs no attempt
Invalid     the CRM will never take these values: dead at once, a person changes them
Conflict    the CRM holds this person as another record: send once more with that remote id,
            unless the platform's own record would be left behind
Auth        credentials or set-up are refused: pause the CRM and raise an alert
Unknown     the record may be stored: look it up before it is sent again, unless the adapter's
            call is an upsert
Refused     the batch was refused as a whole, and no record of it is stored: send its halves
"""

import msgspec
from django.utils.translation import gettext as _


class Ok(msgspec.Struct, frozen=True):
    """`remote_id` is the record's id in the CRM. `created` is None when the CRM does not say."""

    remote_id: str
    created: bool | None = None


class Retry(msgspec.Struct, frozen=True):
    """`after` in seconds, 0.0 when the CRM names no time."""

    after: float
    why: str


class Throttled(msgspec.Struct, frozen=True):
    """`after` in seconds."""

    after: float


class Invalid(msgspec.Struct, frozen=True):
    """`field` is the CRM's name of the field at fault, '' when the CRM does not name one."""

    field: str
    message: str


class Conflict(msgspec.Struct, frozen=True):
    """`existing_id` is the remote id of the other record, '' when the CRM does not name it.

    `has_key`: the other record has the same key, so it is the same record under a new id.
    `is_gone`: the CRM does not hold the record any more whose remote id was sent.
    """

    existing_id: str
    has_key: bool = False
    is_gone: bool = False


class Auth(msgspec.Struct, frozen=True):
    """`of_record`: the refusal may concern only this record, as a 403 does."""

    message: str
    of_record: bool = False


class Unknown(msgspec.Struct, frozen=True):
    message: str


class Refused(msgspec.Struct, frozen=True):
    """An outcome of batches only: a record that is refused alone is Invalid."""

    message: str


Outcome = Ok | Retry | Throttled | Invalid | Conflict | Auth | Unknown | Refused


def note_gone(outcome: Outcome) -> Outcome:
    """The outcome of a record that was sent by its key, because the CRM does not hold the record
    with its remote id any more."""
    return (
        msgspec.structs.replace(outcome, is_gone=True) if isinstance(outcome, Conflict) else outcome
    )


def sentence(outcome: Outcome) -> str:
    """The sentence for people about an outcome, '' for Ok."""
    match outcome:
        case Ok():
            return ""
        case Retry(why=text):
            return text
        case Throttled():
            return _("The CRM wants fewer calls.")
        case Conflict():
            return _("The CRM holds this person as another record.")
    return outcome.message
