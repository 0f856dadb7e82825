"""The Agent when rows are refused, or the intake is unavailable, slow, broken, not the intake."""

import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from bench.harness.mariadb import MariaDb
from tests.support import agent_support
from tests.support.agent_support import (
    KINDS,
    Intake,
    Make,
    Shop,
    accept,
    problem,
    until_empty,
    verdicts,
)
from tests.support.http_sinks import refusing_port

shop = pytest.fixture(params=KINDS)(agent_support.shop)
intake = pytest.fixture(agent_support.an_intake)
relays = pytest.fixture(agent_support.agents)
_unblocked = pytest.fixture(autouse=True)(agent_support.foreign_databases_only)


# -- refusals -------------------------------------------------------------------------------------
def test_refused_rows_are_kept_with_the_reason(shop: Shop, intake: Intake, relays: Make) -> None:
    def script(messages: list[dict[str, Any]]) -> agent_support.Answer:
        no = {"outcome": "rejected", "code": "conflict", "field": "f", "detail": "use a new key"}
        return verdicts([no if m["payload"]["n"] % 2 else {"outcome": "created"} for m in messages])

    intake.script = script
    shop.insert(4)
    keys = shop.column("msg_key")
    created = shop.column("created_at")
    relay = relays()
    relay.turn()
    assert shop.column("id") == []
    dead = "msg_key, event_type, payload, created_at, code, reason"
    assert [tuple(row) for row in shop.execute(f"SELECT {dead} FROM outbox_dead ORDER BY id")] == [
        (keys[n], "order.paid", f'{{"n": {n}}}', created[n], "conflict", "f: use a new key")
        for n in (1, 3)
    ]
    assert (relay.heartbeat.done, relay.heartbeat.failed) == (2, 0)


NOT_JSON = [
    "{",
    "",
    '1},{"event_type":"evil","payload":2',
    '1],"more":[2',
    "NaN",
    '"a"b"',
    "[" * 10**5,
]


def test_what_is_not_json_does_not_spoil_its_neighbours(
    shop: Shop, intake: Intake, relays: Make
) -> None:
    shop.insert(1)
    with closing(shop.connect()) as producer:
        mark = "%s" if shop.kind == "mariadb" else "?"
        for payload in NOT_JSON:
            statement = f"INSERT INTO outbox (event_type, payload) VALUES ('a', {mark})"
            producer.cursor().execute(statement, (payload,))
        producer.commit()
    shop.insert(1, start=1)
    relays().turn()
    assert intake.seen() == [0, 1]
    assert shop.column("id") == []
    assert shop.column("payload", "outbox_dead") == NOT_JSON
    assert set(shop.column("code", "outbox_dead")) == {"invalid"}
    assert all("not JSON" in reason for reason in shop.column("reason", "outbox_dead"))


def test_text_that_is_no_utf_8(tmp_path: Path, mariadb: MariaDb, intake: Intake) -> None:
    """SQLite takes any bytes as text; reading them must not stop the Agent."""
    shop = Shop("sqlite", tmp_path, mariadb)
    shop.load_ddl()
    shop.execute("INSERT INTO outbox (event_type, payload) VALUES ('a', CAST(X'22FF22' AS TEXT))")
    shop.execute("INSERT INTO outbox (event_type, payload) VALUES (CAST(X'FF' AS TEXT), '1')")
    shop.execute("INSERT INTO outbox (event_type, payload) VALUES ('a', X'7B7D')")
    with agent_support.relays(shop, intake.url) as make:
        make().turn()
    assert [message["event_type"] for message in intake.requests[0]] == ["\ufffd", "a"]
    assert shop.column("id", "outbox_dead") == [1]
    assert shop.column("id") == []


def test_a_huge_row_is_refused_unread(shop: Shop, intake: Intake, relays: Make) -> None:
    shop.insert(1)
    zeros = "REPEAT('0', 9000000)" if shop.kind == "mariadb" else "HEX(ZEROBLOB(4500000))"
    shop.execute(f"INSERT INTO outbox (event_type, payload) VALUES ('a', {zeros})")
    shop.insert(1, start=1)
    relays().turn()
    assert intake.seen() == [0, 1]
    assert shop.column("code", "outbox_dead") == ["too_large"]
    assert shop.column("id") == []


