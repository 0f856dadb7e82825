"""The Agent's turn on real databases: what is relayed, in whose transaction, under which claim."""

import json
import socket
import threading
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import connections
from django.test.utils import CaptureQueriesContext

from bench.harness.mariadb import MariaDb
from msgplatform.core.daemons.heartbeats import WITHDRAW_SECONDS, Heartbeat, beat
from msgplatform.core.errors import Unavailable
from msgplatform.core.servers.private_server import free_port
from notify.agent import store
from notify.agent.relay import MARGIN_SECONDS, Figures
from tests.servers import DatabaseServer
from tests.support import agent_support
from tests.support.agent_support import (
    INSERT,
    KEY,
    KINDS,
    TIMEOUT_SECONDS,
    Intake,
    Make,
    Shop,
    accept,
    until_empty,
    verdicts,
)

pytestmark = pytest.mark.both_databases

shop = pytest.fixture(params=KINDS)(agent_support.shop)
intake = pytest.fixture(agent_support.an_intake)
relays = pytest.fixture(agent_support.agents)
_unblocked = pytest.fixture(autouse=True)(agent_support.foreign_databases_only)


# -- the way through ------------------------------------------------------------------------------
def test_a_plain_insert_is_relayed_and_deleted(shop: Shop, intake: Intake, relays: Make) -> None:
    shop.execute(
        "INSERT INTO outbox (event_type, payload) VALUES ('order.paid', '{ \"n\" : 1.00}')"
    )
    (key,) = shop.column("msg_key")
    relays().turn()
    assert shop.column("id") == []
    assert intake.requests == [
        [{"event_type": "order.paid", "channel": "", "idempotency_key": key, "payload": {"n": 1.0}}]
    ]
    assert b'{ "n" : 1.00}' in intake.bodies[0], "the payload's bytes"
    assert intake.headers[0]["path"] == "/api/v1/messages/batch"
    assert intake.headers[0]["authorization"] == f"Bearer {KEY}"
    assert shop.column("id", "outbox_dead") == []


TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def test_the_trace_of_an_event_is_relayed(shop: Shop, intake: Intake, relays: Make) -> None:
    shop.execute(
        "INSERT INTO outbox (event_type, payload, traceparent)"
        f" VALUES ('order.paid', '1', '{TRACEPARENT}')"
    )
    relays().turn()
    assert intake.requests[0][0]["traceparent"] == TRACEPARENT


def test_keys_are_distinct_by_default(shop: Shop) -> None:
    shop.insert(50)
    assert len(set(shop.column("msg_key"))) == 50


def test_rows_go_in_order_in_batches(shop: Shop, intake: Intake, relays: Make) -> None:
    shop.insert(25)
    relay = relays(batch=10)
    for _ in range(3):
        relay.turn()
    assert [len(request) for request in intake.requests] == [10, 10, 5]
    assert intake.seen() == list(range(25))
    assert relay.heartbeat.done == 25


def test_a_row_for_later_waits(shop: Shop, intake: Intake, relays: Make) -> None:
    shop.insert(2)
    shop.execute("UPDATE outbox SET next_at = '2099-01-01 00:00:00' WHERE id = 1")
    relay = relays()
    relay.turn()
    relay.turn()
    assert intake.seen() == [1]
    assert shop.column("id") == [1]


def test_producers_in_another_time_zone(tmp_path: Path, mariadb: MariaDb, intake: Intake) -> None:
    """The server and this session say +08:00: the row is due now, not in eight hours."""
    shop = Shop("mariadb", tmp_path, mariadb)
    shop.load_ddl()
    with closing(shop.connect()) as producer:
        cursor = producer.cursor()
        cursor.execute("SET time_zone = '+13:00'")
        cursor.execute(INSERT % 1)
        producer.commit()
    with agent_support.relays(shop, intake.url) as make:
        relay = make()
        relay.turn()
    assert intake.seen() == [1]


def test_duplicates_are_done_too(shop: Shop, intake: Intake, relays: Make) -> None:
    shop.insert(3)
    intake.script = lambda messages: verdicts([{"outcome": "duplicate", "id": "7"}] * len(messages))
    relays().turn()
    assert shop.column("id") == []


# -- transactions of producers --------------------------------------------------------------------
WAITS = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'"


def test_a_late_commit_under_a_lower_id(tmp_path: Path, mariadb: MariaDb, intake: Intake) -> None:
    """A transaction stays open over several rounds, between rows that are relayed meanwhile."""
    shop = Shop("mariadb", tmp_path, mariadb)
    shop.load_ddl()
    shop.insert(3)
    with closing(shop.connect()) as slow, closing(shop.connect()) as failing:
        slow.cursor().execute(INSERT % 100)
        failing.cursor().execute(INSERT % 666)
        shop.insert(3, start=3)
        with agent_support.relays(shop, intake.url) as make:
            relay = make(batch=2)
            before = shop.execute(WAITS)
            for n in range(6, 12):
                relay.turn()
                shop.insert(1, start=n)
            assert shop.execute(WAITS) == before, "no statement waited for the open transaction"
            assert 100 not in intake.seen()
            failing.rollback()
            slow.commit()
            for _ in range(8):
                relay.turn()
            assert shop.column("id") == []
    assert sorted(intake.seen()) == [*range(12), 100]


