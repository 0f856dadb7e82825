"""Outcomes of records by HubSpot's errors, of one record or of a whole batch."""

import re
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from django.utils.translation import gettext as _

from crmsync.adapters import client
from crmsync.adapters.outcomes import Auth, Conflict, Invalid, Outcome, Retry, Throttled
from msgplatform.core.errors import InvalidInput
from msgplatform.core.http.engine import Response

NOT_FOUND = "OBJECT_NOT_FOUND"
_NO_PROPERTY = "PROPERTY_DOESNT_EXIST"
_EXISTING_ID = re.compile(r"Existing ID: *(\d+)")
_AUTH_CATEGORIES = {"MISSING_SCOPES", "INVALID_AUTHENTICATION", "EXPIRED_AUTHENTICATION", "BANNED"}
_PERMANENT = {"VALIDATION_ERROR", "BAD_REQUEST", "OBJECT_ALREADY_EXISTS", _NO_PROPERTY}
# Name of a rate limit → seconds until HubSpot accepts calls again.
_LIMIT_SECONDS = {"SECONDLY": 1.0, "TEN_SECONDLY_ROLLING": 10.0}
_DEFAULT_LIMIT_SECONDS = 10.0
# Matches HubSpot's messages about a property or an object type that does not exist, and about a
# property whose values need not be unique; not the message about a value that another object has.
_MISSING_MESSAGE = re.compile(
    r"(?:does not|doesn't|do not) exist|not found|could not find|unable to infer|unknown|no such"
    r"|idProperty|not (?:a |an )?(?:valid )?unique",
    re.IGNORECASE,
)


def of_batch(response: Response, size: int, time_zone: str, id_property: str) -> Outcome:
    """The outcome of every record of a call that failed, or whose answer is incomplete."""
    body = client.read_json(response) if response.body else None
    error = body if isinstance(body, Mapping) else {}
    status = response.status
    if status == 429 and not response.error:
        return Throttled(
            client.wait_seconds(response) or _seconds_until_limit_ends(error, time_zone)
        )
    if not response.error and _is_setup_error(response, id_property):
        return Auth(client.describe(response))
    status_outcome = client.outcome_of_status(response, size, is_upsert=True)
    if isinstance(status_outcome, Auth) and error.get("category") in _AUTH_CATEGORIES:
        return Auth(status_outcome.message)  # of all records, not of one
    # The call had a single record: HubSpot's error object is more exact than the status.
    if isinstance(status_outcome, Invalid | Conflict) and error:
        return of_record(error, time_zone)
    return status_outcome or Retry(0.0, client.describe(response))


def of_record(error: Mapping[str, Any], time_zone: str) -> Outcome:
    """The outcome of one record by HubSpot's error object, whose properties are all optional."""
    category = str(error.get("category", ""))
    message = str(error.get("message") or category or _("HubSpot gave no reason."))
    if category == NOT_FOUND:
        return Invalid("", message)
    if category == "RATE_LIMITS":
        return Throttled(_seconds_until_limit_ends(error, time_zone))
    # Retrying cannot help: the CRM is paused until a person changes its settings.
    if category in _AUTH_CATEGORIES:
        return Auth(message)
    existing = _EXISTING_ID.search(message)
    if category == "CONFLICT" or existing:
        return Conflict(existing[1] if existing else "")
    if category in _PERMANENT or error.get("errors"):
        field, reason, _code = _read_fault(error, message)
        return Invalid(field, reason)
    return Retry(0.0, message)


def is_not_found(response: Response) -> bool:
    """True if the call was for one object, and HubSpot has no object with its id."""
    body = client.read_json(response) if response.status == 404 else None
    return isinstance(body, Mapping) and body.get("category") == NOT_FOUND


def missing_names(response: Response) -> set[str]:
    """Trace ids and object ids of the records of a batch that HubSpot does not have."""
    body = client.read_json(response) if client.is_whole(response) else None
    errors = (body.get("errors") if isinstance(body, Mapping) else None) or ()
    pairs = [names_in(error) for error in errors if error.get("category") == NOT_FOUND]
    return {name for traces, others in pairs for name in traces | others}


def names_in(error: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The trace ids in an error, and all other values of its context, such as object ids."""
    context = error.get("context")
    texts_by_key = (
        {key: _as_list(value) for key, value in context.items()}
        if isinstance(context, dict)
        else {}
    )
    traces = {
        *_as_list(error.get("objectWriteTraceId")),
        *texts_by_key.pop("objectWriteTraceId", ()),
    }
    return traces, {text for texts in texts_by_key.values() for text in texts}


def check_time_zone(name: str) -> None:
    """Raise InvalidInput for a name that is not a time zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(_("There is no time zone %s.") % name, "time_zone") from None


def _is_setup_error(response: Response, id_property: str) -> bool:
    """True if the setup is wrong, so that every record is refused: HubSpot does not have the
    address, the object type, or the property of the key."""
    if response.status in (404, 405, 410):
        return not is_not_found(response)
    body = client.read_json(response) if response.status == 400 else None
    error = body if isinstance(body, Mapping) else {}
    message = str(error.get("message") or "")
    field, _reason, code = _read_fault(error, message)
    if field not in ("", id_property):
        return False
    if field and code:
        return code == _NO_PROPERTY
    names = rf"(?<!\w)(?:{re.escape(id_property)}|idProperty|object type)(?!\w)"
    return bool(_MISSING_MESSAGE.search(message) and re.search(names, message, re.IGNORECASE))


def _read_fault(error: Mapping[str, Any], message: str) -> tuple[str, str, str]:
    """The property at fault, the reason, and HubSpot's code; '' for a part that is missing.

    The fault is a list in the message's text, else the first of `errors`, else in `context`.
    """
    # Such as: Property values were not valid: [{"name":"email","message":"…"}]
    start = message.find("[{")
    if start >= 0:
        try:
            property_errors = msgspec.json.decode(message[start:], type=list[dict[str, Any]])
        except (msgspec.DecodeError, UnicodeDecodeError):
            property_errors = []
        if property_errors:
            first = property_errors[0]
            code = str(first.get("error") or "")
            return str(first.get("name", "")), str(first.get("message") or message), code
    if detail := next(iter(error.get("errors") or ()), None):
        context = detail.get("context") or {}
        field = detail.get("in") or next(iter(_as_list(context.get("propertyName"))), "")
        code = str(detail.get("code") or "")
        return str(field), str(detail.get("message") or message), code
    context = error.get("context") or {}
    return next(iter(_as_list(context.get("propertyName"))), ""), message, ""


def _as_list(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(text) for text in value] if isinstance(value, list) else [str(value)]


def _seconds_until_limit_ends(error: Mapping[str, Any], time_zone: str) -> float:
    """Seconds until the limit that was reached allows calls again."""
    policy = str(error.get("policyName", ""))
    if policy == "DAILY":
        now = datetime.now(ZoneInfo(time_zone))
        midnight = datetime.combine(now.date() + timedelta(days=1), time(), now.tzinfo)
        # Timestamps are subtracted: a day may have 23 or 25 hours.
        return max(1.0, midnight.timestamp() - now.timestamp())
    return _LIMIT_SECONDS.get(policy, _DEFAULT_LIMIT_SECONDS)
