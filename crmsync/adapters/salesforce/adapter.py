"""Salesforce: up to 200 records in one call, found by an external id field.

PATCH  composite/sobjects/<object>/<field>     several records; one alone in its own form, which
PATCH  sobjects/<object>/<field>/<key>         also says when the key matches several records
PATCH  sobjects/<object>/<id>                  by remote id, after a conflict
DELETE composite/sobjects?ids=                 deleted records
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

from django.utils.translation import gettext as _

from crmsync.adapters.base import CredentialsRefused, Field, Record, Stored, outcome_of_error
from crmsync.adapters.client import UpsertAdapter, is_whole, json_object, read_json
from crmsync.adapters.outcomes import Auth, Invalid, Ok, Outcome, Throttled
from crmsync.adapters.salesforce import session
from crmsync.adapters.salesforce.session import SalesforceCredentials, SalesforceSettings, Session
from msgplatform.core.data import chunks_within
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.http.engine import Response

# Characters of a query's columns, and as many of its values, as they stand in the URL. Together
# with the path they fit into `destinations.MAX_LENGTH`.
_MAX_PORTION = 1_700


class SalesforceAdapter(UpsertAdapter):
    name = "salesforce"
    title = "Salesforce"
    Settings = SalesforceSettings
    Credentials = SalesforceCredentials
    batch_size = 200
    is_upsert = True

    settings: SalesforceSettings
    credentials: SalesforceCredentials

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        super().__init__(settings, credentials)
        for name in ("object", "external_id"):
            # Both names are parts of URLs and queries.
            if not getattr(self.settings, name).isidentifier():
                raise InvalidInput(_("The setting %s is no name of Salesforce.") % name, name)
        self._session = Session(self.client, self.settings, self.credentials)

    def secrets(self) -> Iterable[str]:
        return [*super().secrets(), self._session.token]

    # -- writing ---------------------------------------------------------------------------------
    def upsert(self, records: Sequence[Record]) -> Mapping[str, Outcome]:
        path = f"sobjects/{self.settings.object}/{self.settings.external_id}"
        if len(records) > 1:
            return self._update_many(f"composite/{path}", records)[0]
        record = records[0]
        path += f"/{quote(record.key, safe='')}"
        response = self._session.ask("PATCH", path, record.fields)
        return {record.key: self._outcome_of_one(record, response)}

    def update(self, records: Sequence[Record]) -> tuple[dict[str, Outcome], Sequence[Record]]:
        # The list form has the id in each record, not in the URL. Salesforce refuses a list that
        # names an id twice, and after a conflict two records may have one id.
        first_by_id: dict[str, Record] = {}
        for record in records:
            first_by_id.setdefault(_short_id(record.remote_id), record)
        repeats = [r for r in records if first_by_id[_short_id(r.remote_id)] is not r]
        first_records = list(first_by_id.values())
        if len(first_records) == 1:
            outcomes, missing = self._update_one(first_records[0])
        else:
            outcomes, missing = self._update_many("composite/sobjects", first_records)
        for record in repeats:
            final_outcome = next(
                (o for o in outcomes.values() if isinstance(o, Auth | Throttled)), None
            )
            if final_outcome:
                outcomes[record.key] = final_outcome
                continue
            single_outcome, single_missing = self._update_one(record)
            outcomes.update(single_outcome)
            missing += single_missing
        return outcomes, missing

    def _update_one(self, record: Record) -> tuple[dict[str, Outcome], list[Record]]:
        path = f"sobjects/{self.settings.object}/{quote(record.remote_id, safe='')}"
        fields = {**record.fields, **self._key(record)}
        response = self._session.ask("PATCH", path, fields)
        if response.status == 404 and not response.error:
            return {}, [record]
        return {record.key: self._outcome_of_one(record, response)}, []

    def release(self, records: Sequence[Record]) -> Mapping[str, Outcome]:
        try:
            outcomes, missing = self.update(records)
        except (CredentialsRefused, Unavailable, InvalidInput) as error:  # there was no token
            outcome = outcome_of_error(error)
            return {record.key: outcome for record in records}
        return outcomes | {record.key: Ok(record.remote_id, created=False) for record in missing}

    def _update_many(
        self, path: str, records: Sequence[Record]
    ) -> tuple[dict[str, Outcome], list[Record]]:
        """One call with several records. Returns the outcomes, and the records whose id Salesforce
        does not hold."""
        settings = self.settings
        objects = [
            {
                "attributes": {"type": settings.object},
                **record.fields,
                **self._key(record),
                **({"id": record.remote_id} if record.remote_id else {}),
            }
            for record in records
        ]
        # One wrong record must not keep the others from being stored.
        response = self._session.ask("PATCH", path, {"allOrNone": False, "records": objects})
        results = read_json(response) if is_whole(response) else None
        if not isinstance(results, list) or len(results) != len(records):
            outcome = session.of_call(response, len(records))
            return {record.key: outcome for record in records}, []
        if refusal := session.of_whole_call(results):
            return {record.key: refusal for record in records}, []
        outcomes: dict[str, Outcome] = {}
        missing: list[Record] = []
        for record, result in zip(records, results, strict=True):
            if record.remote_id and session.is_gone(result):
                missing.append(record)
            else:
                outcomes[record.key] = session.of_result(result, settings.external_id)
        return outcomes, missing

    def _key(self, record: Record) -> dict[str, str | None]:
        """The field with the key. A record that people made gets no key: after a restore of the
        platform's database the key would make it the platform's own. When it is deleted here, the
        key that a merge may have given it is removed."""
        if record.deleted:
            return {self.settings.external_id: None}
        return {} if record.is_adopted else {self.settings.external_id: record.key}

    def _outcome_of_one(self, record: Record, response: Response) -> Outcome:
        name = self.settings.external_id
        if response.status == 300:
            text = _("Several records of Salesforce have %(name)s %(key)s.")
            return Invalid(name, text % {"name": name, "key": record.key})
        if not is_whole(response):
            return session.of_call(response, 1)
        body = read_json(response) if response.body else None
        body = body if isinstance(body, dict) else {}
        remote_id = session.long_id(str(body.get("id") or record.remote_id))
        return Ok(remote_id, bool(body.get("created", response.status == 201)))

    def delete(self, records: Sequence[Record]) -> Mapping[str, Outcome]:
        ids = {record.key: record.remote_id for record in records if record.remote_id}
        keys_without_id = [record.key for record in records if not record.remote_id]
        if keys_without_id:
            records_by_key = self._query(keys_without_id, ())
            # A query ignores case, so that it also finds records of other keys.
            found_keys = [key for key in keys_without_id if key in records_by_key]
            ids.update((key, records_by_key[key].remote_id) for key in found_keys)
        outcomes: dict[str, Outcome] = {r.key: Ok(ids.get(r.key, ""), False) for r in records}
        if not ids:
            return outcomes
        # Each id once: after a conflict two records may have the same id.
        keys_by_id: dict[str, list[str]] = {}
        for key, remote_id in ids.items():
            keys_by_id.setdefault(_short_id(remote_id), []).append(key)
        ids_to_delete = [ids[keys_of_id[0]] for keys_of_id in keys_by_id.values()]
        # As %2C the commas between 200 ids would make the URL too long.
        query = urlencode({"ids": ",".join(ids_to_delete), "allOrNone": "false"}, safe=",")
        response = self._session.ask("DELETE", f"composite/sobjects?{query}")
        results = read_json(response) if is_whole(response) else None
        if not isinstance(results, list) or len(results) != len(ids_to_delete):
            outcome = session.of_call(response, len(ids_to_delete))
            outcomes.update(dict.fromkeys(ids, outcome))
            return outcomes
        for keys_of_id, result in zip(keys_by_id.values(), results, strict=True):
            outcome = session.of_result(result, self.settings.external_id)
            if not isinstance(outcome, Ok) and not session.is_gone(result):
                outcomes.update(dict.fromkeys(keys_of_id, outcome))
        return outcomes

    # -- reading ---------------------------------------------------------------------------------
    def fields(self) -> Mapping[str, Field]:
        settings = self.settings
        response = self._session.ask("GET", f"sobjects/{settings.object}/describe")
        if response.status == 404:
            raise InvalidInput(_("Salesforce has no object %s.") % settings.object, "object")
        described_fields = {
            description["name"]: description
            for description in json_object(response, session.of_call(response, 1)).get("fields", ())
        }
        key_field = described_fields.pop(settings.external_id, None)
        if key_field is None or not key_field.get("externalId"):
            raise InvalidInput(
                _("Salesforce needs a field %(name)s of %(object)s that is flagged External ID.")
                % {"name": settings.external_id, "object": settings.object},
                "external_id",
            )
        return {
            name: Field(
                name,
                str(description.get("type", "")),
                required=not description.get("nillable", True)
                and not description.get("defaultedOnCreate", False),
                writable=bool(description.get("createable") and description.get("updateable")),
                max_length=int(description.get("length") or 0),
            )
            for name, description in described_fields.items()
        }

    def read(self, keys: Collection[str]) -> Mapping[str, Stored]:
        names = [name for name, field in self.fields().items() if field.writable]
        return self._query(sorted(keys), names)

    def read_ids(self, remote_ids: Collection[str], names: Collection[str]) -> Mapping[str, Stored]:
        usable = [name for name in sorted(names) if name.isidentifier()]
        rows = self._rows("Id", sorted(remote_ids), usable)
        rows_by_id = {_short_id(str(row["Id"])): row for row in rows}
        return {
            remote_id: Stored(
                remote_id, {name: rows_by_id[_short_id(remote_id)].get(name) for name in usable}
            )
            for remote_id in remote_ids
            if _short_id(remote_id) in rows_by_id
        }

    def _query(self, keys: Sequence[str], names: Sequence[str]) -> dict[str, Stored]:
        external_id = self.settings.external_id
        return {
            str(row[external_id]): Stored(str(row["Id"]), {name: row.get(name) for name in names})
            for row in self._rows(external_id, keys, names)
        }

    def _rows(
        self, field: str, values: Sequence[str], columns: Sequence[str]
    ) -> Iterable[Mapping[str, Any]]:
        """The id, the field and the columns of the records in which the field has one of these
        values."""
        escaped_values = [value.replace("\\", "\\\\").replace("'", "\\'") for value in values]
        rows: dict[str, dict[str, Any]] = {}
        for names in _portions([field, *columns]):
            selection = ", ".join(dict.fromkeys(["Id", field, *names]))
            for texts in _portions([f"'{value}'" for value in escaped_values]):
                query = (
                    f"SELECT {selection} FROM {self.settings.object} "  # noqa: S608
                    f"WHERE {field} IN ({', '.join(texts)})"
                )
                response = self._session.ask("GET", f"query?{urlencode({'q': query})}")
                body = json_object(response, session.of_call(response, 1))
                for row in body.get("records", ()):
                    rows.setdefault(str(row["Id"]), {}).update(row)
        return rows.values()


def _portions(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in lists that have _MAX_PORTION characters at most in a URL."""
    return chunks_within(texts, (lambda text: len(quote_plus(f"{text}, ")), _MAX_PORTION))


def _short_id(remote_id: str) -> str:
    """Salesforce writes an id with 15 characters, or with three more that follow from them."""
    return remote_id[:15]