def test_a_producer_that_holds_sqlite_s_write_lock(
    tmp_path: Path, mariadb: MariaDb, intake: Intake
) -> None:
    """The Agent waits for it, and finds what it commits."""
    shop = Shop("sqlite", tmp_path, mariadb)
    shop.load_ddl()
    shop.insert(1)
    writing, done = threading.Event(), threading.Event()

    def write() -> None:
        with closing(shop.connect()) as slow:
            slow.cursor().execute(INSERT % 1)
            writing.set()
            done.wait(1)
            slow.commit()

    thread = threading.Thread(target=write)
    thread.start()
    assert writing.wait(60)
    with agent_support.relays(shop, intake.url) as make:
        until_empty(make(), shop)
    thread.join()
    assert sorted(intake.seen()) == [0, 1]


def test_rolled_back_ids_leave_gaps_that_stop_nobody(
    shop: Shop, intake: Intake, relays: Make
) -> None:
    relay = relays()
    for n in range(3):
        with closing(shop.connect()) as failing:
            failing.cursor().execute(INSERT % 666)
            failing.rollback()
        shop.insert(1, start=n)
        relay.turn()
    # A lower id than any seen before.
    shop.execute("INSERT INTO outbox (id, event_type, payload) VALUES (-5, 'a', '{\"n\": 50}')")
    relay.turn()
    assert intake.seen() == [0, 1, 2, 50]


# -- claims ---------------------------------------------------------------------------------------
def test_who_was_overtaken_deletes_nothing(shop: Shop, intake: Intake, relays: Make) -> None:
    """The lease ends while the request is under way, and another Agent has the rows."""
    stale, other = relays(), relays()
    claims: list[Any] = []

    def script(messages: list[Any]) -> agent_support.Answer:
        if not claims:
            shop.expire()
            claims.append(other.store.claim(10, 60))
            other.store.close()
        no = {"outcome": "rejected", "code": "invalid", "detail": "no"}
        return verdicts([no, *[{"outcome": "created"}] * (len(messages) - 1)])

    intake.script = script
    shop.insert(3)
    stale.turn()
    assert len(claims[0].ids) == 3
    assert shop.column("claimed_by") == [claims[0].token] * 3
    assert shop.column("id", "outbox_dead") == []
    assert other.store.settle(claims[0], claims[0].ids, {}) == 3
    assert shop.column("id") == []


def test_who_was_overtaken_releases_nothing(shop: Shop, intake: Intake, relays: Make) -> None:
    stale, other = relays(), relays()
    shop.insert(3)
    mine = stale.store.claim(10, 60)
    shop.expire()
    theirs = other.store.claim(10, 60)
    assert stale.store.release(mine, mine.ids, 5, "late") == 0
    assert shop.column("claimed_by") == [theirs.token] * 3
    assert stale.store.read(mine, mine.ids) == []


def test_nothing_is_sent_when_the_lease_may_end_before_the_answer(
    shop: Shop, intake: Intake, relays: Make
) -> None:
    shop.insert(3)
    relay = relays(lease=TIMEOUT_SECONDS + MARGIN_SECONDS - 1)
    relay.turn()
    assert intake.requests == []
    assert shop.column("claimed_by") == [""] * 3
    relays(lease=TIMEOUT_SECONDS + MARGIN_SECONDS + 300).turn()
    assert intake.seen() == [0, 1, 2]


def test_a_signal_gives_back_what_is_not_sent(shop: Shop, intake: Intake, relays: Make) -> None:
    relay = relays(batch=6)

    def script(messages: list[Any]) -> agent_support.Answer:
        relay.stopping.set()
        return accept(messages)

    intake.script = script
    shop.insert(6)
    relay._max_rows = 2
    relay.turn()
    assert intake.seen() == [0, 1]
    assert shop.column("claimed_by") == [""] * 4


