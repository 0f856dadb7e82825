"""A CRM that makes a record of every POST, also when it is the second of the same person: whoever
repeats a call is seen. Some calls are answered with 500, or not at all, after they were stored."""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STORED_AND_FAILED = 0.05  # the share of calls that are stored and answered with 500
STORED_AND_CUT = 0.01  # … and of those without an answer
NAMES = ("name", "phone", "city")


@dataclass
class Books:
    """What the CRM holds, by its own ids; `regressions` are updates to an older version."""

    contacts: dict[int, dict[str, Any]] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)  # the code of each contact, as it was made
    regressions: list[str] = field(default_factory=list)
    failed: int = 0
    calls: dict[str, list[str]] = field(default_factory=dict)  # by code, for who looks for a fault
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, code: str, what: str) -> None:
        self.calls.setdefault(code, []).append(f"{time.monotonic():.3f} {what}")

    def create(self, given: dict[str, Any]) -> int:
        with self.lock:
            number = len(self.made) + 1
            self.note(given["code"], f"POST {number} v{given['version']}")
            self.made.append(given["code"])
            self.contacts[number] = given
            return number

    def update(self, number: int, given: dict[str, Any]) -> bool:
        with self.lock:
            held = self.contacts.get(number)
            self.note(given["code"], f"PUT {number} v{given['version']} over {held}")
            if held is None:
                return False
            if given["version"] < held["version"]:
                self.regressions.append(f"{given['code']}: {held['version']} → {given['version']}")
            self.contacts[number] = given
            return True

    def delete(self, code: str) -> None:
        with self.lock:
            self.note(code, "DELETE")
            for number in [n for n, held in self.contacts.items() if held["code"] == code]:
                del self.contacts[number]

    def find(self, code: str) -> tuple[int, dict[str, Any]] | None:
        with self.lock:
            found = next(((n, c) for n, c in self.contacts.items() if c["code"] == code), None)
            self.note(code, f"GET {found and found[0]}")
            return found

    def held(self) -> dict[str, tuple[Any, ...]]:
        """Of each code its values; one that is there twice has them twice."""
        found: dict[str, tuple[Any, ...]] = {}
        with self.lock:
            for contact in self.contacts.values():
                values = tuple(contact.get(name) or "" for name in NAMES)
                found[contact["code"]] = found.get(contact["code"], ()) + values
        return found

    def twice(self) -> list[str]:
        """Codes that were made more than once."""
        return sorted({code for code in self.made if self.made.count(code) > 1})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CrmServer

    def do_POST(self) -> None:
        number = self.server.books.create(self._body())
        self._stored(201, {"id": number})

    def do_PUT(self) -> None:
        number = int(self.path.rpartition("/")[2])
        if not self.server.books.update(number, self._body()):
            self._answer(404, {"message": "no such contact"})
            return
        self._stored(200, {"id": number})

    def do_DELETE(self) -> None:
        self.server.books.delete(self.path.rpartition("/")[2])
        self._stored(200, {"id": None})

    def do_GET(self) -> None:
        found = self.server.books.find(self.path.rpartition("/")[2])
        if found is None:
            self._answer(404, {"message": "no such contact"})
        else:
            self._answer(200, {"id": found[0], "contact": found[1]})

    def _stored(self, status: int, body: dict[str, Any]) -> None:
        chance = self.server.chance.random()
        if chance < STORED_AND_CUT:
            self.close_connection = True
            self.server.books.failed += 1
        elif chance < STORED_AND_CUT + STORED_AND_FAILED:
            self.server.books.failed += 1
            self._answer(500, {"message": "something went wrong after it was stored"})
        else:
            self._answer(status, body)

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None: ...


class CrmServer(ThreadingHTTPServer):
    """To be used in `with`; it serves from a thread of the test."""

    daemon_threads = True
    # A connection that waits long to be accepted is stored when its caller has given up.
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.books, self.chance = Books(), random.Random(7)
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def handle_error(self, *args: object) -> None:
        """A handler that was killed leaves its connections: nothing to be told."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> CrmServer:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.shutdown()
        self.server_close()


def adapter_settings(url: str) -> dict[str, Any]:
    """How an operator would describe this CRM."""
    contact = {"code": "{key}", "version": "{version}"}
    contact |= {name: f"{{field.{name}}}" for name in NAMES}
    return {
        "url": f"{url}/contacts",
        "body": contact,
        "update": {"method": "PUT", "url": f"{url}/contacts/{{remote_id}}", "body": contact},
        "delete": {"method": "DELETE", "url": f"{url}/codes/{{key}}"},
        "read": {
            "url": f"{url}/codes/{{key}}", "record": "contact", "remote_id": "id",
            "version": "contact.version",
        },
        "answer": {"remote_id": "id"},
        "timeout": 10,
    }  # fmt: skip
