"""The settings of an HTTP/JSON interface, the requests that their templates make of records, and
the records in the answers to its reading call."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from django.utils.translation import gettext as _, gettext_noop

from crmsync.adapters import client
from crmsync.adapters.base import (
    AdapterCredentials,
    AdapterSettings,
    CredentialsRefused,
    Record,
    Stored,
    TooManyCalls,
)
from crmsync.adapters.client import HttpClient
from crmsync.adapters.http import template
from crmsync.adapters.http.answer import AnswerRules, at, missing_path
from crmsync.adapters.http.template import as_text, places
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.http.engine import Request, Response

_RECORD = {"id": "{key}", "version": "{version}", "deleted": "{deleted}", "fields": "{fields}"}
# No Content is also an answer: there is no record.
_NO_RECORD = (204, 404, 410)
# Many CRMs keep numbers and booleans as text.
_NOT_DELETED = ("", "0", "f", "false", "n", "no", "否")
_VERSION = re.compile("[0-9]{1,18}")
_BEHIND_SERVER = re.compile("[/?#](?![^{]*})")


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    __doc__ = gettext_noop("A call about one record; it may have no body.")

    url: str
    method: str = "GET"
    body: Any = None


class ReadCall(Call, frozen=True, kw_only=True):
    __doc__ = gettext_noop(
        "Fetches the record with {key}; 404 means that there is none. The paths say where the "
        "answer has it: `record` is the object with the fields ('' for the whole body). `missing` "
        "lists the codes (see `answer`) that mean that there is none. At `deleted`, `false`, 0, "
        'null and texts such as "0", "false" and "N" say that the record is not deleted.'
    )

    record: str = ""
    remote_id: str = ""
    version: str = ""
    deleted: str = ""
    missing: Sequence[str | int] = ()

    def read_record(self, rules: AnswerRules, response: Response) -> Stored | None:
        """The record, None when the CRM certainly does not hold it. Raises as `read` does."""
        body = client.read_json(response)
        code = rules.code_of(body)
        if not response.error:
            if code is not None and as_text(code) in map(str, self.missing):
                return None
            # Unless the settings give this status another meaning.
            if response.status in _NO_RECORD and str(response.status) not in rules.statuses:
                return None
        if response.status == 405 or 300 <= response.status < 400:  # the address's fault
            text = _("%s: is this the right address?") % client.describe(response)
            raise CredentialsRefused(text)
        client.raise_for(response, default_wait=rules.throttled_seconds)
        if not client.is_json(response):
            raise Unavailable(_("The answer is no JSON: is this the right address?"))
        if rules.code:
            text = client.describe(response)
            if code is None:
                raise Unavailable(missing_path(text, rules.code))
            message = str(at(body, rules.message) or "")
            text = message or _("%(text)s, code %(code)s") % {"text": text, "code": as_text(code)}
            match rules.kind(code):
                case "ok":
                    pass
                case "auth":
                    raise CredentialsRefused(_("The CRM refuses the credentials: %s") % text)
                case "throttled":
                    wait = client.wait_seconds(response) or rules.throttled_seconds
                    raise TooManyCalls(_("The CRM wants fewer calls."), wait)
                case _:
                    raise Unavailable(_("The CRM answers with an error: %s") % text)
        record = at(body, self.record) if self.record else body
        if not isinstance(record, Mapping):
            return None
        version, remote_id = at(body, self.version), at(body, self.remote_id)
        mark = at(body, self.deleted)
        is_deleted = bool(mark)
        if isinstance(mark, str):
            is_deleted = mark.strip().lower() not in _NOT_DELETED
        if isinstance(version, str) and _VERSION.fullmatch(version):
            version = int(version)
        return Stored(
            "" if remote_id is None else str(remote_id),
            record,
            is_deleted,
            version if isinstance(version, int) else None,
        )


class HttpSettings(AdapterSettings, frozen=True, kw_only=True):
    __doc__ = gettext_noop(
        "`url`, `method` and `body` are the call that stores records, `records_per_call` of them; "
        "`concurrency` calls of one order are made at once, each given up after `timeout` seconds, "
        "but at the latest after 60 s or a quarter of CRM_LEASE_SECONDS. `is_upsert`: repeating it "
        "makes no second record. `update` is the call for a record whose remote id is known, and "
        "`delete` that for a deleted one; without them `url` is called. A 404 of either means that "
        "the CRM does not hold the record; where `read` is set, only if that call does not find it "
        "either. `read` fetches a record, also to find the remote id that `delete` names; "
        "`read_by_id` fetches the one with {remote_id}, to find out which fields of a record that "
        "people made are empty; `test` is for the test button. `fields` lists the fields that the "
        "CRM has; empty when any may be sent. `headers` have places of the record, such as {key}, "
        "where a call takes one record, and places of its fields where no call reads records."
    )

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = {}
    body: Any = "{record}"
    record: Any = msgspec.field(default_factory=_RECORD.copy)
    # Bounds that keep a mistake from making calls of megabytes.
    records_per_call: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    timeout: Annotated[float, msgspec.Meta(gt=0, le=300)] = 30.0
    is_upsert: bool = False
    update: Call | None = None
    delete: Call | None = None
    read: ReadCall | None = None
    read_by_id: ReadCall | None = None
    test: Call | None = None
    fields: Sequence[str] = ()
    answer: AnswerRules = AnswerRules()


class HttpCredentials(AdapterCredentials, frozen=True, kw_only=True):
    __doc__ = gettext_noop("Secrets by the names that templates use: {secret.token}.")

    values: Mapping[str, str] = {}


def check_templates(settings: HttpSettings, secrets: Mapping[str, str]) -> None:
    """Raises InvalidInput for a template that cannot be filled."""
    template.check(settings.record, "record", secrets)
    template.check(settings.body, "body", secrets, "record", "records")
    header_values = list(settings.headers.values())
    template.check(header_values, "headers", secrets)
    if any(places(list(settings.headers))):
        raise InvalidInput(_("Write places in the values of headers, not in names."), "headers")
    for place in places(header_values):
        if settings.records_per_call > 1 and not place.startswith("secret."):
            raise InvalidInput(_("headers are the same for all records of a call."), "headers")
        # Such a call knows no fields: an empty header may lead it to the records of others.
        if place.startswith("field") and (settings.read or settings.read_by_id):
            words = _("headers names {%s}, which a call that reads a record cannot fill.")
            raise InvalidInput(words % place, "headers")
    if settings.records_per_call > 1 and "records" not in places(settings.body):
        raise InvalidInput(_("body needs {records} when a call takes several records."), "body")
    # One URL serves all records of a call, so its only places are secrets.
    is_fixed = all(place.startswith("secret.") for place in places(settings.url))
    if settings.records_per_call > 1 and not is_fixed:
        raise InvalidInput(_("url is the same for all records of a call."), "url")
    for name in ("url", "update", "delete", "read", "read_by_id", "test"):
        call = getattr(settings, name)
        url = call.url if isinstance(call, Call) else call
        template.check(url, name, secrets)
        # The client calls only servers that the settings name.
        if url and any(places(_BEHIND_SERVER.split(url.partition("://")[2] or url)[0])):
            raise InvalidInput(_("Write the server out; places stand behind it."), name)
        if isinstance(call, Call):
            template.check(call.body, name, secrets, "record")


class Requests:
    """Builds requests. Methods raise the error of a value that is no JSON."""

    def __init__(
        self, http: HttpClient, settings: HttpSettings, credentials: HttpCredentials
    ) -> None:
        self._client, self._settings = http, settings
        self._secrets = {f"secret.{name}": v for name, v in credentials.values.items()}

    def of(self, group: Sequence[Record], call: Call | None) -> Request:
        """The request of a call about one record, or of the call that stores all of them."""
        if call:
            return self.about(group[0], call)
        settings = self._settings
        bodies = [
            template.fill(settings.record, self._secrets | template.values_of(record))
            for record in group
        ]
        values = {**self._secrets, "records": bodies}
        if settings.records_per_call == 1:
            values |= {**template.values_of(group[0]), "record": bodies[0]}
        return self._request(
            settings.method, settings.url, settings.body, values, not settings.is_upsert
        )

    def about(self, record: Record, call: Call) -> Request:
        values = self._secrets | template.values_of(record)
        values["record"] = template.fill(self._settings.record, values)
        return self._request(call.method, call.url, call.body, values)

    def _request(
        self,
        method: str,
        url: str,
        body: Any,
        values: Mapping[str, Any],
        is_unrepeatable: bool = False,
    ) -> Request:
        return self._client.request(
            method,
            template.url(url, values),
            [
                (name, template.header(text, values))
                for name, text in self._settings.headers.items()
            ],
            None if body is None else template.fill(body, values),
            is_unrepeatable,
        )
