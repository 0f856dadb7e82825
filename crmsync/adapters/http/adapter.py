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
    Check,
    CredentialsRefused,
    CRMAdapter,
    Field,
    Record,
    Stored,
    TooManyCalls,
)
from crmsync.adapters.client import HttpClient, decoded, described, raise_for
from crmsync.adapters.http import reading
from crmsync.adapters.http.answer import understand, without_id
from crmsync.adapters.http.requests import Requests
from crmsync.adapters.http.settings import (
    Call,
    HttpCredentials,
    HttpSettings,
    ReadCall,
    check_templates,
)
from crmsync.adapters.http.template import places
from crmsync.adapters.outcomes import (
    Auth,
    Conflict,
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
        for name, value in credentials.items():
            if not isinstance(value, str):
                text = _('The credential %(name)s is no text: write it as {"%(name)s": "…"}.')
                raise InvalidInput(text % {"name": name}, "credentials")
        super().__init__(settings, {"values": dict(credentials)})
        given = self.settings
        check_templates(given, self.credentials.values)
        self.is_upsert = given.is_upsert
        self.batch_size = given.batch_size or given.records_per_call * given.concurrency
        self._client = HttpClient(given.concurrency, given.timeout)
        self._requests = Requests(self._client, given, self.credentials)

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
                requests.append(self._requests.of(group, call))
            except (UnicodeEncodeError, TypeError, ValueError, OverflowError) as error:
                outcomes.update((r.key, _unwritable(error, len(group))) for r in group)
            else:
                sent.append((group, call))
        gone: dict[str, tuple[Record, str]] = {}
        for (group, call), response in zip(sent, self._client.exchange(requests), strict=True):
            if call and self._is_gone(response):
                gone.update((record.key, (record, described(response))) for record in group)
                continue
            understood = self._understood(group, call, response)
            outcomes.update(zip((record.key for record in group), understood, strict=True))
        anew = self._to_store_anew(gone, outcomes)
        if anew:
            outcomes.update(zip((r.key for r in anew), self.deliver(anew), strict=True))
        return [outcomes[record.key] for record in batch]

    def _to_store_anew(
        self, gone: Mapping[str, tuple[Record, str]], outcomes: dict[str, Outcome]
    ) -> list[Record]:
        """Of records that the CRM did not find, those that are to be stored by key. The others get
        an outcome: where the address of the call may be wrong, `read` has the last word."""
        given = self.settings
        deletions = {key for key, (r, _text) in gone.items() if r.deleted and given.delete}
        doubted = gone.keys() if not self.is_upsert else deletions
        found: Mapping[str, Stored] = {}
        failed: Outcome | None = None
        if given.read and doubted:
            wrong = Auth(_("The record cannot be looked for: is `read` right?"))
            found, failed = self._looked_up(doubted, wrong)
        anew: list[Record] = []
        for key, (record, text) in gone.items():
            stored = found.get(key)
            if key in doubted and failed:
                outcomes[key] = failed
            elif stored and not stored.deleted and stored.remote_id not in ("", record.remote_id):
                outcomes[key] = Conflict(stored.remote_id, has_key=True)  # under another id by now
            elif stored and not stored.deleted:
                outcomes[key] = Auth(_("%s: is this the right address?") % text)
            elif key in deletions:
                outcomes[key] = Ok(record.remote_id, created=False)
            else:
                anew.append(dataclasses.replace(record, remote_id=""))
        return anew

    def _looked_up(
        self, keys: Collection[str], refused: Outcome
    ) -> tuple[Mapping[str, Stored], Outcome | None]:
        """As `read`, but what it raises is an outcome: `refused` without such a call, or when it is
        refused."""
        try:
            return self.read(keys), None
        except CredentialsRefused as error:
            return {}, Auth(str(error))
        except TooManyCalls as error:
            return {}, Throttled(error.after)
        except Unavailable as error:
            return {}, Retry(0.0, str(error))
        except InvalidInput:
            return {}, refused

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
        unknown = Invalid("", _("The record cannot be deleted: its id in the CRM is not known."))
        found, failed = self._looked_up(nameless, unknown)
        ids = {key: stored.remote_id for key, stored in found.items() if stored.remote_id}
        held = {key for key, stored in found.items() if not stored.deleted}
        for key in nameless - ids.keys():
            # What the CRM does not hold is deleted.
            outcomes[key] = failed or (unknown if key in held else Ok("", created=False))
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
        is_one = call is None and given.records_per_call == 1
        doubt = without_id(given.answer, response) if is_one else None
        # An answer without a body leaves the id as it is known.
        return [
            outcome
            if outcome != Ok("")
            else doubt
            if doubt and not (record.remote_id or record.deleted)
            else Ok(record.remote_id)
            for record, outcome in zip(group, understood, strict=True)
        ]

    # -- reading ---------------------------------------------------------------------------------
    def fields(self) -> Mapping[str, Field] | None:
        """The fields that the settings list; calls `test` when there is such a call."""
        given = self.settings
        if given.test:
            request = self._requests.about(Record("", 0, {}), given.test)
            response = self._client.exchange([request])[0]
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

    def check(self, names: Collection[str] = ()) -> Check:
        """Without the call `test` only whether a server answers at `url`: no record is sent."""
        checked = super().check(names)
        if checked.kind != "ok" or self.settings.test:
            return checked
        call = Call(url=self.settings.url, method="OPTIONS")
        response = self._client.exchange([self._requests.about(Record("", 0, {}), call)])[0]
        if not response.status or response.error:
            text = _("The CRM cannot be reached: %s") % described(response)
            return Check("unreachable", self.clean(text))
        text = _(
            "Not tested: a server answers (HTTP %d), but whether it accepts the credentials is not "
            "known. Set `test`, or use Test lead."
        )
        return Check("untested", text % response.status)

    def read(self, keys: Collection[str]) -> Mapping[str, Stored]:
        call = self.settings.read
        if call is None:
            raise InvalidInput(_("No call is set that reads a record."), "read")
        return self._each(call, {key: Record(key, 0, {}) for key in keys})

    def read_ids(self, remote_ids: Collection[str], names: Collection[str]) -> Mapping[str, Stored]:
        call = self.settings.read_by_id
        if call is None:
            raise InvalidInput(
                _(
                    "The CRM holds this person as another record, and which of its fields are "
                    "empty is not known: set `read_by_id`, or what the policy does on a conflict."
                ),
                "read_by_id",
            )
        return self._each(call, {each: Record("", 0, {}, remote_id=each) for each in remote_ids})

    def _each(self, call: ReadCall, records: Mapping[str, Record]) -> Mapping[str, Stored]:
        requests = [self._requests.about(record, call) for record in records.values()]
        found: dict[str, Stored] = {}
        for name, response in zip(records, self._client.exchange(requests), strict=True):
            if held := reading.stored(call, self.settings.answer, response):
                found[name] = held
        return found


def _unwritable(error: Exception, size: int) -> Outcome:
    text = _("The values cannot be written as JSON: %s.") % type(error).__name__
    return Invalid("", text) if size == 1 else Refused(text)
