"""Any HTTP/JSON interface: its calls and how to read their answers are settings."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from django.utils.translation import gettext as _, gettext_lazy

from crmsync.adapters.base import (
    Check,
    CredentialsRefused,
    CRMAdapter,
    Field,
    Record,
    RequestRefused,
    Stored,
    outcome_of_error,
)
from crmsync.adapters.client import HttpClient, describe, raise_for, read_json
from crmsync.adapters.http.answer import outcome_without_id, outcomes_of
from crmsync.adapters.http.settings import (
    Call,
    HttpCredentials,
    HttpSettings,
    ReadCall,
    Requests,
    check_templates,
)
from crmsync.adapters.http.template import find_unsafe_place, places, values_of
from crmsync.adapters.outcomes import (
    Auth,
    Conflict,
    Invalid,
    Ok,
    Outcome,
    Refused,
    note_gone,
    sentence,
)
from crmsync.adapters.records import NOT_JSON, describe_not_json
from msgplatform.core.data import chunks
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.http.engine import Request, Response


class HttpAdapter(CRMAdapter):
    """Makes calls from records by templates. Credentials are any names with their values."""

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
        own_settings = self.settings
        check_templates(own_settings, self.credentials.values)
        self.is_upsert = own_settings.is_upsert
        self.batch_size = (
            own_settings.batch_size or own_settings.records_per_call * own_settings.concurrency
        )
        self._client = HttpClient(own_settings, own_settings.concurrency, own_settings.timeout)
        self._requests = Requests(self._client, own_settings, self.credentials)

    def secrets(self) -> Iterable[str]:
        for value in self.credentials.values.values():
            # Also mask the forms of a secret in URLs and in JSON.
            yield from {value, quote(value, safe=""), json.dumps(value)[1:-1],
                        json.dumps(value, ensure_ascii=False)[1:-1]}  # fmt: skip

    def close(self) -> None:
        self._client.close()

    def calls(self, records: Sequence[Record], is_look_up: bool = False) -> int:
        if is_look_up:  # a call reads one record
            return len(records)
        alone_count = sum(self._own_call(record) is not None for record in records)
        read_count = len(self._keys_without_id(records))
        read_count += sum(record.should_fill_empty and not record.deleted for record in records)
        storable_count = len(records) - alone_count
        return alone_count + read_count + -(-storable_count // self.settings.records_per_call)

    # -- writing ---------------------------------------------------------------------------------
    def deliver(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        settings = self.settings
        outcomes: dict[str, Outcome] = {}
        groups: list[tuple[Sequence[Record], Call | None]] = []
        storable: list[Record] = []
        for record in self._add_remote_ids(self._addressable(batch, outcomes), outcomes):
            if call := self._own_call(record):
                groups.append(([record], call))
            else:
                storable.append(record)
        # Each group becomes a request. A group without a call of its own goes to `url`.
        groups += [(group, None) for group in chunks(storable, settings.records_per_call)]
        request_groups: list[tuple[Sequence[Record], Call | None]] = []
        requests: list[Request] = []
        for group, call in groups:
            try:
                requests.append(self._requests.of(group, call))
            except NOT_JSON as error:
                text = describe_not_json(error)
                outcome = Invalid("", text) if len(group) == 1 else Refused(text)
                outcomes.update((record.key, outcome) for record in group)
            else:
                request_groups.append((group, call))
        missing: dict[str, tuple[Record, str]] = {}
        for (group, call), response in zip(
            request_groups, self._client.exchange(requests), strict=True
        ):
            # A 404 or 410 says that the CRM has no record with this remote id.
            status, statuses = str(response.status), settings.answer.statuses
            if call and status in ("404", "410") and status not in statuses:
                missing.update((record.key, (record, describe(response))) for record in group)
                continue
            group_outcomes = self._outcomes(group, call, response)
            outcomes.update(zip((record.key for record in group), group_outcomes, strict=True))
        restorable = self._restorable(missing, outcomes)
        if restorable:
            later_outcomes = map(note_gone, self.deliver(restorable))
            outcomes.update(zip((r.key for r in restorable), later_outcomes, strict=True))
        return [outcomes[record.key] for record in batch]

    def _addressable(
        self, batch: Sequence[Record], outcomes: dict[str, Outcome]
    ) -> Sequence[Record]:
        """The records that the addresses of their calls can name. Each other record gets an
        outcome. A record that `read` cannot ask for could never be looked up."""
        settings = self.settings
        for record in batch:
            call = self._own_call(record) or settings
            place = find_unsafe_place(call.url, values_of(record))
            if not place and settings.read:
                place = find_unsafe_place(settings.read.url, {"key": record.key})
            if place:
                text = _("{%s} is a part of the address: it cannot be empty, “.” or “..”.") % place
                outcomes[record.key] = Invalid(place.partition(".")[2], text)
        return [record for record in batch if record.key not in outcomes]

    def _own_call(self, record: Record) -> Call | None:
        """The call that sends this record alone. None: it goes to `url`, with others."""
        settings = self.settings
        if record.deleted and settings.delete:
            return settings.delete
        return settings.update if record.remote_id else None

    def _keys_without_id(self, batch: Sequence[Record]) -> set[str]:
        """The keys of deletions whose remote ids have to be read: the deleting call names them."""
        call = self.settings.delete
        if call is None:
            return set()
        names = {*places(call.url), *places(call.body)}
        if "key" not in names:  # else a header for other calls may have the id
            names.update(places(list(self.settings.headers.values())))
        if "remote_id" not in names:
            return set()
        return {r.key for r in batch if r.deleted and not r.remote_id}

    def _restorable(
        self, missing: Mapping[str, tuple[Record, str]], outcomes: dict[str, Outcome]
    ) -> list[Record]:
        """The records among `missing` that are stored anew, by key. The other records get an
        outcome. Where the address of the call may be wrong, `read` decides."""
        settings = self.settings
        deletions = {key for key, (r, _text) in missing.items() if r.deleted and settings.delete}
        uncertain_keys = missing.keys() if not self.is_upsert else deletions
        records_by_key: Mapping[str, Stored] = {}
        failure: Outcome | None = None
        if settings.read and uncertain_keys:
            records_by_key, failure = self._try_read(uncertain_keys, is_read_doubtful=True)
        restorable: list[Record] = []
        for key, (record, text) in missing.items():
            held_record = records_by_key.get(key)
            if key in uncertain_keys and failure:
                outcomes[key] = failure
            elif held_record and not held_record.deleted:
                # The CRM may hold the record under another id by now.
                is_moved = held_record.remote_id not in ("", record.remote_id)
                outcomes[key] = (
                    Conflict(held_record.remote_id, has_key=True)
                    if is_moved
                    else Auth(_("%s: is this the right address?") % text)
                )
            elif key in deletions:
                outcomes[key] = Ok(record.remote_id, created=False)
            else:
                restorable.append(msgspec.structs.replace(record, remote_id=""))
        return restorable

    def _try_read(
        self, keys: Collection[str], is_read_doubtful: bool = False
    ) -> tuple[Mapping[str, Stored], Outcome | None]:
        """Like `read`, but errors become outcomes. With `is_read_doubtful` a refusal kills no
        record unless the CRM's test passes: the address of `read` may be wrong."""
        try:
            return self.read(keys), None
        except (CredentialsRefused, Unavailable) as error:
            return {}, outcome_of_error(error)
        except InvalidInput as error:
            outcome = outcome_of_error(error, len(keys))
            if is_read_doubtful and not isinstance(outcome, Refused):
                is_of_record = isinstance(error, RequestRefused) and self.settings.test is not None
                text = _("The record cannot be looked for: is `read` right?")
                outcome = Auth(text, of_record=is_of_record)
            return {}, outcome

    def _add_remote_ids(
        self, batch: Sequence[Record], outcomes: dict[str, Outcome]
    ) -> Sequence[Record]:
        """Add the remote ids that the deleting call names. A record without a remote id is left out
        and gets an outcome: the call might delete another record."""
        keys_without_id = self._keys_without_id(batch)
        if not keys_without_id:
            return batch
        unknown = Invalid("", _("The record cannot be deleted: its id in the CRM is not known."))
        if self.settings.read:
            records_by_key, failure = self._try_read(keys_without_id)
        else:
            records_by_key, failure = {}, unknown
        ids = {
            key: held_record.remote_id
            for key, held_record in records_by_key.items()
            if held_record.remote_id
        }
        held_keys = {key for key, held_record in records_by_key.items() if not held_record.deleted}
        for key in keys_without_id - ids.keys():
            # A record that the CRM does not hold is deleted.
            outcomes[key] = failure or (unknown if key in held_keys else Ok("", created=False))
        return [
            msgspec.structs.replace(record, remote_id=ids[record.key])
            if record.key in ids
            else record
            for record in batch
            if record.key not in outcomes
        ]

    def _outcomes(
        self, group: Sequence[Record], call: Call | None, response: Response
    ) -> list[Outcome]:
        settings = self.settings
        # A wrong address concerns all records, not this one.
        status, rules = str(response.status), settings.answer
        is_fixed = all(place.startswith("secret.") for place in places(settings.url))
        is_missing = status in ("404", "405", "410") and status not in rules.statuses
        if call is None and is_fixed and is_missing and rules.code_of(read_json(response)) is None:
            text = _("%s: is this the right address?") % describe(response)
            return [Auth(text)] * len(group)
        # A deletion can be repeated whatever the storing call is.
        is_upsert = self.is_upsert or bool(call and call is settings.delete)
        outcomes = outcomes_of(rules, response, group, is_upsert)
        # Without a test call nobody knows whether the CRM refuses more than this record.
        outcomes = [
            Auth(outcome.message) if isinstance(outcome, Auth) and not settings.test else outcome
            for outcome in outcomes
        ]
        is_alone = call is None and settings.records_per_call == 1
        doubt = outcome_without_id(rules, response) if is_alone else None
        for number, record in enumerate(group):
            if outcomes[number] == Ok(""):
                # An answer without a body leaves the id as it is known.
                has_id = bool(record.remote_id) or record.deleted
                outcomes[number] = doubt if doubt and not has_id else Ok(record.remote_id)
        return outcomes

    # -- reading ---------------------------------------------------------------------------------
    def fields(self) -> Mapping[str, Field] | None:
        """The fields that the settings list; calls `test` when there is such a call."""
        settings = self.settings
        if settings.test:
            request = self._requests.about(Record("", 0, {}), settings.test)
            response = self._client.exchange([request])[0]
            raise_for(response)
            # The test concerns no record: its answer has no list of results.
            rules = msgspec.structs.replace(settings.answer, results="", failures="")
            outcome = outcomes_of(rules, response, [Record("", 0, {})], True)[0]
            match outcome:
                case Ok():
                    pass
                case Auth(message=text):
                    raise CredentialsRefused(_("The CRM refuses the credentials: %s") % text)
                case _:
                    text = _("The CRM answers the test with an error: %s")
                    raise Unavailable(text % sentence(outcome))
        return {name: Field(name) for name in settings.fields} or None

    def check(self, names: Collection[str] = ()) -> Check:
        """Only tells whether a server answers at `url` when there is no call `test`."""
        result = super().check(names)
        if result.kind != "ok" or self.settings.test:
            return result
        call = Call(url=self.settings.url, method="OPTIONS")
        response = self._client.exchange([self._requests.about(Record("", 0, {}), call)])[0]
        if not response.status or response.error:
            text = _("The CRM cannot be reached: %s") % describe(response)
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
        # Nothing is stored under a key that cannot be asked for.
        keys = [key for key in keys if not find_unsafe_place(call.url, {"key": key})]
        return self._read_with(call, {key: Record(key, 0, {}) for key in keys})

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
        return self._read_with(
            call, {remote_id: Record("", 0, {}, remote_id=remote_id) for remote_id in remote_ids}
        )

    def _read_with(self, call: ReadCall, records: Mapping[str, Record]) -> Mapping[str, Stored]:
        requests = [self._requests.about(record, call) for record in records.values()]
        stored_records: dict[str, Stored] = {}
        for name, response in zip(records, self._client.exchange(requests), strict=True):
            try:
                held_record = call.read_record(self.settings.answer, response)
            except CredentialsRefused as error:
                # As with the call that stores: without `test` it may concern all records.
                error.of_record = response.status == 403 and self.settings.test is not None
                raise
            if held_record:
                stored_records[name] = held_record
        return stored_records
