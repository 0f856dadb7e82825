"""HubSpot: batches of up to 100 objects, found by a property with unique values.

    batch/upsert   by the unique property       batch/update    by remote id, after a conflict
    batch/read     what HubSpot holds           batch/archive   a deleted record

HubSpot answers a batch with 200, or with 207 when some records failed. Which part belongs to which
record is told by `objectWriteTraceId`, or by the unique property where that is missing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from django.utils.translation import gettext as _

from crmsync.adapters.base import AdapterCredentials, AdapterSettings, Field, Record, Stored
from crmsync.adapters.client import decoded, is_whole, json_object
from crmsync.adapters.hubspot import errors
from crmsync.adapters.outcomes import Ok, Outcome, Refused, Retry, Unknown
from crmsync.adapters.rest import RestAdapter
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.http.engine import Response

_LARGEST_BATCH = 100


class HubSpotSettings(AdapterSettings, frozen=True, kw_only=True):
    """`id_property` is a property of the object with unique values that holds the key.

    The paths are those of the API's version: `/crm/objects/2026-03` and `/crm/properties/2026-03`
    for the one of that date. `time_zone` is the account's: its daily limit ends at midnight there.
    """

    id_property: str = "hive_id"
    object: str = "contacts"
    base_url: str = "https://api.hubapi.com"
    objects_path: str = "/crm/v3/objects"
    properties_path: str = "/crm/v3/properties"
    time_zone: str = "UTC"


class HubSpotCredentials(AdapterCredentials, frozen=True, kw_only=True):
    """The access token of a private app, or a service key."""

    token: str


class HubSpotAdapter(RestAdapter):
    name = "hubspot"
    title = "HubSpot"
    Settings = HubSpotSettings
    Credentials = HubSpotCredentials
    batch_size = _LARGEST_BATCH
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
        self._headers = [("authorization", f"Bearer {self.credentials.token}")]

    # -- writing ---------------------------------------------------------------------------------
    def store(self, batch: Sequence[Record]) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        deleted = [record for record in batch if record.deleted]
        known = [record for record in batch if record.remote_id and not record.deleted]
        others = [record for record in batch if not record.remote_id and not record.deleted]
        if known:
            updated, gone = self._updated(known)
            outcomes.update(updated)
            # Somebody deleted them in HubSpot: they are stored anew, by key.
            others += [dataclasses.replace(record, remote_id="") for record in gone]
        if others:
            inputs = [
                {"idProperty": self.settings.id_property, "id": record.key, **self._given(record)}
                for record in others
            ]
            outcomes.update(self._settled(others, self._batch("upsert", {"inputs": inputs})))
        if deleted:
            outcomes.update(self._archived(deleted))
        return outcomes

    def _updated(self, records: Sequence[Record]) -> tuple[dict[str, Outcome], Sequence[Record]]:
        """Update by remote id. Returns the outcomes, and the records that HubSpot does not hold."""
        inputs = [{"id": record.remote_id, **self._given(record)} for record in records]
        response = self._batch("update", {"inputs": inputs})
        if len(records) == 1 and errors.is_not_found(response):
            return {}, records
        settled = self._settled(records, response)
        missing = errors.not_found(response)
        gone = [r for r in records if {r.key, r.remote_id} & missing]
        for record in gone:
            del settled[record.key]
        return settled, gone

    def release(self, records: Sequence[Record]) -> Mapping[str, Outcome]:
        # A batch that names an id twice is refused: two leads may be one person.
        by_id = {record.remote_id: record for record in records}
        outcomes, gone = self._updated(list(by_id.values()))
        outcomes.update((record.key, Ok(record.remote_id, created=False)) for record in gone)
        return {r.key: outcomes[by_id[r.remote_id].key] for r in records}

    def _given(self, record: Record) -> dict[str, Any]:
        made = {name: _text(value) for name, value in record.fields.items()}
        # A deleted record of people is kept, and no longer found by our key.
        properties = {**made, self.settings.id_property: "" if record.deleted else record.key}
        # HubSpot repeats the trace id in the results and errors of a batch.
        return {"properties": properties, "objectWriteTraceId": record.key}

    def _settled(self, records: Sequence[Record], response: Response) -> dict[str, Outcome]:
        """An outcome for each record of a batch."""
        body = decoded(response)
        if not is_whole(response) or not isinstance(body, dict):
            outcome = self._refused(response, len(records))
            return {record.key: outcome for record in records}
        found: dict[str, Outcome] = {}
        keys = {record.key for record in records}
        by_id = {record.remote_id: record.key for record in records if record.remote_id}
        for result in body.get("results") or ():
            key = result.get("objectWriteTraceId")
            if key not in keys:
                key = (result.get("properties") or {}).get(self.settings.id_property)
            if key not in keys:
                key = by_id.get(str(result.get("id", "")))
            if key in keys:
                found[str(key)] = Ok(str(result.get("id", "")), result.get("new"))
        faults = list(body.get("errors") or ())
        by_sent_id = {record.remote_id or record.key: record.key for record in records}
        for error in faults:
            outcome = errors.of_record(error, self.settings.time_zone)
            traces, ids = errors.named(error)
            blamed = (traces & keys) | {by_sent_id[each] for each in ids if each in by_sent_id}
            found.update(dict.fromkeys(blamed, outcome))
        left = [record.key for record in records if record.key not in found]
        if left and len(faults) == len(records) == 1:
            found[left[0]] = errors.of_record(faults[0], self.settings.time_zone)
        elif left:
            # Nobody knows whose error it was: sent alone, each record gets its own.
            text = _("HubSpot did not say what became of the record.")
            lost: Outcome = Refused(text) if len(records) > 1 else Unknown(text)
            found.update(dict.fromkeys(left, lost))
        return found

    def _archived(self, records: Sequence[Record]) -> dict[str, Outcome]:
        """Archive records, after looking up the ids that are not known. A record that HubSpot does
        not hold counts as deleted."""
        ids = {record.key: record.remote_id for record in records if record.remote_id}
        missing = [record.key for record in records if not record.remote_id]
        if missing:
            response = self._read_batch(missing, ())
            if not is_whole(response):
                outcome = self._refused(response, 1)
                return {record.key: outcome for record in records}
            try:
                found = self._stored(response)
            except Unavailable as error:
                return {record.key: Retry(0.0, str(error)) for record in records}
            ids.update((key, stored.remote_id) for key, stored in found.items())
        if ids:
            inputs = [{"id": remote_id} for remote_id in ids.values()]
            response = self._batch("archive", {"inputs": inputs})
            if not is_whole(response) and not (len(ids) == 1 and errors.is_not_found(response)):
                outcome = self._refused(response, len(ids))
                return {record.key: outcome for record in records}
        return {record.key: Ok(ids.get(record.key, ""), created=False) for record in records}

    def _refused(self, response: Response, size: int) -> Outcome:
        if is_whole(response):
            return Retry(0.0, _("HubSpot's answer is no JSON object."))
        given = self.settings
        return errors.of_batch(response, size, given.time_zone, given.id_property)

    # -- reading ---------------------------------------------------------------------------------
    def fields(self) -> Mapping[str, Field]:
        given = self.settings
        response = self.client.ask(
            "GET", f"{given.base_url}{given.properties_path}/{given.object}", self._headers
        )
        properties = {each["name"]: each for each in json_object(response).get("results", ())}
        own = properties.pop(given.id_property, None)
        # Without unique values an upsert is refused, and a key could find several objects.
        if own is None or not own.get("hasUniqueValue"):
            raise InvalidInput(
                _(
                    "HubSpot needs a property %(name)s of %(object)s that is set to have "
                    "unique values."
                )
                % {"name": given.id_property, "object": given.object},
                "id_property",
            )
        return {
            name: Field(
                name,
                str(each.get("type", "")),
                writable=not (each.get("modificationMetadata") or {}).get("readOnlyValue", False),
            )
            for name, each in properties.items()
        }

    def read(self, keys: Collection[str]) -> Mapping[str, Stored]:
        # HubSpot returns only the properties that are asked for.
        names = sorted(self.fields())
        found: dict[str, Stored] = {}
        for some in chunks(sorted(keys), _LARGEST_BATCH):
            found.update(self._stored(self._read_batch(some, names)))
        return found

    def read_ids(self, remote_ids: Collection[str], names: Collection[str]) -> Mapping[str, Stored]:
        found: dict[str, Stored] = {}
        for some in chunks(sorted(remote_ids), _LARGEST_BATCH):
            held, missing = self._read_ids(some, names)
            found.update(held)
            # A merged contact has another id in the answer: asked for alone, it shows which it is.
            for remote_id in sorted(set(some) - held.keys() - missing):
                held, missing = self._read_ids([remote_id], names)
                if not held and remote_id not in missing:
                    raise Unavailable(_("HubSpot did not say what it holds of each record."))
                for stored in held.values():
                    found[remote_id] = stored
        return found

    def _read_ids(
        self, remote_ids: Sequence[str], names: Collection[str]
    ) -> tuple[dict[str, Stored], set[str]]:
        """What HubSpot holds, by the ids that it says, and ids that it does not hold."""
        inputs = [{"id": each} for each in remote_ids]
        response = self._batch("read", {"inputs": inputs, "properties": sorted(names)})
        if len(remote_ids) == 1 and errors.is_not_found(response):
            return {}, set(remote_ids)
        found: dict[str, Stored] = {}
        for result in json_object(response).get("results") or ():
            remote_id = str(result.get("id", ""))
            is_archived = bool(result.get("archived"))
            found[remote_id] = Stored(remote_id, result.get("properties") or {}, is_archived)
        return found, errors.not_found(response)

    def _read_batch(self, keys: Sequence[str], names: Sequence[str]) -> Response:
        given = self.settings
        inputs = [{"id": key} for key in keys]
        properties = [given.id_property, *names]
        asked = {"idProperty": given.id_property, "inputs": inputs, "properties": properties}
        return self._batch("read", asked)

    def _stored(self, response: Response) -> dict[str, Stored]:
        """What a batch/read found. Raises as `read` does."""
        body, own = json_object(response), self.settings.id_property
        for error in body.get("errors") or ():
            if error.get("category") != errors.NOT_FOUND:
                # A record that is not among the results may exist all the same.
                raise Unavailable(str(error.get("message") or error.get("category")))
        found: dict[str, Stored] = {}
        for result in body.get("results") or ():
            properties = dict(result.get("properties") or {})
            key = properties.pop(own, None)
            if key is not None:
                archived = bool(result.get("archived"))
                found[str(key)] = Stored(str(result.get("id", "")), properties, archived)
        return found

    def _batch(self, action: str, body: Any) -> Response:
        given = self.settings
        url = f"{given.base_url}{given.objects_path}/{given.object}/batch/{action}"
        return self.client.ask("POST", url, self._headers, body)


def _text(value: Any) -> str:
    """HubSpot's properties are texts; the empty one clears a value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return ";".join(map(_text, value))
    return str(value)
