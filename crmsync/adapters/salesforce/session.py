"""Calls to Salesforce with an access token, which is fetched anew once when it has expired; and the
meaning of its errors for a record, and for a whole call.

A refused call is answered with a list of errors that have an `errorCode`; in the result of a record
the same thing is called `statusCode`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext as _, gettext_noop

from crmsync.adapters import client, outcomes
from crmsync.adapters.base import (
    AdapterCredentials,
    AdapterSettings,
    CredentialsRefused,
    TooManyCalls,
)
from crmsync.adapters.client import HttpClient, describe, read_json
from msgplatform.core.errors import Unavailable
from msgplatform.core.http.engine import Request, Response

_RETRY = {
    "UNABLE_TO_LOCK_ROW", "SERVER_UNAVAILABLE", "UNKNOWN_EXCEPTION", "QUERY_TIMEOUT",
    "INSUFFICIENT_RESOURCES", "ALL_OR_NONE_OPERATION_ROLLED_BACK", "PROCESSING_HALTED",
}  # fmt: skip
# The error codes of a trigger or a flow. Such an error may concern one record, or all records of
# the call, as with a limit of the queries in a transaction.
_OF_CALL = {
    "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", "CANNOT_EXECUTE_FLOW_TRIGGER", "APEX_ERROR",
    "LIMIT_EXCEEDED", "TOO_MANY_APEX_REQUESTS",
}  # fmt: skip
# Another transaction holds a row, even if a trigger's error code is around this text.
_LOCK = re.compile(
    "UNABLE_TO_LOCK_ROW|Record Currently Unavailable|QueryException: .{0,300}lock", re.IGNORECASE
)
# The values are to blame, or the record's state, such as that of a lead that people have converted
# (StatusCode in the SOAP API's guide, "Core Data Types").
_OF_VALUES = re.compile(
    "^(REQUIRED_FIELD_MISSING|STRING_TOO_LONG|FIELD_|INVALID_|MALFORMED_|JSON_PARSER_ERROR|NUMBER_"
    "|DUPLICATE|ENTITY_IS_|DATA_|BAD_|MISSING_|PICKLIST_|UNKNOWN_FIELD"
    "|CANNOT_|DELETE_FAILED|TRANSFER_|CIRCULAR_DEPENDENCY|DEPENDENCY_EXISTS|ILLEGAL_|INACTIVE_OWNER"
    "|SELF_REFERENCE|VALUE_|IMMUTABLE_|REFERENCED_OBJECT_|INSUFFICIENT_ACCESS_ON_)"
)
# A person has to change the org or the settings, whatever the values are.
_AUTH = {
    "INVALID_SESSION_ID", "INVALID_AUTH_HEADER", "API_DISABLED_FOR_ORG", "API_CURRENTLY_DISABLED",
    "INVALID_TYPE", "UNSUPPORTED_API_VERSION", "STORAGE_LIMIT_EXCEEDED",
}  # fmt: skip
_DUPLICATES = {"DUPLICATES_DETECTED", "DUPLICATE_VALUE"}
_CROSS = "CROSS_REFERENCE"  # in the codes for a value that names another record
_GONE = {"ENTITY_IS_DELETED", "INVALID_CROSS_REFERENCE_KEY"}
_ID = re.compile(r"\b([a-zA-Z0-9]{15}(?:[a-zA-Z0-9]{3})?)\b")
# Each of the last three characters of an id says which of five characters before are capitals.
_ID_SUFFIXES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
# The daily limit counts the last 24 hours: a little of it becomes free all the time. A place among
# the concurrent calls is free when one of them ends.
_LIMIT_SECONDS, _CONCURRENT_SECONDS = 900.0, 10.0
_MAX_SAME = 60  # characters by which two messages have one cause: ids come later


def of_call(response: Response, size: int) -> outcomes.Outcome:
    """The outcome of each record of a call without the expected answer."""
    if client.is_whole(response):
        return outcomes.Unknown(_("Salesforce's answer has no result for each record."))
    body = client.read_json(response) if response.body else None
    error = body[0] if isinstance(body, list) and body and isinstance(body[0], dict) else {}
    code = str(error.get("errorCode", ""))
    general = client.outcome_of_status(response, size, is_upsert=True)
    if response.error or not response.status:
        return general or outcomes.Unknown(response.detail)
    if code in _AUTH or code == "REQUEST_LIMIT_EXCEEDED":
        return _meaning(code, error, client.wait_seconds(response))
    # 410: the version of the API is retired.
    is_address_wrong = response.status in (404, 405, 410) and code not in _GONE
    is_refused = isinstance(general, outcomes.Auth) and _CROSS not in code
    if is_address_wrong or is_refused:
        text = _message(error) or client.describe(response)
        return outcomes.Auth(text, of_record=response.status == 403)
    if code and size == 1:
        return _meaning(code, error)
    return general or outcomes.Retry(0.0, client.describe(response))


def of_result(result: Any, external_id: str) -> outcomes.Outcome:
    """The outcome of a record by its result in the answer to a call."""
    if not isinstance(result, Mapping):
        return outcomes.Unknown(_("Salesforce's answer has a result that is no object."))
    if result.get("success"):
        return outcomes.Ok(long_id(str(result.get("id", ""))), result.get("created"))
    errors = result.get("errors") or [{}]
    error = errors[0]
    code = str(error.get("statusCode") or error.get("errorCode") or "")
    if code == "DUPLICATE_EXTERNAL_ID":
        return outcomes.Invalid(external_id, _message(error))
    return _meaning(code, error)


def of_whole_call(results: Sequence[Any]) -> outcomes.Refused | None:
    """The refusal of a call with several records that all have the same error of a trigger or a
    flow: a smaller call may not cause it."""
    causes = set()
    for result in results:
        errors = result.get("errors") if isinstance(result, Mapping) else None
        if not errors or result.get("success"):
            return None
        if _LOCK.search(message := _message(errors[0])):
            return None
        causes.add((str(errors[0].get("statusCode")), message[:_MAX_SAME]))
    if len(causes) != 1 or len(results) < 2:
        return None
    code, message = causes.pop()
    return outcomes.Refused(message or code) if code in _OF_CALL else None


def is_gone(result: Any) -> bool:
    """True if Salesforce has no record with the id that was sent."""
    result_errors = (result.get("errors") if isinstance(result, Mapping) else None) or ()
    # With `fields`, the id belongs to another record, to which this record refers.
    return any(e.get("statusCode") in _GONE and not e.get("fields") for e in result_errors)


def long_id(remote_id: str) -> str:
    """The id with 18 characters. Errors name it with 15 of them, and stored ids are compared as
    texts."""
    if len(remote_id) != 15:
        return remote_id
    suffix = ""
    for start in (0, 5, 10):
        part = remote_id[start : start + 5]
        suffix += _ID_SUFFIXES[sum(1 << n for n, letter in enumerate(part) if letter.isupper())]
    return remote_id + suffix


def _meaning(code: str, error: Mapping[str, Any], wait: float = 0.0) -> outcomes.Outcome:
    """`wait` in seconds is what the answer asks for."""
    message = _message(error) or code or _("Salesforce gave no reason.")
    if code == "REQUEST_LIMIT_EXCEEDED":
        # Such as: ConcurrentRequests (Concurrent API Requests) Limit exceeded.
        is_short = message.startswith("Concurrent")
        return outcomes.Throttled(wait or (_CONCURRENT_SECONDS if is_short else _LIMIT_SECONDS))
    if code in _RETRY or _LOCK.search(message):
        return outcomes.Retry(0.0, message)
    # Rights may be missing for this record, or for all.
    is_right_missing = code.startswith("INSUFFICIENT_ACCESS") and _CROSS not in code
    if code in _AUTH or is_right_missing:
        return outcomes.Auth(message, of_record=code not in _AUTH)
    if code in _DUPLICATES:
        if id_match := _ID.search(message.partition("with id")[2]):
            return outcomes.Conflict(long_id(id_match[1]))
        # A duplicate rule found others without saying which: a person decides.
        message = _("Salesforce holds a duplicate: %s") % message
    fields = error.get("fields") or ()
    if not (fields or _OF_VALUES.search(code)):
        # An error of an unknown kind must not end a good record at the first try.
        return outcomes.Retry(0.0, message)
    return outcomes.Invalid(str(fields[0]) if fields else "", message)


def _message(error: Mapping[str, Any]) -> str:
    return str(error.get("message") or "")


_FORM = ("content-type", "application/x-www-form-urlencoded")
# Errors of the login that end by themselves, such as: unknown_error, retry your request.
_PASSING = re.compile("unknown_error|server_error|temporarily_unavailable|retry", re.IGNORECASE)
# A user may log in 3,600 times in an hour.
_LOGIN_RATE, _LOGIN_SECONDS = re.compile("rate.{0,7}exceeded", re.IGNORECASE), 60.0


class SalesforceSettings(AdapterSettings, frozen=True, kw_only=True):
    __doc__ = gettext_noop(
        "`external_id` is a field of `object` that is flagged External ID and unique; it holds the "
        "key. `allow_duplicates` stores records that a duplicate rule would hold back. `login_url` "
        "is the org's My Domain URL; Salesforce refuses the default, which older settings have."
    )

    login_url: str = "https://login.salesforce.com"
    object: str = "Lead"
    external_id: str = "Hive_Id__c"
    api_version: str = "v61.0"
    allow_duplicates: bool = False


class SalesforceCredentials(AdapterCredentials, frozen=True, kw_only=True):
    __doc__ = gettext_noop("The credentials of a connected app with the client credentials flow.")

    client_id: str
    client_secret: str


class Session:
    """`token` comes from the last login; '' before the first."""

    def __init__(
        self,
        http_client: HttpClient,
        settings: SalesforceSettings,
        credentials: SalesforceCredentials,
    ) -> None:
        self.client, self.settings, self.credentials = http_client, settings, credentials
        self.token = self._instance = ""

    def ask(self, method: str, path: str, body: Any = None) -> Response:
        """A call with a valid token. Raises Unavailable or CredentialsRefused if there is no token;
        then no record was sent."""
        if not self.token:
            self._log_in()
        response = self._call(method, path, body)
        if response.status == 401:  # the token has expired
            self._log_in()
            response = self._call(method, path, body)
        return response

    def _call(self, method: str, path: str, body: Any) -> Response:
        url = f"{self._instance}/services/data/{self.settings.api_version}/{path}"
        headers = [("authorization", f"Bearer {self.token}")]
        if self.settings.allow_duplicates:
            headers.append(("Sforce-Duplicate-Rule-Header", "allowSave=true"))
        return self.client.ask(method, url, headers, body)

    def _log_in(self) -> None:
        credentials = self.credentials
        form = {
            "grant_type": "client_credentials",
            "client_id": credentials.client_id,
            "client_secret": credentials.client_secret,
        }
        url = f"{self.settings.login_url}/services/oauth2/token"
        data = urlencode(form).encode()
        request = Request(url, data, [_FORM], self.client.timeout)
        response = self.client.exchange([request])[0]
        self.token = ""
        body = read_json(response)
        if response.status in (400, 401):
            error = body if isinstance(body, dict) else {}
            words = f"{error.get('error') or ''} {error.get('error_description') or ''}"
            text = _("The CRM cannot be reached: %s") % describe(response)
            if _LOGIN_RATE.search(words):
                raise TooManyCalls(text, _LOGIN_SECONDS)
            # Without an error of OAuth the answer is a proxy's.
            if response.status == 400 and (not words.strip() or _PASSING.search(words)):
                raise Unavailable(text)
            text = _("Salesforce refuses the credentials: %s") % describe(response)
            if "not supported on this domain" in words:
                text = _("Set login_url to the address of the org, its My Domain URL: %s") % words
            raise CredentialsRefused(text)
        client.raise_for(response)
        if not isinstance(body, dict) or not body.get("access_token"):
            raise Unavailable(_("Salesforce's login answered without an access token."))
        self.token = str(body["access_token"])
        self._instance = str(body.get("instance_url") or self.settings.login_url).rstrip("/")
        self.client.allow(self._instance)