def test_requests_are_bounded_in_bytes(shop: Shop, intake: Intake, relays: Make) -> None:
    text = "REPEAT('0', 3000000)" if shop.kind == "mariadb" else "HEX(ZEROBLOB(1500000))"
    quoted = f"CONCAT('{{\"n\": \"', {text}, '\"}}')"
    if shop.kind == "sqlite":
        quoted = f"'{{\"n\": \"' || {text} || '\"}}'"
    for _ in range(4):
        shop.execute(f"INSERT INTO outbox (event_type, payload) VALUES ('a', {quoted})")
    relays().turn()
    assert [len(request) for request in intake.requests] == [2, 2]
    assert shop.column("id") == []


# -- trouble --------------------------------------------------------------------------------------
def page(messages: list[Any]) -> agent_support.Answer:
    return 200, {"Content-Type": "text/html"}, b"<html>please log in</html>"


AWAY: dict[str, agent_support.Script] = {
    "unavailable": lambda messages: problem(503, "unavailable"),
    "gateway": lambda messages: (502, {}, b"<html>"),
    "key": lambda messages: problem(401, "unauthenticated"),
    "scope": lambda messages: problem(403, "missing-scope"),
    "throttled": lambda messages: problem(429, "throttled"),
    "host": lambda messages: problem(400, "bad-request"),
    "stranger": lambda messages: (400, {"Content-Type": "text/html"}, b"plain HTTP to TLS"),
    "nowhere": lambda messages: problem(404, "not-found"),
    "moved": lambda messages: (301, {"Location": "https://elsewhere/"}, b""),
    "login page": page,
    "one verdict too few": lambda messages: verdicts([{"outcome": "created"}] * 4),
    "unknown verdict": lambda messages: verdicts([{"outcome": "perhaps"}] * len(messages)),
    "cut": lambda messages: (
        200,
        {"Content-Length": "9999", "Connection": "close"},
        b'{"results": [',
    ),
}  # fmt: skip


@pytest.mark.parametrize("trouble", AWAY)
def test_an_intake_that_is_away_costs_rows_nothing(
    shop: Shop, intake: Intake, relays: Make, trouble: str
) -> None:
    shop.insert(5)
    intake.script = AWAY[trouble]
    relay = relays(batch=5)
    for _ in range(4):
        relay.turn()
        shop.expire()
    assert len(intake.requests) > 1, "it comes again"
    assert shop.column("attempts") == [0] * 5
    assert shop.column("claimed_by") == [""] * 5
    assert all(shop.column("last_error"))
    assert shop.column("id", "outbox_dead") == []
    intake.script = accept
    intake.requests.clear()
    until_empty(relay, shop)
    assert sorted(intake.seen()) == [0, 1, 2, 3, 4]


def test_nothing_listens_then_somebody_does(shop: Shop, intake: Intake, relays: Make) -> None:
    shop.insert(5)
    port = refusing_port()
    relay = relays(url=f"http://127.0.0.1:{port}")
    for _ in range(3):
        relay.turn()
        shop.expire()
    assert len(shop.column("id")) == 5
    relay.client.url = intake.url + "/api/v1/messages/batch"
    until_empty(relay, shop)
    assert intake.seen() == [0, 1, 2, 3, 4]


def test_the_agent_waits_as_long_as_it_is_told(shop: Shop, intake: Intake, relays: Make) -> None:
    shop.insert(1)
    intake.script = lambda messages: problem(429, "throttled", **{"Retry-After": "25"})
    relay = relays()
    begun = time.monotonic()
    relay.turn()
    assert begun + 25 <= relay._resume_at <= time.monotonic() + 25
    relay._resume_at += 600  # however busy this machine is
    shop.expire()
    relay.stopping.set()  # ends the pause's wait, not the pause
    relay.turn()
    assert len(intake.requests) == 1


