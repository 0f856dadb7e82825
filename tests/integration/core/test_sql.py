"""The dialect differences on a real database, and repeating after real deadlocks and losses."""

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.db.utils import IntegrityError, InterfaceError, OperationalError
from django.utils.safestring import mark_safe

from gateway.models import SgipMo
from msgplatform.core.data import engines, sql, transactions
from msgplatform.core.data.engines.mysql import error_codes
from msgplatform.core.errors import OutcomeUnknown
from msgplatform.models import Alert, Biz, IdNode, MinuteCounter
from tests.support.children import run

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

COUNTER = ("minute", "flow", "biz_id", "subject", "name")
MINUTE = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)


def counter(name: str, minute: datetime = MINUTE) -> tuple[object, ...]:
    return (minute, "notify", 1, 2, name)


# -- time ----------------------------------------------------------------------------------------
def test_the_database_s_time_is_utc_whatever_the_server_s_zone_is() -> None:
    before, now, after = datetime.now(UTC), sql.now(), datetime.now(UTC)
    assert before - engines.of().clock_step <= now <= after + engines.of().clock_step


@pytest.mark.parametrize("seconds", [0.0, 60.0, -3600.0, 600.5])
def test_a_time_made_in_sql_is_stored_as_models_store_it(seconds: float) -> None:
    IdNode.objects.create(node=1)
    before = sql.now()
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE id_node SET lease_until = {sql.now_sql(seconds)} WHERE node = %s", [1]
        )
    after = sql.now()
    row = IdNode.objects.get()
    assert row.lease_until
    moment, step = row.lease_until - timedelta(seconds=seconds), engines.of().clock_step
    assert before - step <= moment <= after + step
    assert IdNode.objects.filter(lease_until__gt=Now()).exists() == (seconds > 0)


def test_a_time_given_as_a_parameter_is_the_same_moment_in_every_zone() -> None:
    shanghai = MINUTE.astimezone(timezone(timedelta(hours=8)))
    sql.insert(
        "msgplatform_minutecounter",
        (*COUNTER, "value"),
        [(*counter("a", MINUTE), 1), (*counter("b", shanghai), 1)],
    )
    assert MinuteCounter.objects.filter(minute=MINUTE).count() == 2


# -- inserts -------------------------------------------------------------------------------------
def test_existing_rows_are_kept_and_new_ones_come() -> None:
    Biz.objects.create(id=1, name="orders", title="first")
    columns = ("id", "name", "title", "enabled", "created_at")
    sql.insert_or_keep(
        "biz", columns,
        [
            (2, "orders", "same unique name", True, MINUTE),
            (1, "other", "same primary key", True, MINUTE),
            (3, "stock", "new", True, MINUTE),
        ],
    )  # fmt: skip
    assert list(Biz.objects.order_by("id").values_list("id", "name", "title")) == [
        (1, "orders", "first"),
        (3, "stock", "new"),
    ]


def test_what_is_wrong_with_a_row_is_not_swallowed() -> None:
    columns = ("id", "name", "title", "enabled", "created_at")
    with pytest.raises(IntegrityError):
        sql.insert_or_keep("biz", columns, [(1, None, "no name", True, MINUTE)])


def test_an_insert_is_all_or_nothing() -> None:
    columns = ("node", "holder", "last_tick")
    rows = [(node % 2500, "", 0) for node in range(2600)]  # the 2,501st is there already
    with pytest.raises(IntegrityError):
        sql.insert("id_node", columns, rows)
    assert not IdNode.objects.exists()


def test_nothing_to_insert_asks_nothing(django_assert_num_queries: object) -> None:
    with django_assert_num_queries(0):  # type: ignore[operator]
        sql.insert("biz", ("id",), [])
        sql.insert_or_keep("biz", ("id",), [])
        sql.add_counters("msgplatform_minutecounter", COUNTER, [])


def test_insert_select_keeps_what_exists() -> None:
    Biz.objects.bulk_create([Biz(id=n, name=f"b{n}", title="old") for n in (1, 2, 3)])
    Alert.objects.create(kind="k", subject="kept", key="b2", open_key="b2", first_at=MINUTE,
                         last_at=MINUTE)  # fmt: skip
    statement = """
        INSERT INTO msgplatform_alert
          (kind, subject, text, said, open_key, `key`, count, first_at, last_at)
        SELECT 'k', 'made', '', '{}', b.name, b.name, 1, b.created_at, b.created_at
        FROM biz b WHERE b.id >= %s"""
    with connection.cursor() as cursor:
        cursor.execute(sql.keep_existing(statement, "msgplatform_alert"), [1])
    assert list(Alert.objects.order_by("key").values_list("key", "subject")) == [
        ("b1", "made"),
        ("b2", "kept"),
        ("b3", "made"),
    ]


