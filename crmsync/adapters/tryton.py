"""Tryton over JSON-RPC: records of one model, found by a field with unique values.

    search_read    which keys exist, and under which ids
    create         those that do not
    write          those that do, several in one call; a deleted record becomes inactive

Each of these calls is all or nothing. The model needs the field `active`.

Errors come with HTTP 200. A session is opened with the first call, and anew once when it has ended.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crmsync.adapters import answers, tryton_contacts
from crmsync.adapters.base import (
    AdapterCredentials,
    AdapterSettings,
    CredentialsRefused,
    Field,
    Record,
    Stored,
)
from crmsync.adapters.client import decoded, wait_seconds
from crmsync.adapters.outcomes import Auth, Invalid, Ok, Outcome, Refused, Retry, Throttled, Unknown
from crmsync.adapters.rest import RestAdapter
from crmsync.adapters.tryton_contacts import Contacts
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.http.engine import Response

_ALL = {"active_test": False}  # inactive records too
_LOGIN_FLOOD_SECONDS = 60.0
# What a person has to change in the record; other errors are faults of the server's own.
_OF_RECORD = ("UserError", "UserWarning")
_LATER = ("ConcurrencyException", "DatabaseOperationalError", "DatabaseTimeoutError")


class TrytonSettings(AdapterSettings, frozen=True, kw_only=True):
    """`url` is the server's, `database` the name of its database. `key_field` is a field of
    `model` with unique values; it holds the key."""

    url: str
    database: str
    user: str
    model: str = "party.party"
    key_field: str = "code"


class TrytonCredentials(AdapterCredentials, frozen=True, kw_only=True):
    password: str


@dataclass(frozen=True, slots=True)
class Held:
    """A record in Tryton; one that is not active is hidden."""

    id: int
    key: str
    active: bool


class RpcError(Exception):
    """The server answered a call with an error; `kind` is the name of its exception."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message or kind)
        self.kind = kind


