"""Any HTTP/JSON interface: its calls and how to read their answers are settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from crmsync.adapters.base import (
    AdapterCredentials,
    AdapterSettings,
    CredentialsRefused,
    CRMAdapter,
    Field,
    Record,
    Stored,
)
from crmsync.adapters.client import HttpClient, decoded, raise_for
from crmsync.adapters.http import template
from crmsync.adapters.http.answer import AnswerRules, at, understand
from crmsync.adapters.outcomes import Auth, Invalid, Ok, Outcome, Refused, sentence
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.http.engine import Request, Response

_RECORD = {
    "id": "{key}", "version": "{version}", "deleted": "{deleted}", "fields": "{fields}",
}  # fmt: skip


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call about one record. Without a body none is sent."""

    url: str
    method: str = "GET"
    body: Any = None


class ReadCall(Call, frozen=True, kw_only=True):
    """Fetches the record with {key}; 404 means that there is none. The paths say where the
    answer has it: `record` is the object with the fields ('' for the whole body)."""

    record: str = ""
    remote_id: str = ""
    version: str = ""
    deleted: str = ""


class HttpSettings(AdapterSettings, frozen=True, kw_only=True):
    """`url`, `method` and `body` are the call that stores records, `records_per_call` of them;
    `concurrency` calls are made at once, each given up after `timeout` seconds, or a quarter of
    CRM_LEASE_SECONDS if that is less. `is_upsert`: repeating it makes no second record.

    `update` is the call for a record whose remote id is known, and `delete` that for a deleted
    one; without them `url` is called. `read` fetches a record and `test` is for the test button.
    `fields` lists the fields that the CRM has; empty when any may be sent.
    """

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = {}
    body: Any = "{record}"
    record: Any = msgspec.field(default_factory=_RECORD.copy)
    records_per_call: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    timeout: Annotated[float, msgspec.Meta(gt=0, le=300)] = 30.0
    is_upsert: bool = False
    update: Call | None = None
    delete: Call | None = None
    read: ReadCall | None = None
    test: Call | None = None
    fields: Sequence[str] = ()
    answer: AnswerRules = AnswerRules()


class HttpCredentials(AdapterCredentials, frozen=True, kw_only=True):
    """Secrets by the names that templates use: {secret.token}."""

    values: Mapping[str, str] = {}