MO = [
    "id", "gateway_id", "user_number", "sp_number", "tp_pid", "tp_udhi", "message_coding",
    "content", "text", "parts", "missing", "sequence", "received_at", "archived_at", "biz_id",
    "account_id",
]  # fmt: skip


def mo(
    id: int, text: str = "", content: bytes | memoryview = b"", at: datetime = MINUTE
) -> tuple[object, ...]:
    return (
        *(id, 1, "86138", "10655", 0, True, 8, content, text, 1, 0, mark_safe("1:2:3"), at, at),
        *(2**63 - 1, -1),
    )


@pytest.mark.parametrize(
    "text",
    ["", "it's", 'say "no"', "back\\slash\\'", "100 % %s %(x)s", "nul\0 tab\t\r\n\x1a", "短信 😀"],
)
def test_text_comes_back_as_it_went_in(text: str) -> None:
    content = bytes(range(256)) + text.encode("utf-16")
    sql.insert(SgipMo._meta.db_table, MO, [mo(1, text, content), mo(2, text, memoryview(content))])
    for row in SgipMo.objects.all():
        assert row.text == text
        assert bytes(row.content) == content
        assert (row.tp_udhi, row.sequence) == (1, "1:2:3")
        assert (row.biz_id, row.account_id) == (2**63 - 1, -1)


@pytest.mark.parametrize(
    "at",
    [
        datetime(2026, 5, 4, 12, 30, 1, 999_999, tzinfo=UTC),
        datetime(2026, 5, 4, 20, 30, 1, tzinfo=timezone(timedelta(hours=8))),
    ],
)
def test_a_time_comes_back_as_the_same_moment(at: datetime) -> None:
    sql.insert(SgipMo._meta.db_table, MO, [mo(1, at=at)])
    assert SgipMo.objects.get().received_at == at


def test_rows_that_fill_many_statements(django_assert_max_num_queries: Any) -> None:
    """The longest is longer than a statement is meant to be; each goes in once."""
    sizes = [700_000, *[1000] * 2000, 600_000]
    rows = [mo(number, "x", b"y" * size) for number, size in enumerate(sizes)]
    with django_assert_max_num_queries(10):
        sql.insert(SgipMo._meta.db_table, MO, rows)
    assert SgipMo.objects.count() == len(sizes)
    assert len(SgipMo.objects.get(id=0).content) == 700_000


def test_many_rows_are_few_statements() -> None:
    """A literal in VALUES, or a clause that mysqlclient does not know, is one INSERT a row."""
    rows = [(counter(f"n{n}"), n) for n in range(3000)]
    with connection.cursor() as cursor:
        before = _inserts(cursor)
        sql.add_counters("msgplatform_minutecounter", COUNTER, rows)
        made = _inserts(cursor) - before
    assert MinuteCounter.objects.count() == 3000
    assert made <= 10


def _inserts(cursor: object) -> int:
    if connection.vendor != "mysql":
        return 0  # SQLite has no server to speak to
    cursor.execute("SHOW SESSION STATUS LIKE 'Com_insert'")  # type: ignore[attr-defined]
    return int(cursor.fetchone()[1])  # type: ignore[attr-defined]


# -- counters ------------------------------------------------------------------------------------
def test_counters_are_made_added_to_and_summed_within_a_batch() -> None:
    table = "msgplatform_minutecounter"
    sql.add_counters(table, COUNTER, [(counter("a"), 2), (counter("b"), 1), (counter("a"), 3)])
    sql.add_counters(table, COUNTER, [(counter("a"), -1), (counter("c"), 7)])
    assert dict(MinuteCounter.objects.values_list("name", "value")) == {"a": 4, "b": 1, "c": 7}


ADD = """
import random
from datetime import datetime, timezone
from gateway.models import SgipMo
from msgplatform.core.data import sql
names = [f"n{n}" for n in range(20)]

def work(number):
    rng, added = random.Random(number), {}
    for _ in range(20):
        rows = []
        for name in rng.sample(names, 10):
            rows.append(((datetime(2026, 5, 4, tzinfo=timezone.utc), "notify", 1, 0, name), 1))
            added[name] = added.get(name, 0) + 1
        sql.add_counters(
            "msgplatform_minutecounter", ("minute", "flow", "biz_id", "subject", "name"), rows
        )
    return added

together(work, 6)
"""