class NotAnswered(Exception):
    """A call was not answered as it should be; `outcome` says what that means for its records."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


class TrytonAdapter(RestAdapter):
    name = "tryton"
    title = "Tryton"
    Settings = TrytonSettings
    Credentials = TrytonCredentials
    batch_size = 200
    is_upsert = True

    settings: TrytonSettings
    credentials: TrytonCredentials

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        super().__init__(settings, credentials)
        self._session = ""
        self._names: frozenset[str] | None = None

    def secrets(self) -> Iterable[str]:
        return [*super().secrets(), self._session]

    # -- writing ---------------------------------------------------------------------------------
    def store(self, batch: Sequence[Record]) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        try:
            known = self._known_fields()
            held = self._held(batch)
        except (NotAnswered, RpcError) as error:
            return dict.fromkeys((r.key for r in batch), self._meaning(error, 1, sent=False))
        new: list[Record] = []
        old: list[Record] = []
        gone: list[Record] = []
        for record in batch:
            odd = next((name for name in record.fields if name not in known), None)
            if record.deleted and (record.key not in held or not held[record.key].active):
                remote_id = str(held[record.key].id) if record.key in held else ""
                outcomes[record.key] = Ok(remote_id, created=False)
            elif record.deleted:
                gone.append(record)
            elif odd is not None:
                outcomes[record.key] = Invalid(odd, f"{self.settings.model} has no field {odd}.")
            else:
                (old if record.key in held else new).append(record)
        created = self._together(new, lambda: self._create(new))
        if len(new) == 1 and isinstance(created[new[0].key], Invalid):
            created = self._late(new[0], created)
        outcomes.update(created)
        outcomes.update(self._together(old, lambda: self._write(old, held)))
        outcomes.update(self._together(gone, lambda: self._hide(gone, held)))
        return outcomes

    def _together(
        self, records: Sequence[Record], call: Callable[[], dict[str, Outcome]]
    ) -> dict[str, Outcome]:
        """The outcomes of a call that is all or nothing."""
        if not records:
            return {}
        try:
            return call()
        except (NotAnswered, RpcError) as error:
            outcome = self._meaning(error, len(records), sent=True)
            return {record.key: outcome for record in records}

    def _create(self, records: Sequence[Record]) -> dict[str, Outcome]:
        key = self.settings.key_field
        given = [{**self._values(record, 0, {}), key: record.key} for record in records]
        made = self._call("create", given)
        if not isinstance(made, list) or len(made) != len(records):
            raise NotAnswered(Unknown("Tryton's answer has no id for each record."))
        return {
            record.key: Ok(str(remote_id), created=True)
            for record, remote_id in zip(records, made, strict=True)
        }

    def _late(self, record: Record, created: dict[str, Outcome]) -> dict[str, Outcome]:
        """A key that is not unique: perhaps an earlier call, which was not answered, came late."""
        try:
            if record.key not in self._held([record]):
                return created
            why = "An earlier call has stored the record meanwhile."
        except (NotAnswered, RpcError):
            why = "It is not known whether an earlier call has stored the record."
        return {record.key: Retry(0.0, why)}

    def _write(self, records: Sequence[Record], held: Mapping[str, Held]) -> dict[str, Outcome]:
        # Before the changes and in a call of its own: a hidden record takes no others.
        hidden = [held[r.key].id for r in records if not held[r.key].active]
        if hidden:
            self._call("write", hidden, {"active": True})
        contacts = self._contacts(records, held)
        pairs: list[Any] = []
        for record in records:
            has = held[record.key]
            values = self._values(record, has.id, contacts)
            if has.key != record.key:
                values[self.settings.key_field] = record.key
            if values:
                pairs += [[has.id], values]
        if pairs:
            self._call("write", *pairs)
        return {record.key: Ok(str(held[record.key].id), created=False) for record in records}

    def _hide(self, records: Sequence[Record], held: Mapping[str, Held]) -> dict[str, Outcome]:
        self._call("write", [held[record.key].id for record in records], {"active": False})
        return {record.key: Ok(str(held[record.key].id), created=False) for record in records}

    def _values(self, record: Record, party: int, contacts: Contacts) -> dict[str, Any]:
        if self.settings.model != tryton_contacts.MODEL:
            return dict(record.fields)
        return tryton_contacts.values(record.fields, party, contacts)

    def _contacts(self, records: Sequence[Record], held: Mapping[str, Held]) -> Contacts:
        if self.settings.model != tryton_contacts.MODEL:
            return {}
        ids = [held[r.key].id for r in records if tryton_contacts.TYPES & r.fields.keys()]
        if not ids:
            return {}
        domain = [["party", "in", ids], ["type", "in", sorted(tryton_contacts.TYPES)]]
        names = ["party", "type", "value"]
        return tryton_contacts.first(self._search(domain, names, tryton_contacts.CONTACTS, {}))

    def _held(self, records: Sequence[Record]) -> dict[str, Held]:
        """What Tryton holds of these records, by their keys."""
        key = self.settings.key_field
        by_id = {int(r.remote_id): r.key for r in records if r.remote_id.isdigit()}
        keys = [record.key for record in records if not record.remote_id.isdigit()]
        domain = ["OR", [[key, "in", keys]], [["id", "in", list(by_id)]]]
        held: dict[str, Held] = {}
        for row in self._search(domain, [key, "active"]):
            number = int(row["id"])
            found = Held(number, str(row[key]), bool(row["active"]))
            held[by_id.get(number, found.key)] = found
        return held

    def _known_fields(self) -> Collection[str]:
        if self._names is None:
            self._names = frozenset(self._call("fields_get", [], 0))
        return self._names

    # -- reading ---------------------------------------------------------------------------------
    def fields(self) -> Mapping[str, Field]:
        try:
            known = self._call("fields_get", [], 0)
            self._names = frozenset(known)
        except (NotAnswered, RpcError) as error:
            raise self._error(error) from None
        given = self.settings
        if given.key_field not in known:
            raise InvalidInput(f"{given.model} has no field {given.key_field}.", "key_field")
        return {
            name: Field(
                name,
                str(each.get("type", "")),
                bool(each.get("required")),
                not each.get("readonly"),
                int(each.get("size") or 0),
            )
            for name, each in known.items()
            if name != given.key_field
        }

    def read(self, keys: Collection[str]) -> Mapping[str, Stored]:
        names = [name for name, field in self.fields().items() if field.writable]
        key = self.settings.key_field
        try:
            rows = self._search([[key, "in", sorted(keys)]], sorted({key, "active", *names}))
        except (NotAnswered, RpcError) as error:
            raise self._error(error) from None
        return {
            str(row[key]): Stored(
                str(row["id"]), {name: row.get(name) for name in names}, not row.get("active", True)
            )
            for row in rows
        }

    def _search(
        self,
        domain: Sequence[Any],
        names: Sequence[str],
        model: str = "",
        context: Mapping[str, Any] = _ALL,
    ) -> list[dict[str, Any]]:
        asked = (domain, 0, None, None, list(names))
        return list(self._call("search_read", *asked, context=context, model=model))

    # -- calls -----------------------------------------------------------------------------------
    def _call(
        self, method: str, *params: Any, context: Mapping[str, Any] | None = None, model: str = ""
    ) -> Any:
        """The result of a method of the model. Raises NotAnswered or RpcError."""
        name = f"model.{model or self.settings.model}.{method}"
        if not self._session:
            self._log_in()
        response = self._ask(name, [*params, dict(context or {})])
        if response.status == 401:
            self._log_in()
            response = self._ask(name, [*params, dict(context or {})])
        return self._result(response)

    def _log_in(self) -> None:
        given, self._session = self.settings, ""
        asked = [given.user, {"password": self.credentials.password}]
        response = self._ask("common.db.login", asked)
        if response.status == 401:
            raise NotAnswered(Auth("Tryton refuses the user or the password."))
        if response.status == 429:
            raise NotAnswered(Throttled(wait_seconds(response) or _LOGIN_FLOOD_SECONDS))
        if response.status == 404:
            raise NotAnswered(Auth(f"Tryton has no database {given.database}."))
        found = self._result(response)
        if not isinstance(found, list) or len(found) < 2:
            raise NotAnswered(Auth("Tryton asks for more than a password."))
        session = f"{given.user}:{found[0]}:{found[1]}"
        self._session = base64.b64encode(session.encode()).decode()

    def _ask(self, method: str, params: Sequence[Any]) -> Response:
        given = self.settings
        headers = [("authorization", f"Session {self._session}")] if self._session else []
        url = f"{given.url.rstrip('/')}/{given.database}/rpc/"
        return self.client.ask("POST", url, headers, {"id": 1, "method": method, "params": params})

    def _result(self, response: Response) -> Any:
        if outcome := answers.judged(response, 1, is_upsert=True):
            raise NotAnswered(outcome)
        body = decoded(response)
        if not isinstance(body, dict) or not ("result" in body or "error" in body):
            raise NotAnswered(Unknown("The answer is not Tryton's: is this the right address?"))
        if error := body.get("error"):
            raise RpcError(str(error[0]), _message(error))
        return body["result"]

    def _meaning(self, error: NotAnswered | RpcError, size: int, sent: bool) -> Outcome:
        if isinstance(error, NotAnswered):
            outcome = error.outcome
            # Looking for the keys changed nothing.
            if isinstance(outcome, Unknown) and not sent:
                return Retry(0.0, outcome.message)
            return outcome
        text = f"{error.kind}: {error}" if error.kind not in _OF_RECORD else str(error)
        if error.kind in _LATER:
            return Retry(0.0, text)
        if not sent:
            return Auth(text)  # the model or the key field does not exist, or may not be read
        return Refused(text) if size > 1 else Invalid("", text)

    def _error(self, error: NotAnswered | RpcError) -> Exception:
        if isinstance(error, NotAnswered):
            text = self.clean(_said(error.outcome))
            if isinstance(error.outcome, Auth):
                return CredentialsRefused(text)
            return Unavailable(f"Tryton cannot be reached: {text}")
        model = self.settings.model
        return InvalidInput(f"The model {model} cannot be used: {self.clean(str(error))}", "model")


def _message(error: Sequence[Any]) -> str:
    """['UserError', ['The code on party must be unique.', '', None]], or [text, details]."""
    said = error[1] if len(error) > 1 else ""
    if isinstance(said, list):
        return " ".join(str(part) for part in said if isinstance(part, str) and part)
    return ""  # details of a fault are a stack of the server's own


def _said(outcome: Outcome) -> str:
    match outcome:
        case Auth(message=text) | Unknown(message=text) | Invalid(message=text):
            return text
        case Retry(why=text):
            return text
    return str(outcome)
