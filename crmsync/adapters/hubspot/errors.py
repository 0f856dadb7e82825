"""The meaning of HubSpot's errors for a record, and for a whole batch."""

from __future__ import annotations

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
_EXISTING = re.compile(r"Existing ID: *(\d+)")
_AUTH = {"MISSING_SCOPES", "INVALID_AUTHENTICATION", "EXPIRED_AUTHENTICATION", "BANNED"}
_NEVER = {"VALIDATION_ERROR", "BAD_REQUEST", "OBJECT_ALREADY_EXISTS", _NO_PROPERTY}
_LIMITS = {"SECONDLY": 1.0, "TEN_SECONDLY_ROLLING": 10.0}  # seconds until calls are taken again
_TEN_SECONDS = 10.0
# HubSpot's messages about a property or an object type that it does not have, or that has no unique
# values (any more). They do not match its messages about an equal value in another object.
_MISSING = re.compile(
    r"(?:does not|doesn't|do not) exist|not found|could not find|unable to infer|unknown|no such"
    r"|idProperty|not (?:a |an )?(?:valid )?unique",
    re.IGNORECASE,
)


def of_batch(response: Response, size: int, time_zone: str, id_property: str) -> Outcome:
    """The outcome of each record of a call whose answer is no whole 2xx."""
    body = client.read_json(response) if response.body else None
    error = body if isinstance(body, Mapping) else {}
    status = response.status
    if status == 429 and not response.error:
        return Throttled(client.wait_seconds(response) or _limit(error, time_zone))
    if not response.error and _is_setup(response, id_property):
        return Auth(client.describe(response))
    general = client.outcome_of_status(response, size, is_upsert=True)
    if isinstance(general, Auth) and error.get("category") in _AUTH:
        return Auth(general.message)  # of all records, not of one
    # A single record was refused: HubSpot's own object says more than the status.
    if isinstance(general, Invalid | Conflict) and error:
        return of_record(error, time_zone)
    return general or Retry(0.0, client.describe(response))


def of_record(error: Mapping[str, Any], time_zone: str) -> Outcome:
    """The outcome of one record by its error; every property of HubSpot's object is optional."""
    category = str(error.get("category", ""))
    message = str(error.get("message") or category or _("HubSpot gave no reason."))
    if category == NOT_FOUND:
        return Invalid("", message)
    if category == "RATE_LIMITS":
        return Throttled(_limit(error, time_zone))
    # Retrying cannot help: the CRM is paused until a person changes its settings.
    if category in _AUTH:
        return Auth(message)
    if category == "CONFLICT" or _EXISTING.search(message):
        existing = _EXISTING.search(message)
        return Conflict(existing[1] if existing else "")
    if category in _NEVER or error.get("errors"):
        field, reason, _code = _fault(error, message)
        return Invalid(field, reason)
    return Retry(0.0, message)


def is_not_found(response: Response) -> bool:
    """True if a call as a whole found no object with the id that was sent."""
    body = client.read_json(response) if response.status == 404 else None
    return isinstance(body, Mapping) and body.get("category") == NOT_FOUND


def missing_names(response: Response) -> set[str]:
    """The traces and ids of the records of a batch that HubSpot does not hold."""
    body = client.read_json(response) if client.is_whole(response) else None
    errors = (body.get("errors") if isinstance(body, Mapping) else None) or ()
    pairs = [names_in(error) for error in errors if error.get("category") == NOT_FOUND]
    return {name for traces, ids in pairs for name in traces | ids}


def names_in(error: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The trace ids in an error, and all other names in it, among them the ids that were sent."""
    context = error.get("context")
    names_by_context = (
        {name: _as_list(v) for name, v in context.items()} if isinstance(context, dict) else {}
    )
    traces = {
        *_as_list(error.get("objectWriteTraceId")),
        *names_by_context.pop("objectWriteTraceId", ()),
    }
    return traces, {value for values in names_by_context.values() for value in values}


def check_time_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(_("There is no time zone %s.") % name, "time_zone") from None


def _is_setup(response: Response, id_property: str) -> bool:
    """True if a call is refused for something that all records share: HubSpot does not have the
    address, the object type, or the property that holds the key."""
    if response.status == 404:
        return not is_not_found(response)
    body = client.read_json(response) if response.status == 400 else None
    error = body if isinstance(body, Mapping) else {}
    message = str(error.get("message") or "")
    field, _reason, code = _fault(error, message)
    if field not in ("", id_property):
        return False
    if field and code:
        return code == _NO_PROPERTY
    names = rf"(?<!\w)(?:{re.escape(id_property)}|idProperty|object type)(?!\w)"
    return bool(_MISSING.search(message) and re.search(names, message, re.IGNORECASE))


def _fault(error: Mapping[str, Any], message: str) -> tuple[str, str, str]:
    """The property at fault, the reason, and HubSpot's code for it. HubSpot may put a list of
    errors into the message's text:
    'Property values were not valid: [{"name":"email","message":"…"}]'."""
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
    details = error.get("errors") or ()
    for detail in details:
        context = detail.get("context") or {}
        field = detail.get("in") or next(iter(_as_list(context.get("propertyName"))), "")
        code = str(detail.get("code") or "")
        return str(field), str(detail.get("message") or message), code
    context = error.get("context") or {}
    return next(iter(_as_list(context.get("propertyName"))), ""), message, ""


def _as_list(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


def _limit(error: Mapping[str, Any], time_zone: str) -> float:
    """Seconds until the limit that was reached allows calls again."""
    policy = str(error.get("policyName", ""))
    if policy == "DAILY":
        now = datetime.now(ZoneInfo(time_zone))
        midnight = datetime.combine(now.date() + timedelta(days=1), time(), now.tzinfo)
        # By timestamps: a day may have 23 or 25 hours.
        return max(1.0, midnight.timestamp() - now.timestamp())
    return _LIMITS.get(policy, _TEN_SECONDS)