def test_an_intake_that_does_not_answer_gets_smaller_requests(shop: Shop, intake: Intake) -> None:
    over = threading.Event()
    sent: list[int] = []

    def script(messages: list[Any]) -> agent_support.Answer:
        if len(messages) > 3:
            over.wait(60)
        return accept(messages)

    intake.script = script
    shop.insert(12)
    with agent_support.relays(shop, intake.url, timeout=1.0) as make:
        relay = make(batch=12)
        send = relay.client.send
        # Not what has come to the intake: a busy machine may give up before that.
        relay.client.send = lambda events: sent.append(len(events)) or send(events)  # type: ignore
        until_empty(relay, shop)
    over.set()
    assert sent[:3] == [12, 6, 3]


@pytest.mark.parametrize("status", [408, 504])
def test_a_row_that_is_too_slow_by_itself_stops_nobody_else(
    shop: Shop, intake: Intake, relays: Make, status: int
) -> None:
    def script(messages: list[Any]) -> agent_support.Answer:
        bad = any(message["payload"]["n"] == 0 for message in messages)
        return (status, {}, b"<html>") if bad else accept(messages)

    intake.script = script
    shop.insert(8)
    relay = relays(batch=8)
    for _ in range(40):
        relay.turn()
        shop.expire("last_error = '' OR id > 1")  # the first row waits for as long as it was told
        if len(shop.column("id")) == 1:
            break
    assert shop.column("payload") == ['{"n": 0}']
    intake.script = accept
    until_empty(relay, shop)


def test_many_rows_on_which_the_intake_breaks_starve_nobody(
    shop: Shop, intake: Intake, relays: Make
) -> None:
    def script(messages: list[Any]) -> agent_support.Answer:
        bad = any(message["payload"]["n"] < 8 for message in messages)
        return problem(500, "internal-error") if bad else accept(messages)

    intake.script = script
    shop.insert(12)
    shop.execute("UPDATE outbox SET attempts = 14 WHERE id <= 8")  # each has broken it alone
    relays(batch=12).turn()
    assert shop.column("payload") == [f'{{"n": {n}}}' for n in range(8)]


@pytest.mark.parametrize("by_proxy", [True, False])
def test_a_request_that_is_too_large_is_halved(
    shop: Shop, intake: Intake, relays: Make, by_proxy: bool
) -> None:
    def script(messages: list[Any]) -> agent_support.Answer:
        if len(messages) > 3:
            return (413, {}, b"<html>") if by_proxy else problem(413, "body-too-large")
        return accept(messages)

    intake.script = script
    shop.insert(10)
    relays().turn()
    assert shop.column("id") == []
    assert shop.column("id", "outbox_dead") == []


def test_a_row_that_the_intake_refuses_as_a_request_is_found(
    shop: Shop, intake: Intake, relays: Make
) -> None:
    def script(messages: list[Any]) -> agent_support.Answer:
        bad = any(message["payload"]["n"] == 6 for message in messages)
        return problem(400, "malformed-body") if bad else accept(messages)

    intake.script = script
    shop.insert(10)
    relays().turn()
    assert shop.column("id") == []
    assert shop.column("payload", "outbox_dead") == ['{"n": 6}']
    assert "because of malformed-body" in shop.column("reason", "outbox_dead")[0]


def test_a_proxy_s_413_condemns_no_row(shop: Shop, intake: Intake, relays: Make) -> None:
    intake.script = lambda messages: (413, {}, b"<html>")
    shop.insert(4)
    relay = relays()
    for _ in range(3):
        relay.turn()
        shop.expire()
    assert len(shop.column("id")) == 4
    assert shop.column("id", "outbox_dead") == []