# -- what one sees --------------------------------------------------------------------------------
def test_figures(shop: Shop, intake: Intake, relays: Make) -> None:
    figures = Figures()
    port = free_port()
    figures.serve("127.0.0.1", port)
    shop.insert(3)
    shop.execute("UPDATE outbox SET created_at = '2020-01-01 00:00:00' WHERE id = 2")
    relay = relays(figures=figures)
    relay.turn()
    assert relay.heartbeat.lag > 10**8
    relay._next_measure.at_once()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert "outbox_pending 3.0" in text
    assert 'outbox_relayed_total{result="created"} 3.0' in text
    assert "outbox_intake_up 1.0" in text
    shop.execute("INSERT INTO outbox (event_type, payload) VALUES ('a', '{')")
    relay.turn()
    relay._next_measure.at_once()
    relay.turn()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert "outbox_pending 0.0" in text
    assert "outbox_dead 1.0" in text
    assert 'outbox_relayed_total{result="refused"} 1.0' in text


def test_figures_after_a_long_outage_are_bounded(
    shop: Shop, relays: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_COUNTED", 2)
    shop.insert(3)
    measure = relays().store.measure()
    assert measure.pending == 2
    assert measure.oldest < 3600


def test_a_row_for_later_is_not_late(shop: Shop, relays: Make) -> None:
    shop.execute(
        "INSERT INTO outbox (event_type, payload, created_at, next_at) "
        "VALUES ('a', '{}', '2020-01-01 00:00:00', '2099-01-01 00:00:00')"
    )
    store = relays().store
    assert (store.measure().pending, store.measure().oldest) == (1, 0.0)
    shop.execute("UPDATE outbox SET attempts = 1")  # the Agent itself has put it off
    assert store.measure().oldest > 10**8


def test_a_redis_that_hangs_does_not_slow_the_agent(
    settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msgplatform.core.connections._SOCKET_TIMEOUT", 100)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.REDIS_URL = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        beating = beat(Heartbeat("agent"))
        begun = time.monotonic()
        beating.start()
        beating.stop(WITHDRAW_SECONDS)
        assert time.monotonic() - begun < 60, "one call to this Redis takes 100 s"


def test_missing_tables_are_said_in_a_sentence(
    tmp_path: Path, mariadb: MariaDb, intake: Intake
) -> None:
    for kind in KINDS:
        folder = tmp_path / kind
        folder.mkdir()
        with agent_support.relays(Shop(kind, folder, mariadb), intake.url) as make:
            relay = make()
            with pytest.raises(Unavailable, match=r"no table outbox: load .*mysql\.sql"):
                relay.turn()


def test_a_binary_log_of_statements_is_said_in_a_sentence(tmp_path: Path, intake: Intake) -> None:
    """The business system's own statements work there: their isolation is another one."""
    options: dict[str, str | int] = {
        "log_bin": str(tmp_path / "binlog"), "server_id": 1, "binlog_format": "STATEMENT",
        "transaction_isolation": "REPEATABLE-READ",
    }  # fmt: skip
    server = DatabaseServer(tmp_path / "s", options).start()
    try:
        shop = Shop("mariadb", tmp_path, server)
        shop.load_ddl()
        shop.insert(1)
        with agent_support.relays(shop, intake.url) as make:
            relay = make()
            with pytest.raises(Unavailable, match="set ROW or MIXED"):
                relay.turn()
    finally:
        server.kill()


def test_requeue_as_the_manual_says(shop: Shop, intake: Intake, relays: Make) -> None:
    """The statements are those of docs/agent.md."""
    manual = (Path(__file__).parents[3] / "docs/agent.md").read_text()
    block = manual.partition("<!-- requeue -->")[2].split("```")[1].removeprefix("sql\n")
    shop.execute("INSERT INTO outbox (event_type, payload) VALUES ('a', '{')")
    relay = relays()
    relay.turn()
    (key,) = shop.column("msg_key", "outbox_dead")
    shop.execute("UPDATE outbox_dead SET payload = '{\"n\": 1}'")
    with closing(shop.connect()) as connection:
        for statement in filter(str.strip, block.split(";")):
            connection.cursor().execute(statement)
        connection.commit()
    relay.turn()
    assert intake.seen() == [1]
    assert intake.requests[0][0]["idempotency_key"] == key
    assert shop.column("id", "outbox_dead") == []


def test_every_statement_finds_rows_by_key(
    tmp_path: Path, mariadb: MariaDb, intake: Intake
) -> None:
    """Planned on a table where almost every row is asked for, which tempts to scan it."""
    shop = Shop("mariadb", tmp_path, mariadb)
    shop.load_ddl()
    with agent_support.relays(shop, intake.url) as make:
        relay = make()
        relay.turn()
        shop.insert(3)
        with CaptureQueriesContext(connections[shop.alias]) as queries:
            relay.turn()
    changed = [q["sql"] for q in queries if q["sql"].startswith(("UPDATE", "DELETE"))]
    assert len(changed) == 2
    shop.insert(3, start=3)
    for statement in changed:
        plan = json.loads(shop.execute(f"EXPLAIN FORMAT=JSON {statement}")[0][0])
        assert '"access_type": "ALL"' not in json.dumps(plan), statement
