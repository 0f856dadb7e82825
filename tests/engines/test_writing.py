"""Rows that are inserted, kept, changed and counted, many in one statement."""

import threading
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import DataError, connection, transaction
from django.db.utils import IntegrityError

from bench.harness.plans import read_plan
from msgplatform.core.data import claims, engines, sql, transactions
from msgplatform.core.data.engines.contract import Engine, Fault
from tests.engines.conftest import run
from tests.engines.tables import Counted, Item, Value

COLUMNS = ("id", "key", "name", "state", "claimed_by")
TEXTS = [
    "",
    "a",
    "A",
    "é",
    "e",
    "ß",
    "ss",
    "中文",
    "😀",
    "😁",
    "a'b",
    'a"b',
    "a\\b",
    "a%sb",
    "a\nb",
]
NUMBERS = [0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]


def row(number: int, key: str = "", name: str = "", state: int = 0) -> tuple[Any, ...]:
    return (number, key or f"k{number}", name, state, "")


# -- values --------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_text_comes_back_as_it_was(text: str) -> None:
    sql.insert("suite_value", ("id", "text", "content"), [(1, text, text.encode())])
    Value.objects.create(id=2, text=text, content=text.encode())
    assert [(r.text, bytes(r.content)) for r in Value.objects.all()] == [(text, text.encode())] * 2


def test_bytes_are_no_text() -> None:
    content = bytes(range(256))
    sql.insert("suite_value", ("id", "text", "content"), [(1, "", memoryview(content))])
    assert bytes(Value.objects.get().content) == content


@pytest.mark.parametrize("number", NUMBERS)
def test_a_whole_number_of_64_bits_comes_back_as_it_was(number: int) -> None:
    sql.insert("suite_value", ("id", "text", "content"), [(number, "", b"")])
    assert Value.objects.get(id=number).pk == number


def test_a_number_beyond_64_bits_is_refused(engine: Engine) -> None:
    """On SQLite by the driver, before anything is sent."""
    with pytest.raises((DataError, OverflowError)) as caught:
        sql.insert("suite_value", ("id", "text", "content"), [(2**63, "", b"")])
    if engine.is_server:
        assert engines.fault(caught.value) is Fault.OUT_OF_RANGE
        assert engines.column_of(str(caught.value)) == "id"
    assert not Value.objects.exists()


def test_json_comes_back_as_it_was() -> None:
    """Members may come in another order, and whole numbers beyond 64 bits rounded, on MySQL: what
    has to keep its bytes is no JSON column."""
    data = {"b": [1, 2.5, True, None], "a": {"😀": "中"}, "n": 2**63 - 1, "": ""}
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    Value.objects.create(id=1, data=data)
    Value.objects.create(id=2, data=deep)
    assert [value.data for value in Value.objects.order_by("id")] == [data, deep]


def test_decimals_of_15_digits_are_exact() -> None:
    amounts = [Decimal("0.1"), Decimal("0.2"), Decimal("123456789.123456")]
    for number, amount in enumerate(amounts):
        Value.objects.create(id=number, amount=amount)
    assert list(Value.objects.order_by("id").values_list("amount", flat=True)) == amounts


# -- keys ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("other", ["A", "á", "ａ", "ß", "😁"], ids=ascii)
def test_keys_are_compared_exactly(other: str) -> None:
    own = {"ß": "ss", "😁": "😀"}.get(other, "a")
    sql.insert("suite_item", COLUMNS, [row(1, own), row(2, other)])
    assert Item.objects.get(key=own).pk == 1
    assert Item.objects.get(key=other).pk == 2


def test_keys_that_differ_in_blanks_at_their_end(engine: Engine) -> None:
    """Servers take them for one key, so that the platform refuses blanks there; SQLite does not."""
    try:
        sql.insert("suite_item", COLUMNS, [row(1, "a"), row(2, "a ")])
    except IntegrityError:
        assert engine.is_server
    else:
        assert not engine.is_server


def test_texts_of_other_collations_are_compared_as_bytes(engine: Engine) -> None:
    sql.insert("suite_item", COLUMNS, [row(1, name="Straße"), row(2, name="STRASSE")])
    statement = f"SELECT id FROM suite_item WHERE {engine.exact('name')} = {engine.exact('%s')}"
    assert [number for (number,) in run(connection, statement, ["Straße"])] == [1]


def test_names_are_found_by_their_beginning(engine: Engine) -> None:
    names = ["Anna", "Anne", "An%", "Bert", "😀"]
    sql.insert("suite_item", COLUMNS, [row(n, name=name) for n, name in enumerate(names)])

    def names_with(prefix: str) -> set[str]:
        return set(Item.objects.filter(**engine.begins_with("name", prefix))
                   .values_list("name", flat=True))  # fmt: skip

    assert names_with("Ann") == {"Anna", "Anne"}
    assert names_with("An%") == {"An%"}
    assert names_with("😀") == {"😀"}


