"""Salesforce's REST interface for leads, as far as an integration sees it.

That the shapes are Salesforce's is shown by a client of others in test_salesforce_client.py.
"""

import base64
import re
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.support.json_stub import Answer, Asked

_DATA = "/services/data/v61.0/"
_FIELDS = ("LastName", "Company", "Email", "Phone")


class SalesforceStub:
    """`leads` by id. A token is valid until `expire()`. `url` is the instance's. `is_full`: there
    is no storage for another lead; `readable_keys` are those of leads that may not be written.
    `converted_ids` are those of leads that people have made contacts of.
    `login_answers` come first, in their order."""

    def __init__(self) -> None:
        self.url = ""
        self.leads: dict[str, dict[str, Any]] = {}
        self.logins = 0
        self.locked: set[str] = set()
        self.readable_keys: set[str] = set()
        self.converted_ids: set[str] = set()
        self.is_full = False
        self.login_answers: list[Answer] = []
        self._token = ""
        self._last = 0

    def expire(self) -> None:
        self._token = ""

    def add(self, **fields: Any) -> str:
        self._last += 1
        made = f"00Q{self._last:012}EAA"
        self.leads[made] = fields
        return made

    def __call__(self, request: Asked) -> Answer:
        answer = self._answer(request)
        answer.headers["Sforce_Limit_Info"] = "api-usage=18/5000"
        return answer

    def _answer(self, request: Asked) -> Answer:
        if request.path == "/services/oauth2/token":
            return self._log_in(request)
        if not self._token or request.headers.get("authorization") != f"Bearer {self._token}":
            return _error("INVALID_SESSION_ID", "Session expired or invalid", status=401)
        path = request.path.removeprefix(_DATA)
        if path == "composite/sobjects/Lead/Hive_Id__c" and request.method == "PATCH":
            return self._collection(request.body["records"])
        if path == "composite/sobjects" and request.method == "PATCH":
            records = request.body["records"]
            twice = _twice([record["id"] for record in records])
            return Answer([self._update(record, twice) for record in records])
        if path == "composite/sobjects" and request.method == "DELETE":
            ids = request.query["ids"].split(",")
            twice = _twice(ids)
            return Answer([_refused(each) if each in twice else self._delete(each) for each in ids])
        if path == "sobjects/Lead/describe":
            return Answer({"name": "Lead", "fields": _described()})
        if path.rstrip("/") == "query":
            return self._query(request.query["q"])
        if request.method == "PATCH" and path.startswith("sobjects/Lead/"):
            return self._single(path.removeprefix("sobjects/Lead/"), request)
        return _error("NOT_FOUND", "The requested resource does not exist", status=404)

    def _log_in(self, request: Asked) -> Answer:
        """The secret comes in the form, or as the password of the header."""
        self.logins += 1
        if self.login_answers:
            return self.login_answers.pop(0)
        form = parse_qs(request.raw.decode())
        header = base64.b64decode(request.headers.get("authorization", "").removeprefix("Basic "))
        if "hush-hush" not in (*form.get("client_secret", ()), header.decode().partition(":")[2]):
            said = {"error": "invalid_client", "error_description": "invalid client credentials"}
            return Answer(said, 400)
        assert form["grant_type"] == ["client_credentials"]
        self._token = f"token-{self.logins}"
        return Answer({"access_token": self._token, "instance_url": self.url})

    def _find(self, key: str) -> list[str]:
        return [i for i, lead in self.leads.items() if lead.get("Hive_Id__c") == key]

    def _by_id(self, name: str) -> str:
        """The whole id of one with 15 or 18 characters."""
        return next((i for i in self.leads if name in (i, i[:15])), "")

    def _collection(self, records: list[Any]) -> Answer:
        if len(records) > 200:
            return _error("TOO_MANY_RECORDS", "The limit is 200 records")
        results = []
        for record in records:
            assert record.pop("attributes") == {"type": "Lead"}
            results.append(self._upsert(record))
        return Answer(results)

    def _upsert(self, record: Any) -> Any:
        found = self._find(record["Hive_Id__c"])
        if len(found) > 1:
            return _failed("DUPLICATE_EXTERNAL_ID", f"Hive_Id__c: more than one record: {found}")
        if problem := self._problem(record, found[0] if found else ""):
            return _failed(*problem)
        made = found[0] if found else self.add()
        self.leads[made].update(record)
        return {"id": made, "success": True, "errors": [], "created": not found}

    def _update(self, record: Any, twice: set[str]) -> Any:
        assert record.pop("attributes") == {"type": "Lead"}
        sent = record.pop("id")
        if sent in twice:
            return _refused(sent)
        made = self._by_id(sent)
        if made not in self.leads:
            return _failed("INVALID_CROSS_REFERENCE_KEY", "invalid cross reference id")
        if problem := self._problem({"LastName": "-", **record}, made):
            return _failed(*problem)
        self.leads[made].update(record)
        return {"id": made, "success": True, "errors": []}

    def _problem(self, record: Any, known: str) -> tuple[str, str, list[str]] | None:
        for name in record:
            if name not in (*_FIELDS, "Hive_Id__c"):
                return "INVALID_FIELD", f"No such column '{name}' on sobject of type Lead", [name]
        if not known and not record.get("LastName"):
            text = "Required fields are missing: [LastName]"
            return "REQUIRED_FIELD_MISSING", text, ["LastName"]
        if self.is_full and not known:
            return "STORAGE_LIMIT_EXCEEDED", "storage limit exceeded", []
        if known in self.converted_ids:
            return "CANNOT_UPDATE_CONVERTED_LEAD", "cannot reference converted lead", []
        if record.get("Hive_Id__c") in self.readable_keys:
            text = "insufficient access rights on object id"
            return "INSUFFICIENT_ACCESS_OR_READONLY", text, []
        if record.get("Hive_Id__c") in self.locked:
            return "UNABLE_TO_LOCK_ROW", "unable to obtain exclusive access to this record", []
        for other, lead in self.leads.items():
            if other != known and record.get("Email") and lead.get("Email") == record["Email"]:
                short = other[:15]
                text = f"duplicate value found: Email duplicates value on record with id: {short}"
                return "DUPLICATE_VALUE", text, []
        if record.get("LastName") == "Twin":
            return "DUPLICATES_DETECTED", "Use one of these records?", []
        return None

    def _single(self, path: str, request: Asked) -> Answer:
        name, _, key = path.partition("/")
        if not key:
            held = self._by_id(name)
            if not held:
                return _error("NOT_FOUND", "The requested resource does not exist", status=404)
            if problem := self._problem({"LastName": "-", **request.body}, held):
                return _error(*problem)
            self.leads[held].update(request.body)
            return Answer(status=204)
        assert name not in request.body
        found = self._find(unquote(key))
        if len(found) > 1:
            return Answer([f"{_DATA}sobjects/Lead/{each}" for each in found], 300)
        result = self._upsert({**request.body, "Hive_Id__c": unquote(key)})
        if not result["success"]:
            error = result["errors"][0]
            return _error(error["statusCode"], error["message"], error["fields"])
        return Answer(result, 201 if result["created"] else 200)

    def _delete(self, lead: str) -> Any:
        if self.leads.pop(lead, None) is None:
            return _failed("ENTITY_IS_DELETED", "entity is deleted")
        return {"id": lead, "success": True, "errors": []}

    def _query(self, query: str) -> Answer:
        match = re.fullmatch(r"SELECT (.+) FROM Lead WHERE (Hive_Id__c|Id) IN \((.*)\)", query)
        assert match
        keys = [key.replace("\\'", "'") for key in re.findall(r"'((?:[^'\\]|\\.)*)'", match[3])]
        # SOQL compares texts without regard to case.
        rows = [
            {name: {**lead, "Id": i}.get(name) for name in match[1].split(", ")}
            for i, lead in self.leads.items()
            if (lead.get("Hive_Id__c") or "").lower() in {key.lower() for key in keys}
            or (match[2] == "Id" and {i, i[:15]} & {*keys})
        ]
        return Answer({"totalSize": len(rows), "done": True, "records": rows})


def _error(code: str, message: str, fields: list[str] | None = None, status: int = 0) -> Answer:
    status = status or (403 if code.startswith("INSUFFICIENT_ACCESS") else 400)
    return Answer([{"message": message, "errorCode": code, "fields": fields or []}], status)


def _twice(ids: list[str]) -> set[str]:
    return {each for each in ids if ids.count(each) > 1}


def _refused(lead: str) -> Any:
    return _failed("DUPLICATE_VALUE", f"Duplicate id specified: {lead}")


def _failed(code: str, message: str, fields: list[str] | None = None) -> Any:
    error = {"statusCode": code, "message": message, "fields": fields or []}
    return {"success": False, "errors": [error]}


def _described() -> list[Any]:
    plain = {"type": "string", "createable": True, "updateable": True, "length": 80}
    return [
        {"name": "Id", "type": "id", "nillable": False, "defaultedOnCreate": True},
        {"name": "Hive_Id__c", "externalId": True, **plain},
        *({"name": name, "nillable": name != "LastName", **plain} for name in _FIELDS),
    ]
