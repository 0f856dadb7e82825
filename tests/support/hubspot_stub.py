"""HubSpot's contacts, as far as an integration sees them: batches, 200 and 207, unique values.

That the shapes are HubSpot's is shown by its own client in test_hubspot_client.py.
"""

from collections.abc import Sequence
from typing import Any

from tests.support.json_stub import Answer, Asked

_TIME = "2026-03-01T00:00:00.000Z"
_CALL = "6828d000-3d2f-4701-8d90-b21e53b0d005"


class HubSpotStub:
    """`contacts` by id; `merged` has ids of contacts that are another one's now. `traces`: an error
    names the record by objectWriteTraceId, else by its id; `names_nobody`: by nothing. E-mail
    addresses are unique and end in something. `limit` is the policy whose limit has been reached.
    """

    def __init__(self, token: str) -> None:
        self.token = token
        self.objects, self.properties = "/crm/v3/objects", "/crm/v3/properties"
        self.contacts: dict[str, dict[str, str]] = {}
        self.merged: dict[str, str] = {}
        self.traces, self.names_nobody = True, False
        self.limit = ""
        self._last = 500

    def __call__(self, request: Asked) -> Answer:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            message = "Authentication credentials not found."
            return _error(401, "INVALID_AUTHENTICATION", message)
        if self.limit:
            return _throttled(self.limit)
        if (request.method, request.path) == ("GET", f"{self.properties}/contacts"):
            return Answer({"results": _PROPERTIES})
        prefix = f"{self.objects}/contacts/batch/"
        if request.method != "POST" or not request.path.startswith(prefix):
            return Answer({"status": "error", "message": "resource not found"}, 404)
        action = request.path.removeprefix(prefix)
        inputs = request.body["inputs"]
        ids = [each["id"] for each in inputs]
        if len(ids) > 100 or len(ids) != len(set(ids)):
            return _error(400, "VALIDATION_ERROR", "Duplicate or too many inputs")
        if action == "archive":
            for each in ids:
                self.contacts.pop(self.merged.get(each, each), None)
            return Answer(status=204)
        if action == "read":
            return self._read(request.body)
        return self._write(inputs, action)

    def _find(self, name: str, value: str) -> str:
        return next((i for i, c in self.contacts.items() if value and c.get(name) == value), "")

    def _held(self, id_property: str, value: str) -> str:
        """By HubSpot's own id unless a property is named."""
        if id_property:
            return self._find(id_property, value)
        value = self.merged.get(value, value)
        return value if value in self.contacts else ""

    def _read(self, body: Any) -> Answer:
        results, errors = [], []
        for each in body["inputs"]:
            if found := self._held(body.get("idProperty", ""), each["id"]):
                held = self.contacts[found]
                shown = {name: held.get(name) for name in body["properties"]}
                results.append(
                    {"id": found, "properties": shown, "createdAt": _TIME, "updatedAt": _TIME,
                     "archived": False}
                )  # fmt: skip
            else:
                errors.append(each["id"])
        if not errors:
            return _batch(results)
        text = "Could not get some CONTACT objects, they may be deleted or not exist."
        return _batch(results, [_of_record("OBJECT_NOT_FOUND", text, {"ids": errors})])

    def _write(self, inputs: list[Any], action: str) -> Answer:
        results: list[Any] = []
        errors: list[Any] = []
        for each in inputs:
            if action == "update":
                known = self.merged.get(each["id"], each["id"])
            else:
                known = self._find(each["idProperty"], each["id"])
            if problem := self._problem(each, known):
                errors.append(problem)
                continue
            is_new = not known
            if is_new:
                self._last += 1
                known = str(self._last)
            own = {each["idProperty"]: each["id"]} if "idProperty" in each else {}
            self.contacts.setdefault(known, {}).update({**own, **each["properties"]})
            result = {
                "id": known, "properties": dict(self.contacts[known]), "createdAt": _TIME,
                "updatedAt": _TIME, "archived": False,
            }  # fmt: skip
            if action == "upsert":
                result["new"] = is_new
            if self.traces:
                result["objectWriteTraceId"] = each["objectWriteTraceId"]
            results.append(result)
        if len(errors) == len(inputs) == 1 and errors[0]["category"] == "CONFLICT":
            return _error(409, "CONFLICT", errors[0]["message"])
        return _batch(results[::-1], errors)

    def _problem(self, each: Any, known: str) -> Any:
        email = each["properties"].get("email", "")
        context = {"objectWriteTraceId": [each["objectWriteTraceId"]]}
        if not self.traces:
            context = {"ids": [each["id"]]}
        if self.names_nobody:
            context = {}
        if email.endswith("@"):
            detail = {"message": f"Email address {email} is invalid", "in": "email",
                      "code": "INVALID_EMAIL"}  # fmt: skip
            return _of_record("VALIDATION_ERROR", "not valid", context, detail)
        if known and known not in self.contacts:
            return _of_record("OBJECT_NOT_FOUND", "No CONTACT object has this id", context)
        other = self._find("email", email)
        if other and other != known:
            message = f"Contact already exists. Existing ID: {other}"
            return _of_record("CONFLICT", message, context)
        return None


def _batch(results: list[Any], errors: Sequence[Any] = ()) -> Answer:
    body = {"status": "COMPLETE", "results": results, "startedAt": _TIME, "completedAt": _TIME}
    if not errors:
        return Answer(body)
    return Answer({**body, "numErrors": len(errors), "errors": errors}, 207)


def _of_record(category: str, message: str, context: Any, *details: Any) -> Any:
    """One of the errors in an answer to a batch."""
    return {"status": "error", "category": category, "message": message, "context": context,
            "links": {}, "errors": details}  # fmt: skip


def _error(status: int, category: str, message: str) -> Answer:
    """Of a call as a whole."""
    body = {"status": "error", "message": message, "category": category, "correlationId": _CALL}
    return Answer(body, status)


def _throttled(policy: str) -> Answer:
    body = {"status": "error", "message": f"You have reached your {policy.lower()} limit.",
            "errorType": "RATE_LIMIT", "correlationId": _CALL, "policyName": policy}  # fmt: skip
    return Answer(body, 429, X_HubSpot_RateLimit_Max="100", X_HubSpot_RateLimit_Remaining="0")


def _property(name: str, kind: str = "string", **more: Any) -> Any:
    return {"name": name, "label": name.title(), "type": kind, "fieldType": "text", "options": [],
            "groupName": "contactinformation", "description": "", **more}  # fmt: skip


def _modification(is_read_only: bool) -> Any:
    return {"archivable": True, "readOnlyDefinition": True, "readOnlyValue": is_read_only}


_PROPERTIES = [
    _property("hive_id", hasUniqueValue=True),
    _property("firstname", modificationMetadata=_modification(False)),
    _property("email"),
    _property("phone", hasUniqueValue=False),
    _property("createdate", "datetime", modificationMetadata=_modification(True)),
]