class HttpAdapter(CRMAdapter):
    """Records become calls as the templates say. Credentials are any names with their values."""

    name = "http"
    title = gettext_lazy("The CRM")
    Settings = HttpSettings
    Credentials = HttpCredentials
    batch_size = 10_000

    settings: HttpSettings
    credentials: HttpCredentials

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        super().__init__(settings, {"values": dict(credentials)})
        given = self.settings
        self._check_templates()
        self.is_upsert = given.is_upsert
        self.batch_size = given.batch_size or given.records_per_call * given.concurrency
        self._secret = {f"secret.{name}": v for name, v in self.credentials.values.items()}
        self._headers = [
            (name, template.text(value, self._secret)) for name, value in given.headers.items()
        ]
        self._client = HttpClient(given.concurrency, given.timeout)

    def secrets(self) -> Iterable[str]:
        values = self.credentials.values.values()
        return [*values, *(quote(value, safe="") for value in values)]  # as in a URL

    def close(self) -> None:
        self._client.close()

    def calls(self, count: int) -> int:
        # Records whose ids are known, which may be all of them, go one by one.
        return count if self.settings.update else -(-count // self.settings.records_per_call)

    def _check_templates(self) -> None:
        given, secrets = self.settings, self.credentials.values
        template.check(given.record, "record", secrets)
        template.check(given.body, "body", secrets, "record", "records")
        template.check(dict(given.headers), "headers", secrets)
        if given.records_per_call > 1 and "records" not in template.places(given.body):
            raise InvalidInput(_("body needs {records} when a call takes several records."), "body")
        if given.records_per_call > 1 and any(template.places(given.url)):
            for place in template.places(given.url):
                if not place.startswith("secret."):
                    raise InvalidInput(_("url is the same for all records of a call."), "url")
        for name in ("url", "update", "delete", "read", "test"):
            call = getattr(given, name)
            template.check(call.url if isinstance(call, Call) else call, name, secrets)
            if isinstance(call, Call):
                template.check(call.body, name, secrets, "record")

    # -- writing ---------------------------------------------------------------------------------
    def deliver(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        given = self.settings
        outcomes: dict[str, Outcome] = {}
        alone: list[tuple[Record, Call]] = []
        together: list[Record] = []
        for record in batch:
            if record.deleted and given.delete:
                alone.append((record, given.delete))
            elif record.remote_id and given.update:
                alone.append((record, given.update))
            else:
                together.append(record)
        groups: list[tuple[Sequence[Record], Call | None]] = [([r], call) for r, call in alone]
        groups += [(group, None) for group in chunks(together, given.records_per_call)]
        sent: list[Sequence[Record]] = []
        requests: list[Request] = []
        for group, call in groups:
            try:
                requests.append(self._about(group[0], call) if call else self._storing(group))
            except (UnicodeEncodeError, TypeError, ValueError, OverflowError) as error:
                outcomes.update((r.key, _unwritable(error, len(group))) for r in group)
            else:
                sent.append(group)
        for group, response in zip(sent, self._client.exchange(requests), strict=True):
            understood = self._understood(group, response)
            outcomes.update(zip((record.key for record in group), understood, strict=True))
        return [outcomes[record.key] for record in batch]

    def _understood(self, group: Sequence[Record], response: Response) -> list[Outcome]:
        given = self.settings
        if given.delete and group[0].deleted and response.status in (404, 410):
            return [Ok(record.remote_id, created=False) for record in group]
        # A deletion can be repeated whatever the storing call is.
        is_upsert = self.is_upsert or bool(group[0].deleted and given.delete)
        return understand(given.answer, response, group, is_upsert)

    def _storing(self, group: Sequence[Record]) -> Request:
        given = self.settings
        made = [
            template.filled(given.record, self._secret | template.values_of(record))
            for record in group
        ]
        values = {**self._secret, "records": made}
        if given.records_per_call == 1:
            values |= {**template.values_of(group[0]), "record": made[0]}
        once = not self.is_upsert
        return self._request(given.method, given.url, given.body, values, once)

    def _about(self, record: Record, call: Call) -> Request:
        values = self._secret | template.values_of(record)
        values["record"] = template.filled(self.settings.record, values)
        return self._request(call.method, call.url, call.body, values)

    def _request(
        self, method: str, url: str, body: Any, values: Mapping[str, Any], once: bool = False
    ) -> Request:
        return self._client.request(
            method,
            template.url(url, values),
            self._headers,
            None if body is None else template.filled(body, values),
            once,
        )

    # -- reading ---------------------------------------------------------------------------------
    def fields(self) -> Mapping[str, Field] | None:
        """Those of the settings; calls `test` when there is one."""
        given = self.settings
        if given.test:
            response = self._client.exchange([self._about(Record("", 0, {}), given.test)])[0]
            raise_for(response)
            # It is about no record, so that it lists no results.
            rules = msgspec.structs.replace(given.answer, results="", failures="")
            outcome = understand(rules, response, [Record("", 0, {})], True)[0]
            _raise_outcome(outcome)
        return {name: Field(name) for name in given.fields} or None

    def read(self, keys: Collection[str]) -> Mapping[str, Stored]:
        call = self.settings.read
        if call is None:
            raise InvalidInput(_("No call is set that reads a record."), "read")
        requests = [self._about(Record(key, 0, {}), call) for key in keys]
        found: dict[str, Stored] = {}
        for key, response in zip(keys, self._client.exchange(requests), strict=True):
            if response.status in (404, 410):
                continue
            raise_for(response)
            body = decoded(response)
            record = at(body, call.record) if call.record else body
            if not isinstance(record, Mapping):
                continue
            version, remote_id = at(body, call.version), at(body, call.remote_id)
            found[key] = Stored(
                "" if remote_id is None else str(remote_id),
                record,
                bool(at(body, call.deleted)),
                version if isinstance(version, int) else None,
            )
        return found


def _unwritable(error: Exception, size: int) -> Outcome:
    text = _("The values cannot be written as JSON: %s.") % type(error).__name__
    return Invalid("", text) if size == 1 else Refused(text)


def _raise_outcome(outcome: Outcome) -> None:
    match outcome:
        case Auth(message=text):
            raise CredentialsRefused(_("The CRM refuses the credentials: %s") % text)
        case Ok():
            return
        case _:
            raise Unavailable(_("The CRM answers the test with an error: %s") % sentence(outcome))
