"""HubSpot's contacts, as far as an integration sees them: batches, 200 and 207, unique values."""

from __future__ import annotations

from typing import Any

from tests.integration.support.json_stub import Answer, Asked

_TIME = "2026-03-01T00:00:00.000Z"


class HubSpotStub:
    """`contacts` by id. `traces`: an error names the record by objectWriteTraceId, else by its
    id; `names_nobody`: by nothing. E-mail addresses are unique and end in something."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.objects, self.properties = "/crm/v3/objects", "/crm/v3/properties"
        self.contacts: dict[str, dict[str, str]] = {}
        self.traces, self.names_nobody = True, False
        self._last = 500

    def __call__(self, request: Asked) -> Answer:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            message = "Authentication credentials not found."
            return Answer(
                {"status": "error", "message": message, "category": "INVALID_AUTHENTICATION"}, 401
            )
        if (request.method, request.path) == ("GET", f"{self.properties}/contacts"):
            return Answer({"results": [
                {"name": "hive_id", "type": "string", "hasUniqueValue": True},
                {"name": "firstname", "type": "string"}, {"name": "email", "type": "string"},
                {"name": "phone", "type": "string", "hasUniqueValue": False},
                {"name": "createdate", "type": "datetime",
                 "modificationMetadata": {"readOnlyValue": True}},
            ]})  # fmt: skip
        prefix = f"{self.objects}/contacts/batch/"
        if request.method != "POST" or not request.path.startswith(prefix):
            return Answer({"status": "error", "message": "resource not found"}, 404)
        action = request.path.removeprefix(prefix)
        inputs = request.body["inputs"]
        ids = [each["id"] for each in inputs]
        if len(ids) > 100 or len(ids) != len(set(ids)):
            return Answer({"category": "VALIDATION_ERROR", "message": "Duplicate or too many"}, 400)
        if action == "archive":
            for each in ids:
                self.contacts.pop(each, None)
            return Answer(status=204)
        if action == "read":
            return self._read(request.body)
        return self._write(inputs, action)

    def _find(self, name: str, value: str) -> str:
        return next((i for i, c in self.contacts.items() if value and c.get(name) == value), "")

    def _read(self, body: Any) -> Answer:
        results, errors = [], []
        for each in body["inputs"]:
            if found := self._find(body["idProperty"], each["id"]):
                held = self.contacts[found]
                shown = {name: held.get(name) for name in body["properties"]}
                results.append({"id": found, "properties": shown, "archived": False})
            else:
                errors.append(each["id"])
        if not errors:
            return Answer({"status": "COMPLETE", "results": results})
        error = {
            "status": "error", "category": "OBJECT_NOT_FOUND", "context": {"ids": errors},
            "message": "Could not get some CONTACT objects, they may be deleted or not exist.",
        }  # fmt: skip
        return Answer(
            {"status": "COMPLETE", "results": results, "numErrors": 1, "errors": [error]}, 207
        )

    def _write(self, inputs: list[Any], action: str) -> Answer:
        results: list[Any] = []
        errors: list[Any] = []
        for each in inputs:
            known = each["id"] if action == "update" else self._find(each["idProperty"], each["id"])
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
                "id": known, "new": is_new, "properties": dict(self.contacts[known]),
                "createdAt": _TIME, "updatedAt": _TIME, "archived": False,
            }  # fmt: skip
            if self.traces:
                result["objectWriteTraceId"] = each["objectWriteTraceId"]
            results.append(result)
        if len(errors) == len(inputs) == 1 and errors[0]["category"] == "CONFLICT":
            return Answer(errors[0], 409)
        body = {"status": "COMPLETE", "results": results[::-1], "startedAt": _TIME,
                "completedAt": _TIME}  # fmt: skip
        if not errors:
            return Answer(body)
        return Answer({**body, "numErrors": len(errors), "errors": errors}, 207)

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
            return {"status": "error", "category": "VALIDATION_ERROR", "message": "not valid",
                    "context": context, "errors": [detail]}  # fmt: skip
        other = self._find("email", email)
        if other and other != known:
            message = f"Contact already exists. Existing ID: {other}"
            return {"status": "error", "category": "CONFLICT", "message": message,
                    "context": context}  # fmt: skip
        return None
