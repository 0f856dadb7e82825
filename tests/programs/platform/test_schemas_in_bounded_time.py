"""JSON Schemas of the catalogue that ask for much work: the web server answers others meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import EventType
from tests.support.api_server import JSON, Server

pytestmark = pytest.mark.django_db(transaction=True)
MESSAGES = "/api/v1/messages"
# CPU seconds of the server for one case. Without its bounds each case needs minutes, during which
# nobody else is answered.
MAX_CPU_SECONDS = 60.0
HANGS_SECONDS = 60.0  # for others; no machine is so busy


def doubling(keyword: str, depth: int) -> dict[str, Any]:
    """Each level refers to the next one twice."""
    levels = {f"level{n}": {keyword: [{"$ref": f"#/$defs/level{n + 1}"}] * 2} for n in range(depth)}
    return {"$ref": "#/$defs/level0", "$defs": {**levels, f"level{depth}": {"type": "number"}}}


def tree(depth: int) -> Any:
    value: Any = {"value": "text"}
    for _ in range(depth):
        value = {"below": value}
    return value


TREE = {
    "type": "object",
    "properties": {
        "below": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        "value": {"type": "number"},
    },
}
PATTERN, STEPS = "does not match", "it takes too long to compare it with the schema"
CASES = {
    "mail": ({"pattern": r"^([a-zA-Z0-9_.-]+)+@example\.com$"}, "a" * 26 + "!", PATTERN),
    "groups": ({"pattern": "^(a+)+$"}, "a" * 27 + "!", PATTERN),
    "cubic": ({"pattern": ".*.*x$"}, "a" * 20_000, "by the JSON Schema of"),
    "names": ({"patternProperties": {"^(x+)+$": {}}}, {"x" * 28 + "!": 1}, None),
    "additional": (
        {"patternProperties": {"^(x+)+$": {}}, "additionalProperties": False},
        {"x" * 28 + "!": 1},
        "not allowed",
    ),
    "references": (doubling("allOf", 18), 7, STEPS),
    "alternatives": (TREE, tree(19), STEPS),
    "instructions": ({"pattern": "[ab]*a[ab]{900}c"}, "abbaab" * 40_000, STEPS),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("web") / "log")
    yield server
    server.stop()


class Others:
    """A caller that does not validate, and a look at /healthz, again and again; the longest wait
    for each."""

    def __init__(self, server: Server, key: str) -> None:
        self.server, self.key = server, key
        self.longest = {"publish": 0.0, "healthz": 0.0}
        self.statuses: set[int] = set()
        self.answers = dict.fromkeys(self.longest, 0)
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(name, *request))
            for name, request in {
                "publish": ("POST", MESSAGES, key, b'{"event_type": "a", "payload": 1}', JSON),
                "healthz": ("GET", "/healthz"),
            }.items()
        ]

    def _ask(self, name: str, *request: Any) -> None:
        while not self._is_over.is_set():
            began = time.monotonic()
            self.statuses.add(self.server.request(*request)[0])
            self.longest[name] = max(self.longest[name], time.monotonic() - began)
            self.answers[name] += 1
            time.sleep(0.01)

    def wait_for_answers(self) -> None:
        """Wait until both have been answered once more."""
        before = dict(self.answers)
        deadline = time.monotonic() + 2 * HANGS_SECONDS
        while any(self.answers[name] == before[name] for name in before):
            assert time.monotonic() < deadline, (before, self.answers)
            time.sleep(0.01)

    def __enter__(self) -> Others:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def test_others_are_answered_meanwhile(server: Server, work_redis: object) -> None:
    orders = Biz.objects.create(name="orders", validates_events=True)
    validated = keys.create(orders, "test", ["events:write"])[1]
    other = keys.create(Biz.objects.create(name="stock"), "test", ["events:write"])[1]
    # Written past the form, as entries of an earlier release are.
    for case, (schema, _payload, _words) in CASES.items():
        EventType.objects.create(name=f"case.{case}", schema=schema)
    EventType.objects.create(name="case.known", schema={"type": "string"})
    small = b'{"event_type": "a", "payload": 1}'
    for key in (validated, other):  # the keys are known now
        assert server.request("POST", MESSAGES, key, small, JSON)[0] == 202
    known = b'{"event_type": "case.known", "payload": 1}'
    deadline = time.monotonic() + 180  # the server looks at the catalogue every five seconds
    while server.request("POST", MESSAGES, validated, known, JSON)[0] != 400:
        assert time.monotonic() < deadline, "the catalogue is not known"
        time.sleep(0.2)
    for case, (_schema, payload, words) in CASES.items():
        body = json.dumps({"event_type": f"case.{case}", "payload": payload}).encode()
        with Others(server, other) as others:
            before = server.cpu_seconds()
            status, answer = server.request("POST", MESSAGES, validated, body, JSON)
            used = server.cpu_seconds() - before
            others.wait_for_answers()
        assert status == (400 if words else 202), (case, answer)
        assert (words or "") in answer.decode(), case
        assert others.statuses == {200, 202}
        assert used < MAX_CPU_SECONDS, case
        assert max(others.longest.values()) < HANGS_SECONDS, (case, others.longest)
