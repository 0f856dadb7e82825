"""Programs that send leads: scripts on pages hosted elsewhere, and the business systems."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from crmsync.demo.account import Held
from crmsync.demo.leads import Change, Lead
from msgplatform.demo.connection import Connection

LEADS = "/api/v1/leads"
BATCH = 100
ORIGIN = "https://www.pages.example"
_STRANGE_ORIGIN = "https://elsewhere.example"
# Every so many requests of a script are repeated with the same key, as after a lost answer.
_REPEAT_EVERY = 5


def body(lead: Lead) -> dict[str, Any]:
    return {"appkey": lead.page, "name": lead.name, "phone": lead.phone, "extra": lead.extra}


class Script:
    """A script on a page hosted elsewhere: it has the public APPKEY, and no key of the API."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def store(self, lead: Lead) -> int:
        """Send a lead. Returns the number of refused requests of pages that are not allowed. Raises
        RuntimeError."""
        headers = {"Origin": ORIGIN, "Idempotency-Key": uuid.uuid4().hex}
        answer = self._connection.json("POST", LEADS, body(lead), headers).require(200, 202)
        lead.id = answer.json()["id"]
        if lead.number // 12 % _REPEAT_EVERY:
            return 0
        duplicate = self._connection.json("POST", LEADS, body(lead), headers).require(200)
        if duplicate.json()["id"] != lead.id:
            raise RuntimeError(f"a repeat of {lead.number} became another lead")
        strange = {"Origin": _STRANGE_ORIGIN}
        self._connection.json("POST", LEADS, body(lead), strange).require(403)
        return 1


class Business:
    """A business system with its key."""

    def __init__(self, connection: Connection, token: str) -> None:
        self._connection = connection
        self._headers = {"Authorization": f"Bearer {token}"}

    def store(self, lead: Lead) -> None:
        headers = {**self._headers, "Idempotency-Key": uuid.uuid4().hex}
        answer = self._connection.json("POST", LEADS, body(lead), headers).require(200, 202)
        lead.id = answer.json()["id"]

    def store_many(self, leads: Sequence[Lead]) -> int:
        """Send leads in one request, with one more that cannot be used. Returns the number
        of refused ones. Raises RuntimeError."""
        items = [{**body(lead), "idempotency_key": uuid.uuid4().hex} for lead in leads]
        wrong = {**body(leads[0]), "phone": "12"}
        answer = self._connection.json(
            "POST", f"{LEADS}/batch", {"leads": [*items, wrong]}, self._headers
        )
        *verdicts, last_verdict = answer.require(200).json()["results"]
        for lead, verdict in zip(leads, verdicts, strict=True):
            if verdict["outcome"] not in ("created", "duplicate"):
                raise RuntimeError(f"lead {lead.number} was refused: {verdict}")
            lead.id = verdict["id"]
        if (last_verdict["outcome"], last_verdict.get("field")) != ("rejected", "phone"):
            raise RuntimeError(f"a wrong number was taken: {last_verdict}")
        return 1

    def change(self, lead: Lead, change: Change) -> None:
        path = f"{LEADS}/{lead.id}"
        answer = self._connection.json(change.method, path, change.body, self._headers)
        answer.require(204 if change.method == "DELETE" else 200)

    def listed(self, page: str) -> Iterator[Held]:
        """The leads of a landing page that are not deleted."""
        path = f"{LEADS}?appkey={page}&deleted=false&limit=200"
        while path:
            answer = self._connection.request("GET", path, headers=self._headers)
            page_of_leads = answer.require(200).json()
            for row in page_of_leads["results"]:
                fields = {"page": row["appkey"], "name": row["name"], "phone": row["phone"]}
                fields |= row["extra"]
                values = {name: value for name, value in fields.items() if value != ""}
                yield Held(row["id"], row["phone"], values)
            following = urlsplit(page_of_leads["next"] or "")
            path = f"{following.path}?{following.query}" if page_of_leads["next"] else ""
