"""A small CRM with an HTTP interface, which behaves as CRMs do.

    python -m demo.crmsync.call_centre

Prints its port and its token. `POST /contacts` takes a list of contacts and has a result for each;
`GET /contacts?after=…` lists them, `GET /contacts/<external id>` is one of them. It wants fewer
calls now and then, and fails once after it has stored. It holds everything in memory, and ends when
its standard input is closed. Standard library only: it must not share code with the platform.
"""

import http.server
import json
import os
import secrets
import sys
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

PROPERTIES = {"LastName", "Phone", "Email", "Company", "Budget", "LeadSource"}
BLOCKED = "@throwaway.example"
_PAGE = 500
# The numbers of the calls that are throttled, and of the one that fails after storing.
_THROTTLED_EVERY = 15
_FAILS = 4


class Contacts:
    """Contacts by external id. A deleted one is kept, so that an older version cannot come back."""

    def __init__(self) -> None:
        self._by_id: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._calls = 0

    def call(self) -> int:
        """The status that this call gets."""
        with self._lock:
            self._calls += 1
            if self._calls % _THROTTLED_EVERY == 0:
                return 429
            return 500 if self._calls == _FAILS else 200

    def store(self, contact: dict[str, Any]) -> dict[str, Any]:
        properties = contact.get("properties") or {}
        if problem := _problem(contact, properties):
            field, message = problem
            return {"status": "refused", "property": field, "message": message}
        with self._lock:
            key = contact["external_id"]
            row = self._by_id.get(key)
            is_new = row is None
            if row is None:
                row = {"external_id": key, "id": f"C-{len(self._by_id) + 1}", "version": 0,
                         "deleted": False, "properties": {}}  # fmt: skip
                self._by_id[key] = row
            if contact["version"] >= row["version"]:
                properties = {**row["properties"], **properties}
                row["properties"] = {k: v for k, v in properties.items() if v is not None}
                row["version"], row["deleted"] = contact["version"], contact["deleted"]
            return {"status": "stored", "id": row["id"], "created": is_new}

    def one(self, key: str) -> dict[str, Any] | None:
        with self._lock:
            return self._by_id.get(key)

    def page(self, after: str) -> list[dict[str, Any]]:
        with self._lock:
            keys = sorted(key for key in self._by_id if key > after)[:_PAGE]
            return [self._by_id[key] for key in keys]


def _problem(contact: dict[str, Any], properties: dict[str, Any]) -> tuple[str, str] | None:
    """The property that is refused and a sentence about it; None when the contact is taken."""
    if contact["deleted"]:
        return None
    if strange := sorted(properties.keys() - PROPERTIES):
        return strange[0], f"There is no property {strange[0]}."
    email = properties.get("Email") or ""
    if email.endswith(BLOCKED):
        domain = email.partition("@")[2]
        return "Email", f"The demo blocks {domain} on purpose: ask for another Email."
    return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet
    contacts: Contacts
    token: str

    def do_GET(self) -> None:
        if not self._is_known():
            return
        parts = urlsplit(self.path)
        if parts.path == "/contacts":
            after = parse_qs(parts.query).get("after", [""])[0]
            self._answer(200, {"contacts": self.contacts.page(after)})
        elif row := self.contacts.one(parts.path.removeprefix("/contacts/")):
            self._answer(200, row)
        else:
            self._answer(404, {"message": "There is no such contact."})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._is_known():
            return
        status = self.contacts.call()
        if status == 429:
            self._answer(429, {"message": "Too many calls."}, {"Retry-After": "1"})
            return
        results = [self.contacts.store(contact) for contact in json.loads(data)["contacts"]]
        if status == 500:
            self._answer(500, {"message": "Something went wrong."})
        else:
            self._answer(200, {"results": results})

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _is_known(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {self.token}":
            return True
        self._answer(401, {"message": "Who are you?"})
        return False

    def _answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    Handler.contacts, Handler.token = Contacts(), secrets.token_urlsafe(16)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], Handler.token, flush=True)
    sys.stdin.read()  # closed when its starter is gone, even by SIGKILL
    os._exit(0)


if __name__ == "__main__":
    main()
