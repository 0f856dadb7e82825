"""Search: hot and archive as one, by every field, page by page, bounded."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from bench.harness.plans import read_plan
from msgplatform.core.data import ids
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.flows.messages import MAX_ID, MAX_SORTED
from msgplatform.messages import engine
from msgplatform.models import Biz
from notify.api.serializers import MessageDetailSerializer
from notify.archive import stores
from notify.messages.index import MESSAGES
from notify.messages.records import record, records
from notify.models import BizMsg, BizReceive, ColdBizMsg, ColdReceiveMsg, ReceiveMsg
from tests.servers import Servers
from tests.support.archive_support import (
    Status,
    archive,
    cold_database,
    hot_ids,
    message,
    place,
)
from tests.support.notify_plans import ROWS_OF_STORE, rows_read, two_stores
from tests.support.notify_rows import publish, subscription

__all__ = ["place"]

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"))


def found(limit: int = 50, **given: object) -> list[int]:
    """All pages' ids, in the order in which they came."""
    everything: list[int] = []
    cursor = ""
    while True:
        page = engine.find(
            MESSAGES, {name: str(value) for name, value in given.items()}, cursor, limit
        )
        assert len(page.hits) <= limit
        everything += [int(hit.id) for hit in page.hits]
        if not page.cursor:
            assert everything == sorted(set(everything), reverse=True)
            return everything
        assert not cursor or int(page.cursor) < int(cursor), "a page goes on"
        cursor = page.cursor


def test_every_field_finds_hot_and_archived(row: BizReceive, place: str) -> None:
    other = subscription(Biz.objects.create(name="stock"), "shop")
    kinds = [
        (row, Status.DELIVERED, "order.paid", "eu", b'{"text":"\\u6d88 first"}'),
        (row, Status.EXHAUSTED, "order.paid", "us", '{"text":"消 second"}'.encode()),
        (other, Status.DELIVERED, "stock.empty", "eu", b'{"text":"third"}'),
    ]
    old: list[Any] = []
    new: list[Any] = []
    for days, into in ((50, old), (1, new)):
        for n, (to, status, event_type, channel, payload) in enumerate(kinds):
            pk = message(
                to, status, days=days, event_type=event_type, channel=channel, payload=payload,
                key=f"k-{days}-{n}", answer=f"answer {n}!",
            )  # fmt: skip
            into.append(pk)
    archive()
    assert sorted(hot_ids()) == sorted(new)
    both = [*new, *old]
    assert found() == sorted(both, reverse=True)
    for limit in (1, 2, 5, 6):
        assert found(limit) == sorted(both, reverse=True)
    for n in range(3):
        assert set(found(key=f"k-50-{n}")) == {old[n]}
        assert set(found(id=old[n])) == {old[n]}
        assert set(found(id=new[n])) == {new[n]}
    first_two, third = {new[0], new[1], old[0], old[1]}, {new[2], old[2]}
    assert set(found(biz="orders")) == set(found(biz=row.biz_id)) == first_two
    assert set(found(event_type="stock.empty")) == third
    assert set(found(channel="eu")) == {new[0], old[0], *third}
    assert set(found(subscription=other.pk)) == set(found(subscription="stock/shop")) == third
    assert set(found(status="exhausted")) == {new[1], old[1]}
    assert set(found(status="delivered", subscription=row.pk)) == {new[0], old[0]}
    assert set(found(biz="orders", event_type="order.paid", channel="us")) == {new[1], old[1]}
    assert found(biz="orders", event_type="stock.empty") == []
    assert found(status="accepted") == found(status="held") == []
    since = f"{ids.datetime_of(new[0]):%Y-%m-%dT%H:%M:%S+00:00}"
    assert set(found(since=since)) == set(new)
    assert set(found(until=since)) == set(old)
    assert set(found(biz="orders", text="消")) == first_two
    assert set(found(biz="orders", text="second")) == {new[1], old[1]}
    assert set(found(since="2025-01-01", text="answer 2!")) == third
    assert found(since="2025-01-01", text="Answer 2!") == [], "in the case in which it is written"


