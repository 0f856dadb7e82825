"""Any HTTP/JSON interface: its calls and how to read their answers are settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from crmsync.adapters.base import (
    CredentialsRefused,
    CRMAdapter,
    Field,
    Record,
    Stored,
    TooManyCalls,
)
from crmsync.adapters.client import HttpClient, decoded, described, raise_for
from crmsync.adapters.http import template
from crmsync.adapters.http.answer import at, understand
from crmsync.adapters.http.settings import Call, HttpCredentials, HttpSettings, check_templates
from crmsync.adapters.http.template import places
from crmsync.adapters.outcomes import (
    Auth,
    Invalid,
    Ok,
    Outcome,
    Refused,
    Retry,
    Throttled,
    sentence,
)
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.http.engine import Request, Response


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
        check_templates(given, self.credentials.values)
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

    # -- writing ---------------------------------------------------------------------------------
    def deliver(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        given = self.settings
        outcomes: dict[str, Outcome] = {}
        groups: list[tuple[Sequence[Record], Call | None]] = []
        together: list[Record] = []
        for record in self._identified(batch, outcomes):
            if record.deleted and given.delete:
                groups.append(([record], given.delete))
            elif record.remote_id and given.update:
                groups.append(([record], given.update))
            else:
                together.append(record)
        # Each group becomes a request; without a call of its own it goes to `url`.
        groups += [(group, None) for group in chunks(together, given.records_per_call)]
        sent: list[tuple[Sequence[Record], Call | None]] = []
        requests: list[Request] = []
        for group, call in groups:
            try:
                requests.append(self._about(group[0], call) if call else self._storing(group))
            except (UnicodeEncodeError, TypeError, ValueError, OverflowError) as error:
                outcomes.update((r.key, _unwritable(error, len(group))) for r in group)
            else:
                sent.append((group, call))
        gone: list[Record] = []
        for (group, call), response in zip(sent, self._client.exchange(requests), strict=True):
            if call and call is given.update and self._is_gone(response):
                gone += [dataclasses.replace(record, remote_id="") for record in group]
                continue
            understood = self._understood(group, call, response)
            outcomes.update(zip((record.key for record in group), understood, strict=True))
        if gone:  # deleted in the CRM since: they are stored anew, by key
            outcomes.update(zip((r.key for r in gone), self.deliver(gone), strict=True))
        return [outcomes[record.key] for record in batch]

    def _identified(
        self, batch: Sequence[Record], outcomes: dict[str, Outcome]
    ) -> Sequence[Record]:
        """Add the remote ids that the deleting call names. Without its id a record is left out and
        gets an outcome: the call might delete something else."""
        call = self.settings.delete
        if call is None or "remote_id" not in {*places(call.url), *places(call.body)}:
            return batch
        nameless = {r.key for r in batch if r.deleted and not r.remote_id}
        if not nameless:
            return batch
        found: Mapping[str, Stored] = {}
        try:
            found = self.read(nameless)
            other: Outcome = Ok("", created=False)  # the CRM does not hold it: it is deleted
        except CredentialsRefused as error:
            other = Auth(str(error))
        except TooManyCalls as error:
            other = Throttled(error.after)
        except Unavailable as error:
            other = Retry(0.0, str(error))
        except InvalidInput:  # there is no call that reads a record, or it is refused
            text = _("The record cannot be deleted: its id in the CRM is not known.")
            other = Invalid("", text)
        ids = {key: stored.remote_id for key, stored in found.items() if stored.remote_id}
        outcomes.update((key, other) for key in nameless if key not in ids)
        return [
            dataclasses.replace(record, remote_id=ids[record.key]) if record.key in ids else record
            for record in batch
            if record.key not in outcomes
        ]

    def _is_gone(self, response: Response) -> bool:
        """Whether the CRM has no record with the remote id that was sent."""
        status = str(response.status)
        return status in ("404", "410") and status not in self.settings.answer.statuses

    def _understood(
        self, group: Sequence[Record], call: Call | None, response: Response
    ) -> list[Outcome]:
        given = self.settings
        if call and call is given.delete and self._is_gone(response):
            return [Ok(record.remote_id, created=False) for record in group]
        # An address that does not exist is no record's fault.
        status = str(response.status)
        is_fixed = all(place.startswith("secret.") for place in places(given.url))
        is_nowhere = status in ("404", "405") and status not in given.answer.statuses and is_fixed
        if call is None and is_nowhere and given.answer.code_of(decoded(response)) is None:
            text = _("%s: is this the right address?") % described(response)
            return [Auth(text)] * len(group)
        # A deletion can be repeated whatever the storing call is.
        is_upsert = self.is_upsert or bool(call and call is given.delete)
        understood = understand(given.answer, response, group, is_upsert)
        # Without a test nobody can find out whether only this record is refused.
        understood = [
            Auth(each.message) if isinstance(each, Auth) and not given.test else each
            for each in understood
        ]
        # An answer without a body leaves the id as it is known.
        return [
            Ok(record.remote_id) if outcome == Ok("") else outcome
            for record, outcome in zip(group, understood, strict=True)
        ]

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
        """The fields that the settings list; calls `test` when there is such a call."""
        given = self.settings
        if given.test:
            response = self._client.exchange([self._about(Record("", 0, {}), given.test)])[0]
            raise_for(response)
            # The test is about no record, so that its answer lists no results.
            rules = msgspec.structs.replace(given.answer, results="", failures="")
            outcome = understand(rules, response, [Record("", 0, {})], True)[0]
            match outcome:
                case Ok():
                    pass
                case Auth(message=text):
                    raise CredentialsRefused(_("The CRM refuses the credentials: %s") % text)
                case _:
                    text = _("The CRM answers the test with an error: %s")
                    raise Unavailable(text % sentence(outcome))
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
            raise_for(response, self.settings.answer.throttled_seconds)
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