@pytest.mark.parametrize("text", ["b", "中", "%", "😀", "\\"], ids=ascii)
def test_bytes_that_a_column_contains(text: str, engine: Engine) -> None:
    contents = [f"a{text}c".encode(), b"B", b"", b"\xff\xfe"]
    rows = [(number, "", content) for number, content in enumerate(contents)]
    sql.insert("suite_value", ("id", "text", "content"), rows)
    statement = f"SELECT id FROM suite_value WHERE {engine.contains('content')}"
    assert [number for (number,) in run(connection, statement, [engine.bytes_of(text)])] == [0]


# -- inserts -------------------------------------------------------------------------------------
def test_rows_that_exist_are_kept_and_new_ones_come() -> None:
    sql.insert("suite_item", COLUMNS, [row(1, "one", "first")])
    sql.insert_or_keep("suite_item", COLUMNS, [row(2, "one"), row(1, "other"), row(3, "three")])
    assert list(Item.objects.order_by("id").values_list("id", "key", "name")) == [
        (1, "one", "first"),
        (3, "three", ""),
    ]


def test_a_wrong_row_is_not_swallowed() -> None:
    with pytest.raises(IntegrityError) as caught:
        sql.insert_or_keep("suite_item", COLUMNS, [(1, None, "", 0, "")])
    assert transactions.error_code(caught.value) in (0, 1048)


def test_an_insert_is_all_or_nothing() -> None:
    rows = [*(row(number) for number in range(2500)), row(7)]
    with pytest.raises(IntegrityError):
        sql.insert("suite_item", COLUMNS, rows)
    assert not Item.objects.exists()


def test_an_insert_from_a_select_keeps_rows_that_exist() -> None:
    sql.insert("suite_item", COLUMNS, [row(1), row(2)])
    statement = ("INSERT INTO suite_value (id, text, content) SELECT id, `key`, `key` "
                 "FROM suite_item WHERE id >= %s")  # fmt: skip
    for _ in range(2):
        run(connection, sql.keep_existing(statement, "suite_value"), [1])
    assert list(Value.objects.order_by("id").values_list("id", "text")) == [(1, "k1"), (2, "k2")]


def test_rows_are_changed_or_made() -> None:
    sql.insert("suite_item", COLUMNS, [row(1, "one", "old", 5)])
    sql.insert_or_update("suite_item", COLUMNS, [row(1, "one", "new", 6), row(2, "two")])
    assert list(Item.objects.order_by("id").values_list("id", "name", "state")) == [
        (1, "new", 6),
        (2, "", 0),
    ]


def test_rows_that_exist_are_updated_by_key() -> None:
    numbers = range(1, 2501)
    sql.insert("suite_item", COLUMNS, [row(number, state=1) for number in numbers])
    texts = {number: TEXTS[number % len(TEXTS)] for number in numbers}
    moment = sql.now()
    sql.update(
        "suite_item", ("id", "name"), [*texts.items(), (9_999, "nobody")][::2],
        {"state": 7, "claimed_by": "it's", "lease_until": moment},
    )  # fmt: skip
    stored = Item.objects.in_bulk()
    assert len(stored) == 2_500
    for number, item in stored.items():
        is_updated = number % 2 == 1
        values = (texts[number], 7, "it's", moment) if is_updated else ("", 1, "", None)
        assert (item.name, item.state, item.claimed_by, item.lease_until) == values
        assert item.key == f"k{number}"


def test_an_update_by_key_is_all_or_nothing() -> None:
    sql.insert("suite_item", COLUMNS, [row(number) for number in range(1, 2501)])
    keys = [(number, f"new{number}") for number in range(1, 2500)]
    with pytest.raises(IntegrityError):
        sql.update("suite_item", ("id", "key"), [*keys, (2500, "new1")], {"state": 1})
    assert not Item.objects.filter(state=1).exists()


def test_counters_of_several_writers_add_up() -> None:
    """In whatever order each has them, no one is lost, and none waits for ever."""
    names = [f"n{number}" for number in range(20)]

    def count(names: list[str]) -> None:
        for _ in range(10):
            rows = [((1, name), 1) for name in names]
            key = ("subject", "name")
            transactions.retrying(partial(sql.add_counters, "suite_counter", key, rows))
        connection.close()

    writers = [threading.Thread(target=count, args=[order]) for order in (names, names[::-1]) * 2]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert list(Counted.objects.values_list("value", flat=True)) == [40] * 20


def test_how_many_rows_a_change_has_reported() -> None:
    """Rows found, not rows that became others: claims and marks depend on it."""
    sql.insert("suite_item", COLUMNS, [row(1, state=1), row(2, state=1)])
    assert run(connection, "UPDATE suite_item SET state = 1 WHERE state = %s", [1]) == 2
    assert Item.objects.filter(state=1).update(state=1) == 2
    assert run(connection, "DELETE FROM suite_item WHERE id = %s", [1]) == 1