def test_rows_on_which_the_intake_breaks_stop_nobody_else(
    shop: Shop, intake: Intake, relays: Make
) -> None:
    def script(messages: list[Any]) -> agent_support.Answer:
        bad = any(message["payload"]["n"] in {11, 40, 41} for message in messages)
        return problem(500, "internal-error") if bad else accept(messages)

    intake.script = script
    shop.insert(64)
    relay = relays(batch=64)
    for _ in range(60):
        relay.turn()
        shop.expire("attempts < 9")  # those above wait for minutes
        if len(shop.column("id")) == 3:
            break
    assert shop.column("payload") == [f'{{"n": {n}}}' for n in (11, 40, 41)]
    assert shop.column("id", "outbox_dead") == []
    intake.script = accept
    until_empty(relay, shop)


# -- rows that the business system's database does not let go -------------------------------------
NUMBERS = (1366, 1406, 1264, 1644, 1815, 1030, 1142, 1290, 1114, 1205, 1213)
PROMPT_SECONDS = 30.0  # of two turns; a busy machine may stand still


@pytest.fixture
def mariadb_shop(tmp_path: Path, mariadb: MariaDb) -> Shop:
    made = Shop("mariadb", tmp_path, mariadb)
    made.load_ddl()
    return made


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    ("statement", "condition"),
    [("DELETE ON outbox", "OLD.id = 3"), ("INSERT ON outbox_dead", "NEW.payload LIKE '%2%'")],
)
def test_a_row_that_cannot_go_stays_alone(
    mariadb_shop: Shop, intake: Intake, number: int, statement: str, condition: str
) -> None:
    """Neither a relayed row nor a refused one: it comes again much later, the others at once."""
    shop = mariadb_shop
    if "dead" in statement:
        intake.script = lambda messages: verdicts([{"outcome": "rejected"} for _ in messages])
    shop.execute(
        f"CREATE TRIGGER poison BEFORE {statement} FOR EACH ROW IF {condition} THEN "
        f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'poison'; END IF"
    )
    shop.insert(6)
    with agent_support.relays(shop, intake.url) as make:
        relay, begun = make(), time.monotonic()
        with suppress(OperationalError):  # of a lock: the loop logs it
            relay.turn()
        assert shop.column("id") == [3]
        shop.insert(3, start=6)
        relay.turn()
        assert shop.column("id") == [3]
        assert time.monotonic() - begun < PROMPT_SECONDS
        if number not in (1205, 1213):
            assert "poison" in shop.column("last_error")[0]
        shop.execute("DROP TRIGGER poison")
        until_empty(relay, shop)


@pytest.mark.parametrize("is_claimed", [False, True], ids=["before the claim", "while it is sent"])
def test_a_row_that_a_transaction_has_locked_waits_alone(
    mariadb_shop: Shop, intake: Intake, is_claimed: bool
) -> None:
    """As of somebody who has looked at it by hand, and gone to lunch."""
    shop = mariadb_shop
    shop.insert(6)
    with closing(shop.connect()) as somebody, agent_support.relays(shop, intake.url) as make:

        def lock() -> None:
            somebody.cursor().execute("SELECT * FROM outbox WHERE id = 3 FOR UPDATE")

        def script(messages: list[dict[str, Any]]) -> agent_support.Answer:
            if is_claimed:
                lock()
            return accept(messages)

        intake.script = script
        if not is_claimed:
            lock()
        relay, begun = make(), time.monotonic()
        relay.turn()
        assert shop.column("id") == [3]
        shop.insert(3, start=6)
        relay.turn()
        assert shop.column("id") == [3]
        assert time.monotonic() - begun < PROMPT_SECONDS
        somebody.rollback()
        intake.script = accept
        until_empty(relay, shop)


def test_pages_of_rows_that_a_transaction_has_locked_hide_no_others(
    mariadb_shop: Shop, intake: Intake
) -> None:
    shop = mariadb_shop
    shop.insert(9)
    with closing(shop.connect()) as somebody, agent_support.relays(shop, intake.url) as make:
        somebody.cursor().execute("SELECT * FROM outbox WHERE id IN (1, 2, 3, 4, 5) FOR UPDATE")
        make(batch=2).turn()
        assert shop.column("id") == [1, 2, 3, 4, 5, 8, 9], "a request is full"
