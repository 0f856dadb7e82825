"""What the Tryton adapter makes of answers that a real Tryton does not give on demand."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crmsync.adapters.base import Record
from crmsync.adapters.outcomes import (
    Auth,
    Invalid,
    Ok,
    Outcome,
    Refused,
    Retry,
    Throttled,
    Unknown,
)
from crmsync.adapters.tryton.adapter import TrytonAdapter
from tests.support.json_stub import Answer, Asked, asked, serving

Open = Callable[..., TrytonAdapter]
NO_COLUMN = "column party_party.x does not exist"  # as psycopg says, without the name of its class


@pytest.fixture
def open_adapter(settings: Any) -> Iterator[Open]:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    opened: list[TrytonAdapter] = []

    def open_one(url: str, password: str = "hush-hush", **given: Any) -> TrytonAdapter:
        set_to = {"url": url, "database": "crm", "user": "admin", **given}
        opened.append(TrytonAdapter(set_to, {"password": password}))
        return opened[-1]

    yield open_one
    for adapter in opened:
        adapter.close()


def lead(key: str, version: int = 1, **fields: Any) -> Record:
    return Record(key, version, {"name": f"name {key}", **fields})


def test_an_ended_session_is_opened_anew_once(open_adapter: Open) -> None:
    sessions: list[str] = []

    def answer(request: Asked) -> Answer:
        method = request.body["method"]
        if method == "common.db.login":
            sessions.append("one")
            return Answer({"id": 1, "result": [1, f"token-{len(sessions)}", None]})
        if len(asked(server)) == 4:  # the session ends after fields_get
            return Answer(b"", 401)
        results = {"fields_get": {"name": {}}, "search_read": [], "create": [7]}
        return Answer({"id": 1, "result": results[method.rpartition(".")[2]]})

    with serving(answer) as server:
        adapter = open_adapter(server.url(""))
        assert adapter.send([lead("a")]) == [Ok("7", True)]
        assert len(sessions) == 2


def test_a_field_that_was_added_since_is_found(open_adapter: Open) -> None:
    known: dict[str, Any] = {"name": {}}
    read: list[str] = []

    def answer(request: Asked) -> Answer:
        method = request.body["method"].rpartition(".")[2]
        if method == "fields_get":
            read.append(method)
        results = {"login": [1, "token-1", None], "fields_get": known, "search_read": [],
                   "create": [7]}  # fmt: skip
        return Answer({"id": 1, "result": results[method]})

    with serving(answer) as server:
        adapter = open_adapter(server.url(""), model="x.lead")
        assert [type(o) for o in adapter.send([lead("a", budget=1)])] == [Invalid]
        assert adapter.send([lead("b")]) == [Ok("7", True)]
        assert len(read) == 1
        known["budget"] = {}
        assert adapter.send([lead("a", budget=1)]) == [Ok("7", True)]
        assert len(read) == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer({"id": 1, "error": ["ConcurrencyException", "Record was modified"]}), Retry),
        (Answer({"id": 1, "error": [NO_COLUMN, ""]}), Retry),
        (Answer(b"", 413), Retry),
        (Answer({"id": 1, "error": ["UserError", ["The name is odd.", "", None]]}), Invalid),
        (Answer(drop=True), Unknown),
        (Answer({}, 502), Retry),
        (Answer(b"<html>"), Unknown),
        (Answer({"error": {"message": "not found"}}), Unknown),
        (Answer({"error": []}), Unknown),
        (Answer({"id": 1, "result": []}), Unknown),
    ],
)  # fmt: skip
def test_what_an_answer_to_a_change_means(
    open_adapter: Open, answer: Answer, kind: type[Outcome]
) -> None:
    def answering(request: Asked) -> Answer:
        method = request.body["method"].rpartition(".")[2]
        if method == "create":
            return answer
        results = {"login": [1, "token-1", None], "fields_get": {"name": {}}, "search_read": []}
        return Answer({"id": 1, "result": results[method]})

    with serving(answering) as server:
        (outcome,) = open_adapter(server.url("")).send([lead("a")])
        assert isinstance(outcome, kind)


@pytest.mark.parametrize(
    ("method", "answer", "outcome"),
    [
        ("create", Answer({"id": 1, "error": [NO_COLUMN, ""]}), Refused(NO_COLUMN)),
        ("create", Answer(b"", 413), Refused("HTTP 413")),
        ("search_read", Answer({"id": 1, "error": [NO_COLUMN, ""]}), Auth(NO_COLUMN)),
        ("fields_get", Answer(b"", 404), Auth("HTTP 404")),
        ("login", Answer(b"", 404),
         Auth("Tryton has no database crm, or the database does not answer.")),
    ],
)  # fmt: skip
def test_a_fault_of_the_server_is_no_record_s(
    open_adapter: Open, method: str, answer: Answer, outcome: Outcome
) -> None:
    results = {"login": [1, "token-1", None], "fields_get": {"name": {}}, "search_read": []}

    def answering(request: Asked) -> Answer:
        name = request.body["method"].rpartition(".")[2]
        return answer if name == method else Answer({"id": 1, "result": results[name]})

    with serving(answering) as server:
        assert open_adapter(server.url("")).send([lead("a"), lead("b")]) == [outcome] * 2


def test_too_many_wrong_logins_are_waited_for(open_adapter: Open) -> None:
    with serving(lambda _: Answer(b"", 429)) as server:
        assert open_adapter(server.url("")).send([lead("a"), lead("b")]) == [Throttled(60.0)] * 2
        assert len(server.requests) == 1