def test_processes_that_add_to_the_same_counters_lose_nothing_and_do_not_deadlock() -> None:
    wanted: Counter[str] = Counter()
    for added in run(ADD):
        wanted.update(added)
    assert sum(wanted.values()) == 1200
    assert dict(MinuteCounter.objects.values_list("name", "value")) == wanted


# -- transactions --------------------------------------------------------------------------------
def test_in_transaction_sees_the_caller_s_only() -> None:
    assert not transactions.is_in_transaction()
    with transaction.atomic():
        assert transactions.is_in_transaction()


@pytest.mark.django_db
def test_in_transaction_does_not_count_the_test_case_s() -> None:
    assert connection.in_atomic_block
    assert not transactions.is_in_transaction()
    with transaction.atomic():
        assert transactions.is_in_transaction()


@pytest.mark.parametrize("code", sorted(error_codes.REPEATABLE))
def test_work_is_repeated_until_it_is_done(code: int) -> None:
    left = [OperationalError(code, "again")] * (transactions.ATTEMPTS - 1)

    def work() -> str:
        if left:
            raise left.pop()
        return "done"

    assert transactions.retrying(work) == "done"


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (OperationalError(1213, "for ever"), transactions.ATTEMPTS),
        (OperationalError(1040, "too many connections"), 1),
        (OperationalError("disk I/O error"), 1),
        (ValueError("a bug"), 1),
    ],
)
def test_it_gives_up_in_the_end_and_at_once_on_anything_else(error: Exception, times: int) -> None:
    calls = []

    def work() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        transactions.retrying(work)
    assert len(calls) == times


@pytest.mark.parametrize(
    "errors",
    [
        [OperationalError(2013, "lost"), OperationalError(2002, "Can't connect")],
        [OperationalError(2006, "gone"), OperationalError(1213, "Deadlock found")] * 3,
        [OperationalError(2013, "lost")] * transactions.ATTEMPTS,
        [OperationalError(2013, "lost"), IntegrityError(1062, "Duplicate entry")],
        [OperationalError(2013, "lost"), InterfaceError(0, "")],
    ],
)
def test_after_a_lost_connection_nobody_says_that_nothing_happened(errors: list[Exception]) -> None:
    left = list(errors)

    def work() -> None:
        raise left.pop(0)

    with pytest.raises(OutcomeUnknown):
        transactions.retrying(work)


def test_a_connection_that_broke_is_found_behind_the_error_of_its_successor() -> None:
    """As at the end of `atomic`, when there is nothing to connect to any more."""

    def work() -> None:
        try:
            raise OperationalError(2013, "lost")
        finally:
            raise OperationalError(2002, "Can't connect")

    with pytest.raises(OperationalError) as raised:
        work()
    assert not transactions.nothing_happened(raised.value)
    with pytest.raises(OutcomeUnknown):
        transactions.retrying(work)


def _noted(code: int) -> OperationalError:
    error = OperationalError(code, "in the transaction")
    error.add_note(transactions.BEFORE_COMMIT)
    return error


@pytest.mark.parametrize(
    ("error", "is_certain"),
    [
        (OperationalError(1047, "WSREP has not yet prepared node for application use"), False),
        (OperationalError(1180, "Got error 6 'No such device or address' during COMMIT"), False),
        (OperationalError(2013, "Lost connection to server during query"), False),
        (_noted(1047), True),
        (_noted(2013), True),
        (
            OperationalError(
                2013, "Lost connection to server at 'handshake: reading initial communication "
                "packet', system error: 11",
            ),
            True,
        ),
    ],
)  # fmt: skip
def test_only_what_may_have_come_at_commit_is_unknown(
    error: OperationalError, is_certain: bool
) -> None:
    assert transactions.is_away(error)
    assert transactions.nothing_happened(error) is is_certain


def test_a_loss_before_commit_stays_certain_when_nothing_answers_any_more() -> None:
    def work() -> None:
        try:
            raise _noted(2013)
        finally:
            raise OperationalError(2002, "Can't connect")

    with pytest.raises(OperationalError) as raised:
        transactions.retrying(work)
    assert transactions.nothing_happened(raised.value)


def test_inside_a_transaction_nothing_is_repeated() -> None:
    """The server has rolled back the caller's part too: only the caller can repeat it."""
    calls = []

    def work() -> None:
        calls.append(1)
        raise OperationalError(1213, "Deadlock found")

    with pytest.raises(OperationalError), transaction.atomic():
        transactions.retrying(work)
    assert len(calls) == 1


def test_threads_have_transactions_of_their_own() -> None:
    seen = []
    with transaction.atomic():
        thread = threading.Thread(target=lambda: seen.append(transactions.is_in_transaction()))
        thread.start()
        thread.join()
    assert seen == [False]
