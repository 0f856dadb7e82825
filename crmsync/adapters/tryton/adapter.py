"""Tryton over JSON-RPC: records of one model, found by a field with unique values.

    search_read    finds the ids of existing records by their keys
    create         creates missing records
    write          changes existing records, several in one call; makes deleted records inactive

Each of these calls is all or nothing. The model needs the field `active`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from crmsync.adapters.base import CredentialsRefused, Field, Record, Stored
from crmsync.adapters.client import RestAdapter
from crmsync.adapters.outcomes import Auth, Invalid, Ok, Outcome, Retry, Unknown, sentence
from crmsync.adapters.tryton import session
from crmsync.adapters.tryton.session import NotAnswered, RpcError, Session
from msgplatform.core.errors import InvalidInput, Unavailable

_ALL = {"active_test": False}  # the context of a search for inactive records too
_ACTIVE: Mapping[str, Any] = {}  # that of a search for active records only
_PARTY, _CONTACTS = "party.party", "party.contact_mechanism"
# These fields of a party are its first contact mechanism of the type with the field's name. Contact
# mechanisms are a model of their own, and can be changed only there.
_CONTACT_TYPES = frozenset({"phone", "mobile", "fax", "email", "website"})


class TrytonRecord(msgspec.Struct, frozen=True):
    """A record in Tryton; an inactive one is hidden."""

    id: int
    key: str
    active: bool


class Contact(msgspec.Struct, frozen=True):
    """A phone number or an address of a party."""

    id: int
    value: str


# The first contacts by party and type.
Contacts = Mapping[tuple[int, str], Contact]


class TrytonAdapter(RestAdapter):
    name = "tryton"
    title = "Tryton"
    Settings = session.TrytonSettings
    Credentials = session.TrytonCredentials
    batch_size = 200
    is_upsert = True  # by `store`, which looks for existing records first

    settings: session.TrytonSettings
    credentials: session.TrytonCredentials

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        super().__init__(settings, credentials)
        self._session = Session(self.client, self.settings, self.credentials)
        self._names: frozenset[str] | None = None  # of the model's fields

    def secrets(self) -> Iterable[str]:
        return [*super().secrets(), self._session.token]

    # -- writing ---------------------------------------------------------------------------------
    def store(self, batch: Sequence[Record]) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        try:
            # Read the names again for an unknown field: a module may have added the field.
            sent_names = {name for record in batch if not record.deleted for name in record.fields}
            if self._names is None or not sent_names <= self._names:
                self._names = frozenset(self._session.call("fields_get", [], 0))
            names = self._names
            # Look which records exist: Tryton has no call that creates or updates as needed.
            held_records = self._find(batch)
        except (NotAnswered, RpcError) as error:
            return dict.fromkeys((r.key for r in batch), session.meaning(error, 1, is_change=False))
        new: list[Record] = []
        old: list[Record] = []
        deletions: list[Record] = []
        for record in batch:
            held_record = held_records.get(record.key)
            unknown_name = next((name for name in record.fields if name not in names), None)
            # The record is missing or hidden already: there is nothing to hide.
            if record.deleted and not (held_record and held_record.active):
                remote_id = str(held_record.id) if held_record else ""
                outcomes[record.key] = Ok(remote_id, created=False)
            elif record.deleted:
                deletions.append(record)
            elif unknown_name is not None:
                text = _("%(model)s has no field %(field)s.")
                text %= {"model": self.settings.model, "field": unknown_name}
                outcomes[record.key] = Invalid(unknown_name, text)
            else:
                (old if held_record else new).append(record)
        create_outcomes = self._call_for_all(new, lambda: self._create(new), created=True)
        if len(new) == 1 and isinstance(create_outcomes[new[0].key], Invalid):
            # Perhaps the key exists by now: an earlier call without an answer may have come late.
            try:
                is_stored = new[0].key in self._find(new)
                reason = _("An earlier call has stored the record meanwhile.")
            except (NotAnswered, RpcError):
                is_stored = True
                reason = _("It is not known whether an earlier call has stored the record.")
            if is_stored:
                create_outcomes = {new[0].key: Retry(0.0, reason)}
        outcomes.update(create_outcomes)
        outcomes.update(self._call_for_all(old, lambda: self._write(old, held_records)))
        outcomes.update(self._call_for_all(deletions, lambda: self._hide(deletions, held_records)))
        return outcomes

    def _call_for_all(
        self, records: Sequence[Record], call: Callable[[], Sequence[int]], created: bool = False
    ) -> dict[str, Outcome]:
        """The outcomes of a call that is all or nothing, and returns the ids of the records."""
        if not records:
            return {}
        try:
            ids = call()
        except (NotAnswered, RpcError) as error:
            outcome = session.meaning(error, len(records), is_change=True)
            return {record.key: outcome for record in records}
        pairs = zip(records, ids, strict=True)
        return {record.key: Ok(str(record_id), created) for record, record_id in pairs}

    def _create(self, records: Sequence[Record]) -> list[int]:
        key = self.settings.key_field
        # Tryton answers with the ids in the order of the records.
        rows = [{**self._values(record, 0, {}), key: record.key} for record in records]
        new_ids = self._session.call("create", rows)
        if not isinstance(new_ids, list) or len(new_ids) != len(records):
            raise NotAnswered(Unknown(_("Tryton's answer has no id for each record.")))
        return new_ids

    def _write(
        self, records: Sequence[Record], held_records: Mapping[str, TrytonRecord]
    ) -> list[int]:
        # Show hidden records first, in a call of its own: a hidden record takes no other changes.
        hidden_ids = [held_records[r.key].id for r in records if not held_records[r.key].active]
        if hidden_ids:
            self._session.call("write", hidden_ids, {"active": True})
        contacts: dict[tuple[int, str], Contact] = {}
        ids = [held_records[r.key].id for r in records if _CONTACT_TYPES & r.fields.keys()]
        if ids and self.settings.model == _PARTY:
            domain = [["party", "in", ids], ["type", "in", sorted(_CONTACT_TYPES)]]
            for row in self._search(domain, ["party", "type", "value"], _CONTACTS, _ACTIVE):
                contact = Contact(int(row["id"]), str(row.get("value") or ""))
                contacts.setdefault((int(row["party"]), str(row["type"])), contact)
        pairs: list[Any] = []
        for record in records:
            held_record = held_records[record.key]
            values = self._values(record, held_record.id, contacts)
            # After a conflict the record was found by its id: give it our key.
            if held_record.key != record.key:
                values[self.settings.key_field] = record.key
            if values:
                pairs += [[held_record.id], values]
        if pairs:
            self._session.call("write", *pairs)
        return [held_records[record.key].id for record in records]

    def _hide(
        self, records: Sequence[Record], held_records: Mapping[str, TrytonRecord]
    ) -> list[int]:
        ids = [held_records[record.key].id for record in records]
        self._session.call("write", ids, {"active": False})
        return ids

    def _values(self, record: Record, party: int, contacts: Contacts) -> dict[str, Any]:
        """The fields as Tryton takes them; `party` is 0 for a record that is created."""
        if self.settings.model != _PARTY:
            return dict(record.fields)
        plain = {name: v for name, v in record.fields.items() if name not in _CONTACT_TYPES}
        changes: list[list[Any]] = []
        for kind in sorted(_CONTACT_TYPES & record.fields.keys()):
            value, contact = record.fields[kind], contacts.get((party, kind))
            if value in (None, ""):
                if contact:
                    changes.append(["delete", [contact.id]])
            elif contact is None:
                changes.append(["create", [{"type": kind, "value": value}]])
            elif contact.value != value:
                changes.append(["write", [contact.id], {"value": value}])
        return {**plain, "contact_mechanisms": changes} if changes else plain

    def _find(self, records: Sequence[Record]) -> dict[str, TrytonRecord]:
        """Tryton's records for these records, by their keys."""
        key = self.settings.key_field
        by_id = {int(r.remote_id): r.key for r in records if r.remote_id.isdigit()}
        # One search finds records by id where it is known, and by key otherwise.
        keys = [record.key for record in records if not record.remote_id.isdigit()]
        domain = ["OR", [[key, "in", keys]], [["id", "in", list(by_id)]]]
        held_records: dict[str, TrytonRecord] = {}
        for row in self._search(domain, [key, "active"]):
            number = int(row["id"])
            held_record = TrytonRecord(number, str(row[key]), bool(row["active"]))
            held_records[by_id.get(number, held_record.key)] = held_record
        return held_records

    # -- reading ---------------------------------------------------------------------------------
    def fields(self) -> Mapping[str, Field]:
        try:
            descriptions = self._session.call("fields_get", [], 0)
            self._names = frozenset(descriptions)
        except (NotAnswered, RpcError) as error:
            raise self._error(error) from None
        settings = self.settings
        if settings.key_field not in descriptions:
            words = _("%(model)s has no field %(field)s.")
            names = {"model": settings.model, "field": settings.key_field}
            raise InvalidInput(words % names, "key_field")
        return {
            name: Field(
                name,
                str(description.get("type", "")),
                bool(description.get("required")),
                not description.get("readonly"),
                int(description.get("size") or 0),
            )
            for name, description in descriptions.items()
            if name != settings.key_field
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
        arguments = (domain, 0, None, None, list(names))
        return list(self._session.call("search_read", *arguments, context=context, model=model))

    def _error(self, error: NotAnswered | RpcError) -> Exception:
        if isinstance(error, NotAnswered):
            text = self.clean(sentence(error.outcome))
            if isinstance(error.outcome, Auth):
                return CredentialsRefused(text)
            return Unavailable(_("Tryton cannot be reached: %s") % text)
        model = self.settings.model
        words = _("The model %(model)s cannot be used: %(text)s")
        return InvalidInput(words % {"model": model, "text": self.clean(str(error))}, "model")
