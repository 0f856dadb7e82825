"""HubSpot: batches of up to 100 objects, found by a property with unique values.

    batch/upsert   by the unique property       batch/update    by remote id, after a conflict
    batch/read     what HubSpot holds           batch/archive   a deleted record

HubSpot answers a batch with 200, or with 207 when some records failed. Which part belongs to which
record shows by `objectWriteTraceId`, or by the unique property where that is missing.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import msgspec
from django.utils.translation import gettext as _, gettext_noop
from msgspec.structs import replace

from crmsync.adapters.base import AdapterCredentials, AdapterSettings, Field, Record, Stored
from crmsync.adapters.client import UpsertAdapter, is_whole, json_object, read_json
from crmsync.adapters.hubspot import errors
from crmsync.adapters.outcomes import Conflict, Ok, Outcome, Refused, Retry, Unknown
from msgplatform.core.data import chunks
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.http.engine import Response

_MAX_BATCH = 100
# A time that is no UTC: HubSpot's documentation has times with Z only.
_WITH_OFFSET = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?[+-]\d\d:\d\d")


class HubSpotSettings(AdapterSettings, frozen=True, kw_only=True):
    __doc__ = gettext_noop(
        "`id_property` is a property of the object with unique values that holds the key. The "
        "paths are those of the API's version: `/crm/objects/2026-03` and "
        "`/crm/properties/2026-03` for the one of that date. `time_zone` is the account's: its "
        "daily limit ends at midnight there."
    )

    id_property: str = "hive_id"
    object: str = "contacts"
    base_url: str = "https://api.hubapi.com"
    objects_path: str = "/crm/v3/objects"
    properties_path: str = "/crm/v3/properties"
    time_zone: str = "UTC"


class HubSpotCredentials(AdapterCredentials, frozen=True, kw_only=True):
    __doc__ = gettext_noop("The access token of a private app, or a service key.")

    token: str


class HubSpotAdapter(UpsertAdapter):
    name = "hubspot"
    title = "HubSpot"
    Settings = HubSpotSettings
    Credentials = HubSpotCredentials
    batch_size = _MAX_BATCH
    # A little below the limits of the smallest account, which all its programs share: 100 calls in
    # 10 s, 250,000 a day.
    per_second = 9.0
    per_day = 240_000
    is_upsert = True

    settings: HubSpotSettings
    credentials: HubSpotCredentials

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        super().__init__(settings, credentials)
        errors.check_time_zone(self.settings.time_zone)
        for name in ("objects_path", "properties_path"):
            # Otherwise a path could extend the host's name: api.hubapi.com + .example.com/x.
            if not getattr(self.settings, name).startswith("/"):
                raise InvalidInput(_("Begin the path with /."), name)
        self._headers = [("authorization", f"Bearer {self.credentials.token}")]

    # -- writing ---------------------------------------------------------------------------------
    def upsert(self, records: Sequence[Record]) -> Mapping[str, Outcome]:
        inputs = [
            {"idProperty": self.settings.id_property, "id": record.key, **self._input(record)}
            for record in records
        ]
        return self._outcomes(records, self._batch("upsert", {"inputs": inputs}))

    def update(self, records: Sequence[Record]) -> tuple[dict[str, Outcome], Sequence[Record]]:
        inputs = [{"id": record.remote_id, **self._input(record)} for record in records]
        response = self._batch("update", {"inputs": inputs})
        if len(records) == 1 and errors.is_not_found(response):
            return {}, records
        outcomes = self._outcomes(records, response)
        missing_ids = errors.missing_names(response)
        missing = [r for r in records if {r.key, r.remote_id} & missing_ids]
        for record in missing:
            del outcomes[record.key]
        return outcomes, missing

    def release(self, records: Sequence[Record]) -> Mapping[str, Outcome]:
        # HubSpot refuses a batch that names an id twice. Two leads of one person have one id.
        by_id = {record.remote_id: record for record in records}
        outcomes, missing = self.update(list(by_id.values()))
        outcomes.update((record.key, Ok(record.remote_id, created=False)) for record in missing)
        return {r.key: outcomes[by_id[r.remote_id].key] for r in records}

    def _input(self, record: Record) -> dict[str, Any]:
        values = {name: _text(value) for name, value in record.fields.items()}
        # A record that people made gets no key: after a restore of the platform's database the key
        # would make it ours. A deletion removes a key that a merge may have given it.
        has_key = record.deleted or not record.is_adopted
        key = {self.settings.id_property: "" if record.deleted else record.key} if has_key else {}
        properties = {**values, **key}
        # HubSpot repeats the trace id in the results and errors of a batch.
        return {"properties": properties, "objectWriteTraceId": record.key}

    def _outcomes(self, records: Sequence[Record], response: Response) -> dict[str, Outcome]:
        body = read_json(response)
        if not is_whole(response) or not isinstance(body, dict):
            outcome = self._refusal(response, len(records))
            return {record.key: outcome for record in records}
        outcomes: dict[str, Outcome] = {}
        by_key = {record.key: record for record in records}
        by_id = {record.remote_id: record.key for record in records if record.remote_id}
        for result in body.get("results") or ():
            remote_id = str(result.get("id", ""))
            record = by_key.get(str(result.get("objectWriteTraceId") or ""))
            if record is None:  # it came without the trace id
                properties = result.get("properties") or {}
                key = str(properties.get(self.settings.id_property) or "")
                record = by_key.get(key) or by_key.get(by_id.get(remote_id, ""))
            if record is None:
                continue
            is_known = bool(record.remote_id) and not (
                record.is_adopted or record.should_fill_empty
            )
            if is_known and remote_id not in ("", record.remote_id):
                # People have merged the record into another contact, which may be a customer's: the
                # contact is theirs now.
                outcomes[record.key] = Conflict(remote_id, is_gone=True)
            else:
                outcomes[record.key] = Ok(remote_id, result.get("new"))
        faults = list(body.get("errors") or ())
        by_sent_id = {record.remote_id or record.key: record.key for record in records}
        for error in faults:
            outcome = errors.of_record(error, self.settings.time_zone)
            traces, ids = errors.names_in(error)
            keys_at_fault = (traces & by_key.keys()) | {
                by_sent_id[remote_id] for remote_id in ids if remote_id in by_sent_id
            }
            outcomes.update(dict.fromkeys(keys_at_fault, outcome))
        keys_left = [record.key for record in records if record.key not in outcomes]
        if keys_left and len(faults) == len(records) == 1:
            outcomes[keys_left[0]] = errors.of_record(faults[0], self.settings.time_zone)
        elif keys_left:
            # The error cannot be matched with a record: sent alone, each record gets its own.
            text = _("HubSpot did not say what became of the record.")
            unclear: Outcome = Refused(text) if len(records) > 1 else Unknown(text)
            outcomes.update(dict.fromkeys(keys_left, unclear))
        return outcomes

    def delete(self, records: Sequence[Record]) -> Mapping[str, Outcome]:
        """Archive records, after looking up the ids that are not known. A contact into which people
        have merged a record is theirs and stays, without our key."""
        ids = {record.key: record.remote_id for record in records if record.remote_id}
        id_property, outcomes = self.settings.id_property, dict[str, Outcome]()
        contacts: Mapping[str, Stored] = {}
        if known_ids := sorted(set(ids.values())):
            response = self._read_ids(known_ids, [id_property])
            if not is_whole(response) and not errors.is_not_found(response):
                outcome = self._refusal(response, 1)
                return {record.key: outcome for record in records}
            contacts = self._stored_by_id(response, known_ids, [id_property])
        with_our_key = []
        for record in records:
            contact = contacts.get(record.remote_id)
            if contact is not None and contact.remote_id != record.remote_id:
                del ids[record.key]
                outcomes[record.key] = Ok(contact.remote_id, created=False)
                # The key may be that of another lead, whose contact it is.
                if contact.fields.get(id_property) == record.key:
                    with_our_key.append(replace(record, remote_id=contact.remote_id))
        if with_our_key:
            outcomes.update(self.release(with_our_key))
        keys_without_id = [record.key for record in records if not record.remote_id]
        if keys_without_id:
            response = self._read_batch(keys_without_id, ())
            if not is_whole(response):
                outcome = self._refusal(response, 1)
                return {record.key: outcome for record in records}
            try:
                records_by_key = self._stored_records(response)
            except Unavailable as error:
                return {record.key: Retry(0.0, str(error)) for record in records}
            ids.update((key, crm_record.remote_id) for key, crm_record in records_by_key.items())
        if ids:
            inputs = [{"id": remote_id} for remote_id in ids.values()]
            response = self._batch("archive", {"inputs": inputs})
            if not is_whole(response) and not (len(ids) == 1 and errors.is_not_found(response)):
                outcome = self._refusal(response, len(ids))
                return {record.key: outcome for record in records}
        return {
            record.key: outcomes.get(record.key, Ok(ids.get(record.key, ""), created=False))
            for record in records
        }

    def _refusal(self, response: Response, size: int) -> Outcome:
        if is_whole(response):
            return Retry(0.0, _("HubSpot's answer is no JSON object."))
        return errors.of_batch(response, size, self.settings.time_zone, self.settings.id_property)

    # -- reading ---------------------------------------------------------------------------------
    def fields(self) -> Mapping[str, Field]:
        settings = self.settings
        response = self.client.ask(
            "GET", f"{settings.base_url}{settings.properties_path}/{settings.object}", self._headers
        )
        properties = {entry["name"]: entry for entry in json_object(response).get("results", ())}
        key_property = properties.pop(settings.id_property, None)
        # An upsert by values that are not unique is refused, and a key could find several objects.
        if key_property is None or not key_property.get("hasUniqueValue"):
            raise InvalidInput(
                _(
                    "HubSpot needs a property %(name)s of %(object)s that is set to have "
                    "unique values."
                )
                % {"name": settings.id_property, "object": settings.object},
                "id_property",
            )
        return {
            name: Field(
                name,
                str(entry.get("type", "")),
                writable=not (entry.get("modificationMetadata") or {}).get("readOnlyValue", False),
            )
            for name, entry in properties.items()
        }

    def read(self, keys: Collection[str]) -> Mapping[str, Stored]:
        # HubSpot returns only the properties that are asked for.
        names = sorted(self.fields())
        records_by_key: dict[str, Stored] = {}
        for page in chunks(sorted(keys), _MAX_BATCH):
            records_by_key.update(self._stored_records(self._read_batch(page, names)))
        return records_by_key

    def read_ids(self, remote_ids: Collection[str], names: Collection[str]) -> Mapping[str, Stored]:
        records_by_id: dict[str, Stored] = {}
        for page in chunks(sorted(remote_ids), _MAX_BATCH):
            response = self._read_ids(page, names)
            records_by_id.update(self._stored_by_id(response, page, names))
        return records_by_id

    def _read_ids(self, remote_ids: Sequence[str], names: Collection[str]) -> Response:
        inputs = [{"id": remote_id} for remote_id in remote_ids]
        return self._batch("read", {"inputs": inputs, "properties": sorted(names)})

    def _stored_by_id(
        self, response: Response, remote_ids: Collection[str], names: Collection[str]
    ) -> dict[str, Stored]:
        """The records in the answer to a batch/read of these ids. Raises as `read` does."""
        records_by_id, missing = _records_by_id(response, remote_ids, self._refusal(response, 1))
        # A merged contact has another id in the answer. A request for one id shows its contact.
        for remote_id in sorted(set(remote_ids) - records_by_id.keys() - missing):
            answer = self._read_ids([remote_id], names)
            contact_by_id, missing = _records_by_id(answer, [remote_id], self._refusal(answer, 1))
            if not contact_by_id and remote_id not in missing:
                raise Unavailable(_("HubSpot did not say what it holds of each record."))
            for contact in contact_by_id.values():
                records_by_id[remote_id] = contact
        return records_by_id

    def _read_batch(self, keys: Sequence[str], names: Sequence[str]) -> Response:
        settings = self.settings
        inputs = [{"id": key} for key in keys]
        properties = [settings.id_property, *names]
        body = {"idProperty": settings.id_property, "inputs": inputs, "properties": properties}
        return self._batch("read", body)

    def _stored_records(self, response: Response) -> dict[str, Stored]:
        """The records in the answer to a batch/read. Raises as `read` does."""
        id_property = self.settings.id_property
        body = json_object(response, self._refusal(response, 1))
        for error in body.get("errors") or ():
            if error.get("category") != errors.NOT_FOUND:
                # A record that is not among the results may exist all the same.
                raise Unavailable(str(error.get("message") or error.get("category")))
        records_by_key: dict[str, Stored] = {}
        for result in body.get("results") or ():
            properties = dict(result.get("properties") or {})
            key = properties.pop(id_property, None)
            if key is not None:
                is_archived = bool(result.get("archived"))
                records_by_key[str(key)] = Stored(
                    str(result.get("id", "")), properties, is_archived
                )
        return records_by_key

    def _batch(self, action: str, body: Any) -> Response:
        settings = self.settings
        url = f"{settings.base_url}{settings.objects_path}/{settings.object}/batch/{action}"
        return self.client.ask("POST", url, self._headers, body)


def _records_by_id(
    response: Response, remote_ids: Collection[str], refusal: Outcome
) -> tuple[dict[str, Stored], set[str]]:
    """HubSpot's records by the ids in its answer, and the ids that it does not hold. `refusal` is
    the meaning of an answer without records."""
    if errors.is_not_found(response):  # of several ids it does not say which
        return {}, set(remote_ids) if len(remote_ids) == 1 else set()
    records_by_id: dict[str, Stored] = {}
    for result in json_object(response, refusal).get("results") or ():
        remote_id = str(result.get("id", ""))
        is_archived = bool(result.get("archived"))
        records_by_id[remote_id] = Stored(remote_id, result.get("properties") or {}, is_archived)
    return records_by_id, errors.missing_names(response)


def _text(value: Any) -> str:
    """HubSpot's properties are texts; the empty one clears a value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, str) and _WITH_OFFSET.fullmatch(value):
        # HubSpot says what is wrong with a time that does not exist, or has no year in UTC.
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(value).astimezone(UTC)
            return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    if isinstance(value, list | tuple):
        return ";".join(map(_text, value))
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode()
    return str(value)