@pytest.mark.parametrize(("version", "name"), [(4, "old"), (5, "new"), (6, "new")])
def test_a_newer_row_stays(version: int, name: str, engine: Engine) -> None:
    """`state` is the version here."""
    sql.insert("suite_item", COLUMNS, [row(1, "one", "old", 5)])
    quote = connection.ops.quote_name
    columns = [quote(column) for column in ("id", "key", "name", "claimed_by", "state")]
    start = f"INSERT INTO {quote('suite_item')} ({', '.join(columns)}) VALUES "
    clause = engine.keep_newer(quote("suite_item"), columns, is_number=True)
    with connection.cursor() as cursor:
        engine.insert(
            cursor, start, [(1, "one", "new", "", version), (2, "two", "", "", 1)], clause
        )
    stored = Item.objects.get(id=1)
    assert (stored.name, stored.state) == (name, max(5, version))
    assert Item.objects.filter(id=2).exists()


def test_new_values_of_some_rows(engine: Engine) -> None:
    sql.insert("suite_item", COLUMNS, [row(n, name="old") for n in (1, 2, 3)])
    choice = engine.choice("name", [3, 1])
    assert run(connection, f"UPDATE suite_item SET name = {choice}", ["three", "one"]) == 3
    assert list(Item.objects.order_by("id").values_list("name", flat=True)) == [
        "one", "old", "three",
    ]  # fmt: skip


def test_a_table_of_numbers_is_joined_in_order(engine: Engine) -> None:
    sql.insert("suite_item", COLUMNS, [row(n) for n in (1, 2, 3)])
    table = sql.table_of("t", ("item", "other"), [(3, 1), (1, 2), (9, 9)])
    join = engine.ordered_join
    statement = f"{table} SELECT i.id, t.other FROM t {join} suite_item i ON i.id = t.item"
    assert sorted(run(connection, statement)) == [(1, 2), (3, 1)]


def test_checksums_tell_that_a_row_has_changed(engine: Engine) -> None:
    """SQLite has none: there everything is read."""
    checksum = engine.checksum(["name", "state"])
    total = engine.sum_of_checksums(["name", "state"])
    if not engine.is_server:
        assert (checksum, total) == (None, None)
        return
    sql.insert("suite_item", COLUMNS, [row(1, name="ab"), row(2, name="cd")])
    statement = f"SELECT {checksum} FROM suite_item ORDER BY id"
    before = run(connection, statement), run(connection, f"SELECT {total} FROM suite_item")
    Item.objects.filter(id=1).update(name="cd")
    Item.objects.filter(id=2).update(name="ab")
    after = run(connection, statement), run(connection, f"SELECT {total} FROM suite_item")
    assert after[0] == before[0][::-1]
    Item.objects.filter(id=2).update(name="abc")
    assert run(connection, f"SELECT {total} FROM suite_item") != after[1]


def test_what_was_deleted_does_not_stay_in_a_file(engine: Engine) -> None:
    """A server's files are its operator's, as its logs and backups are."""
    engine.overwrite_deleted(connection)
    secret = "a-secret-of-this-test"
    Value.objects.create(id=1, text=secret)
    Value.objects.filter(id=1).update(text="")
    engine.clear_log(connection)
    if not engine.is_server:
        path = Path(connection.settings_dict["NAME"])
        files = [path, path.with_name(f"{path.name}-wal")]
        assert not any(secret.encode() in file.read_bytes() for file in files if file.exists())


# -- claims --------------------------------------------------------------------------------------
def test_two_that_claim_get_different_rows() -> None:
    sql.insert("suite_item", COLUMNS, [row(number) for number in range(500)])
    results: list[claims.Claim] = []

    def claim() -> None:
        for _ in range(5):
            rows = Item.objects.filter(state=0).order_by("id")
            results.append(claims.claim(rows, limit=60, lease=60))
        connection.close()

    threads = [threading.Thread(target=claim) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    ids = [row_id for result in results for row_id in result.ids]
    assert len(ids) == len(set(ids)) == 500
    assert claims.release(Item, results[0]) == len(results[0].ids)


def test_a_change_by_key_locks_by_key_alone(engine: Engine) -> None:
    sql.insert("suite_item", COLUMNS, [row(number) for number in range(50)])
    hint = engine.by_primary_key(connection, "suite_item")
    with connection.cursor() as cursor:
        (step,) = read_plan(
            cursor, f"UPDATE suite_item {hint} SET state = 1 WHERE id IN (1, 2) AND state = 0"
        )
    index = step["key"] if engine.is_server else step["detail"]
    assert "PRIMARY" in index or "sqlite_autoindex_suite_item_1" in index
    assert (
        run(connection, f"{engine.delete_by_key('suite_item')} WHERE id IN (%s, %s)", [1, 2]) == 2
    )


def test_nothing_of_a_transaction_that_fails_is_stored() -> None:
    def insert_twice() -> None:
        with transaction.atomic():
            sql.insert("suite_item", COLUMNS, [row(1)])
            sql.insert("suite_item", COLUMNS, [row(1)])

    with pytest.raises(IntegrityError):
        insert_twice()
    assert not Item.objects.exists()