@pytest.mark.parametrize("given", [{}, {"biz": "orders", "channel": "eu"}, {"text": "1"}])
def test_places_that_interleave_are_one_list(
    row: BizReceive, place: str, given: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old messages that are held stay between the archived ones; many of the one, few of the
    other."""
    monkeypatch.setattr(engine, "BATCH", 4)
    pks = [
        message(row, Status.HELD if n % 7 == 0 else Status.DELIVERED, channel="eu", days=60)
        for n in range(40)
    ]
    archive()
    assert len(hot_ids()) == 6
    if "text" in given:
        given = {**given, "since": "2025-01-01"}
    for limit in (1, 3, 7):
        assert found(limit, **given) == pks[::-1]


def test_a_delivery_s_id_finds_its_message(row: BizReceive, place: str) -> None:
    pks = [message(row, Status.DELIVERED, days=days) for days in (50, 1)]
    deliveries = dict(ReceiveMsg.objects.values_list("msg_id", "id"))
    archive()
    for pk in pks:
        assert found(id=deliveries[pk]) == [pk]
        (hit,) = engine.search(MESSAGES, str(deliveries[pk]), 10).hits
        assert hit.id == str(pk)


def test_a_line_says_what_became_of_it(row: BizReceive, place: str) -> None:
    message(row, Status.DELIVERED, Status.EXHAUSTED, days=50)
    message(row, Status.DELIVERED, days=1)
    message(row, days=1)
    publish(row.biz)
    archive()
    states = [hit.state for hit in engine.find(MESSAGES, {}, "", 10).hits]
    assert states == [
        "accepted", "no subscriber", "delivered", "delivered 1, exhausted 1 (archived)",
    ]  # fmt: skip


def test_a_search_costs_the_same_for_many_lines(row: BizReceive) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            engine.find(MESSAGES, {"biz": "orders"}, "", 50)
        return len(captured)

    message(row, Status.DELIVERED, days=1)
    few = queries()
    for _ in range(40):
        message(row, Status.DELIVERED, days=1)
    assert queries() <= few


def test_deliveries_in_a_status_are_read_once_for_all_systems_of_a_person(row: BizReceive) -> None:
    subscriptions = [row, *(subscription(Biz.objects.create(name=f"biz-{n}")) for n in range(5))]
    pks = [message(each, Status.EXHAUSTED, days=1) for each in subscriptions]
    systems = frozenset(each.biz_id for each in subscriptions[:-1])
    with CaptureQueriesContext(connection) as queries:
        hits = engine.find(MESSAGES, {"status": "exhausted"}, "", 10, systems).hits
    assert [int(hit.id) for hit in hits] == pks[-2::-1]
    assert sum(str(MAX_SORTED + 1) in query["sql"] for query in queries) == 1


def test_many_in_a_status_are_walked(row: BizReceive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a bound the deliveries of a status are not sorted: messages are looked at in turn."""
    pks = [message(row, Status.EXHAUSTED if n % 3 else Status.DELIVERED, days=1) for n in range(30)]
    monkeypatch.setattr("notify.messages.index.MAX_SORTED", 5)
    expected = [pk for n, pk in enumerate(pks) if n % 3]
    assert sorted(found(7, status="exhausted")) == expected
    assert sorted(found(7, status="exhausted", subscription=row.pk)) == expected


def test_a_page_is_bounded_and_the_next_goes_on(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    needle = message(row, Status.DELIVERED, days=3, payload=b'{"n":"needle"}')
    for _ in range(40):
        message(row, Status.DELIVERED, days=1)
    monkeypatch.setattr(engine, "BATCH", 5)
    monkeypatch.setattr(engine, "MAX_SCANNED_TEXTS", 20)
    first = engine.find(MESSAGES, {"biz": "orders", "text": "needle"}, "", 50)
    assert (list(first.hits), bool(first.cursor)) == ([], True)
    assert "20 messages" in first.notice
    assert found(biz="orders", text="needle") == [needle]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"text": "x"}, "text"),
        ({"text": "x", "event_type": "a.b"}, "text"),
        ({"status": "lost"}, "status"),
        ({"since": "yesterday"}, "since"),
        ({"until": "2026-02-30"}, "until"),
        ({"biz": "nobody"}, "biz"),
        ({"subscription": "a/b"}, "subscription"),
        ({"subscription": "x"}, "subscription"),
        ({"id": "1.5"}, "id"),
        ({"key": "\x00"}, "key"),
        ({"color": "red"}, "color"),
    ],
)
def test_wrong_input_gets_a_sentence(given: dict, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        engine.find(MESSAGES, given, "", 10)
    assert caught.value.field == field
    assert len(str(caught.value)) > 10


def test_keys_of_many_systems_are_asked_for_in_groups(row: BizReceive) -> None:
    Biz.objects.bulk_create([Biz(name=f"biz-{n}") for n in range(230)])
    last = subscription(Biz.objects.get(name="biz-229"), "last")
    pk = message(last, Status.DELIVERED, days=1, key="one of a kind")
    with CaptureQueriesContext(connection) as captured:
        assert [hit.id for hit in engine.search(MESSAGES, "one of a kind", 10).hits] == [str(pk)]
    asked = [q["sql"] for q in captured if "bucket" in q["sql"]]
    assert len(asked) == 3
    assert max(sql.count("bucket") for sql in asked) <= 110


# -- one message ---------------------------------------------------------------------------------
def test_the_page_of_an_archived_message(row: BizReceive, place: str) -> None:
    pk = message(row, Status.DELIVERED, payload=b'{"n":42}')
    before = MESSAGES.page(str(pk))
    archive()
    after = MESSAGES.page(str(pk))
    assert before
    assert after
    assert (after.title, after.body) == (before.title, before.body)
    assert after.facts["State"] == "archived"
    assert [e.title for e in after.timeline] == [*(e.title for e in before.timeline), "Archived"]


def test_a_hot_message_hides_what_a_killed_archiver_left(row: BizReceive, place: str) -> None:
    pk = message(row, Status.PENDING)
    at = ids.datetime_of(pk)
    ColdBizMsg.objects.create(
        id=pk, biz_id=row.biz_id, event_type="order.paid", payload=b"1", created_at=at,
        archived_at=at,
    )  # fmt: skip
    ColdReceiveMsg.objects.create(
        id=pk + 1, msg_id=pk, biz_id=row.biz_id, biz_receive_id=row.pk, status=Status.DELIVERED,
        send_times=1, generation=0, http_status=200, created_at=at, updated_at=at,
    )  # fmt: skip
    (hit,) = engine.find(MESSAGES, {}, "", 10).hits
    assert hit.state == "pending"
    assert engine.find(MESSAGES, {"status": "delivered"}, "", 10).hits == []
    assert len(engine.find(MESSAGES, {"status": "pending"}, "", 10).hits) == 1
    page = MESSAGES.page(str(pk))
    assert page
    assert page.body == '{"n":1}'
    assert [type(m) for m in records(row.biz_id, [pk]).values()] == [BizMsg]


# -- an archive that is unavailable --------------------------------------------------------------
@pytest.fixture
def unavailable(row: BizReceive, servers: Servers, tmp_path: Path) -> Iterator[dict[str, int]]:
    """An archived message, a hot one, and an archive that cannot be reached."""
    pks = {
        "archived": message(row, Status.DELIVERED),
        "hot": message(row, Status.DELIVERED, days=1),
    }
    server = servers.mariadb() if connection.vendor == "mysql" else None
    with cold_database(tmp_path, server):
        archive()
        connections["cold"].close()
        settings = connections["cold"].settings_dict
        name, settings["NAME"] = settings["NAME"], "/no/such/place"
        yield pks
        connections["cold"].close()
        settings["NAME"] = name


def test_an_archive_that_is_unavailable_is_reported(unavailable: dict[str, int]) -> None:
    page = engine.find(MESSAGES, {"biz": "orders"}, "", 10)
    assert [int(hit.id) for hit in page.hits] == [unavailable["hot"]]
    assert "archive cannot be read" in page.notice
    assert "archive cannot be read" in MESSAGES.search_warning(None)
    assert MESSAGES.page(str(unavailable["hot"]))
    with pytest.raises(Unavailable):
        MESSAGES.page(str(unavailable["archived"]))


def test_the_console_says_that_the_archive_is_away(
    unavailable: dict[str, int], admin_client: Client, work_redis: object
) -> None:
    for path in ("search?q=x", "search/notify?biz=orders"):
        answer = admin_client.get(f"/console/{path}")
        assert answer.status_code == 200
        assert "archive cannot be read" in answer.content.decode()
    answer = admin_client.get(f"/console/notify/{unavailable['archived']}")
    assert answer.status_code == 503
    assert "archive cannot be read" in answer.content.decode()


def test_the_api_s_list_needs_the_archive_only_for_what_is_old(
    unavailable: dict[str, int], row: BizReceive
) -> None:
    more = sorted(publish(row.biz, 3), reverse=True)
    values = {"biz": row.biz_id}
    ids_and_next = engine.find_ids(MESSAGES, values, MAX_ID, 3)
    assert ids_and_next == (more, more[-1])
    assert list(records(row.biz_id, more)) == more
    with pytest.raises(Unavailable):
        engine.find_ids(MESSAGES, values, MAX_ID, 10)
    assert record(row.biz_id, unavailable["hot"], False)
    with pytest.raises(Unavailable):
        record(row.biz_id, unavailable["archived"], False)


# -- the API's list ------------------------------------------------------------------------------
def test_the_list_of_the_api_is_of_both(row: BizReceive, place: str) -> None:
    pks = [message(row, Status.DELIVERED, Status.SKIPPED, days=days) for days in (50, 40, 2, 1)]
    other = message(subscription(Biz.objects.create(name="stock"), "x"), Status.DELIVERED)
    archive()
    newest_first = sorted(pks, reverse=True)
    with CaptureQueriesContext(connection) as captured:
        listed = records(row.biz_id, [other, *newest_first])
    assert len(captured) <= 8
    assert list(listed) == newest_first
    assert [type(m) for m in listed.values()] == [BizMsg, BizMsg, ColdBizMsg, ColdBizMsg]
    messages = [record(row.biz_id, pk, False) for pk in newest_first]
    shown = [MessageDetailSerializer(message).data for message in messages]
    for one in json.loads(json.dumps(shown, default=str)):
        assert len(one["deliveries"]) == 2
        assert {d["status"] for d in one["deliveries"]} == {"delivered", "skipped"}
        assert [a["response_body"] for d in one["deliveries"] for a in d["attempts"]] == [
            "thank you"
        ] * 2
    assert record(row.biz_id, other, False) is None
    assert record(row.biz_id, 1, False) is None


# -- plans ---------------------------------------------------------------------------------------
PAGE = 50


@pytest.fixture
def many(row: BizReceive) -> BizReceive:
    """A subscription of one of the two systems whose messages fill both stores."""
    two_stores(row.biz_id)
    return row


@pytest.mark.parametrize(
    "asked", [("event_type",), ("biz",), ("event_type", "biz", "channel"), ()], ids=str
)
def test_candidates_come_in_the_order_of_an_index(many: BizReceive, asked: tuple) -> None:
    """Neither a sort, nor a read of the table's rows, nor of more than the page."""
    values: dict[str, Any] = {"event_type": "type.n1", "biz": many.biz_id, "channel": "eu"}
    values = {name: values[name] for name in asked}
    for source in MESSAGES.sources(values):
        before = rows_read()
        with CaptureQueriesContext(connection) as queries:
            assert len(engine.Table(source, values).ids(MAX_ID, PAGE)) == PAGE
        assert rows_read() - before < ROWS_OF_STORE / 10
        statement = queries.captured_queries[-1]["sql"]
        with connection.cursor() as cursor:
            (step,) = read_plan(cursor, statement.replace("%", "%%"))
        if connection.vendor == "mysql":
            assert "filesort" not in step["Extra"], step
            index_only = "Using index" in step["Extra"]
            assert index_only if asked else step["key"] == "PRIMARY", step
        else:  # with a second step for a sort
            assert "USING COVERING INDEX" in step["detail"], step


def test_candidates_are_looked_at_by_their_key_alone(many: BizReceive) -> None:
    """With the system and the type as conditions MariaDB reads, in a large table, all messages of
    both by their index, to find the few that have these ids."""
    values = {"channel": "", "event_type": "type.n1", "biz": many.biz_id}
    for source, store in zip(MESSAGES.sources(values), (stores.hot(), stores.cold()), strict=True):
        table = engine.Table(replace(source, indexes=()), values)
        page = table.ids(MAX_ID, PAGE)
        rows = store.messages.filter(biz_id=many.biz_id, event_type="type.n1")
        expected = set(rows.values_list("id", flat=True)) & set(page)
        with CaptureQueriesContext(connections[store.using]) as queries:
            assert table.matching(page) == expected
        (query,) = queries.captured_queries
        conditions = query["sql"].partition(" WHERE ")[2]
        assert " IN (" in conditions
        assert "biz_id" not in conditions
        assert "event_type" not in conditions
