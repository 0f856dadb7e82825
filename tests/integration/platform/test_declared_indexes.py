"""Every declared index, and every page of a bulk action, reads as many rows of a table as of one
ten times as large."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management.color import no_style
from django.db import connection, models

from crmsync.models import Crm, Lead, Record, RecoveryEntry
from gateway.models import SgipMt
from msgplatform.core import flows
from msgplatform.core.data import ids, sql
from msgplatform.core.flows.messages import Source
from msgplatform.messages import engine
from msgplatform.models import Biz
from notify.feed.models import EventQueue, Feed
from notify.models import BizMsg, ColdBizMsg, ColdReceiveMsg, ReceiveMsg
from tests.integration.crmsync.sync_support import hive
from tests.support import small_pages

pytestmark = pytest.mark.django_db(transaction=True)
# One row in twelve of half of the smaller table is more than a page.
SMALL, LARGE = 1_300, 13_000
PAGE = 51
MAX_ID = 2**63 - 1
# Flow → values by which its indexes are opened: each row of the tables below matches one in ten.
FILTERS: Mapping[str, list[dict[str, Any]]] = {
    "notify": [
        {}, {"biz": 1}, {"event_type": "type.1"}, {"biz": 1, "event_type": "type.1"},
        {"biz": 1, "event_type": "none"}, {"subscription": 1}, {"status": "accepted"},
        # With a system, as the API asks.
        {"biz": 1, "subscription": 1}, {"biz": 1, "status": "accepted"},
        {"biz": 1, "status": "delivered"}, {"biz": 1, "key": "none"}, {"biz": 1, "channel": "eu"},
    ],
    "sms": [{}, {"number": "8613800000001"}, {"account": 1}, {"biz": 1}, {"state": "failed"},
            {"state": "delivered"}, {"number": "8613800000001", "biz": 1}, {"account": 1, "biz": 1},
            {"state": "failed", "biz": 1}, {"state": "delivered", "biz": 1},
            {"biz": 1, "key": "k", "reference": "r"}],
    "crmsync": [
        {}, {"phone": "13800000001"}, {"uid": "u-1"}, {"appkey": "ad-1"}, {"biz": 1},
        {"remote_id": "r-1"}, {"record_key": "k-1"},
    ],
    "feed": [
        {}, {"user": "u-1"}, {"user": "u-1", "biz": 1}, {"user": "u-1", "topic": "vip"},
        {"state": "set_aside"}, {"state": "waiting", "topic": "vip"}, {"topic": "upkeep"},
        {"biz": 1, "state": "not_deleted", "posts_only": True},
        {"biz": 1, "user": "u-1", "state": "edited", "posts_only": True},
        {"biz": 1, "user": "u-1", "app_id": "web", "kind": "note", "posts_only": True},
        {"biz": 1, "state": "waiting", "posts_only": True},
    ],
}  # fmt: skip

# Bulk actions whose index has many rows, few or none of which match.
ACTIONS: list[tuple[str, str, dict[str, str]]] = [
    ("notify", "backfill", {"biz": "biz-1"}),
    ("notify", "backfill", {"biz": "biz-1", "event_type": "type.1"}),
    ("notify", "replay_failed", {"biz": "biz-1"}),
    ("notify", "replay_failed", {"biz": "biz-1", "event_type": "type.1"}),
    ("sms", "resend", {}), ("sms", "resend", {"biz": "biz-3"}), ("sms", "resend", {"answer": "no"}),
    ("feed", "resend", {}), ("feed", "resend", {"biz": "biz-3"}),
    ("feed", "dismiss", {"user": "x"}),
    ("crmsync", "resend", {}), ("crmsync", "dismiss", {"crm": "hubspot"}),
    ("crmsync", "resend", {"error_class": "invalid"}),
]  # fmt: skip


def fill(model: type[models.Model], count: int, **columns: Any) -> None:
    """New rows in an empty table; a column is a value, or a function of the row's number."""
    new = connection.ops.sql_flush(no_style(), [model._meta.db_table], reset_sequences=True)
    connection.ops.execute_sql_flush(new)
    fields = {field.column: field for field in model._meta.concrete_fields}
    now = sql.now()  # a question to the server
    rows = []
    for n in range(count):
        row = {name: c(n) if callable(c) else c for name, c in columns.items()}
        for name, field in fields.items():
            if name not in row:
                row[name] = _default(field, now)
        rows.append(row)
    names = list(rows[0])
    for start in range(0, count, 1000):
        part = [
            tuple(sql.stored(row[name]) for name in names) for row in rows[start : start + 1000]
        ]
        sql.insert(model._meta.db_table, names, part)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {model._meta.db_table}")
        cursor.fetchall()


def _default(field: models.Field[Any, Any], now: datetime) -> Any:
    if field.has_default():
        value = field.get_default()
        return (
            field.get_db_prep_value(value, connection) if isinstance(value, dict | list) else value
        )
    if field.null:
        return None
    if isinstance(field, models.DateTimeField):
        return now
    if isinstance(field, models.BinaryField):
        return b"{}"
    return "" if isinstance(field, models.CharField | models.TextField) else 0


def tables(count: int) -> None:
    numbers = [ids.new(0) for _ in range(count)]

    def number(n: int) -> int:
        return numbers[n]

    def one_in_ten(text: str) -> Any:
        return lambda n: f"{text}{n % 10}"

    biz = {"biz_id": lambda n: n % 10}
    for model in (BizMsg, ColdBizMsg):
        state = {"state": lambda n: int(n % 10 != 1)} if model is BizMsg else {}
        fill(model, count, id=number, event_type=one_in_ten("type."), **biz, **state)
    for deliveries in (ReceiveMsg, ColdReceiveMsg):
        fill(deliveries, count, id=number, msg_id=number, biz_receive_id=lambda n: n % 10, **biz)
    fill(SgipMt, count, id=number, user_number=one_in_ten("861380000000"),
         account_id=lambda n: n % 10, final=lambda n: ("delivered", "failed")[n % 10 == 1],
         **biz)  # fmt: skip
    fill(Lead, count, id=number, phone=one_in_ten("1380000000"), uid=one_in_ten("u-"),
         appkey=one_in_ten("ad-"), extra="{}", **biz)  # fmt: skip
    fill(Record, count, id=number, key=one_in_ten("k-"), remote_id=one_in_ten("r-"),
         policy_id=lambda n: n, state=3)  # fmt: skip
    fill(Feed, count, id=number, uid=one_in_ten("u-"), topic=lambda n: ("friend", "vip")[n % 2],
         app_id="web", src_type="note", **biz)  # fmt: skip
    fill(EventQueue, count, qid=number, topic=lambda n: ("friend", "vip", "upkeep")[n % 3],
         kind="post", status=lambda n: n % 4, uid="u", **biz)  # fmt: skip


def rows_read() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
        return sum(int(value) for _name, value in cursor.fetchall())


def sources() -> Iterator[tuple[str, Source, dict[str, Any]]]:
    for name, filters in FILTERS.items():
        flow = flows.get(name)
        assert flow
        for values in filters:
            for number, source in enumerate(flow.messages.sources(values)):
                yield f"{name} {number} {values}", source, values


def costs_of_indexes(count: int) -> dict[str, int]:
    """Rows that each index reads for a page, at four places of a table with so many rows."""
    costs = {}
    middle = int(BizMsg.objects.order_by("id").values_list("id", flat=True)[count // 2])
    for name, source, values in sources():
        places = {"newest": (MAX_ID, False), "older": (middle, False),
                  "oldest": (0, True), "newer": (middle, True)}  # fmt: skip
        for place, (bound, is_ascending) in places.items():
            table = engine.Table(source, values)
            table.is_exact()  # chooses the index
            at = rows_read()
            assert len(table.ids(bound, PAGE, is_ascending)) in (0, PAGE), name
            costs[f"{name} {place}"] = rows_read() - at
    return costs


def costs_of_actions() -> dict[str, int]:
    """Rows that the first pages of each bulk action read."""
    costs = {}
    since = {"since": (sql.now() - timedelta(days=1)).isoformat()}
    for flow_name, action_name, filter in ACTIONS:
        flow = flows.get(flow_name)
        assert flow
        selection = flow.action(action_name).select({**since, **filter}, sql.now())
        position = ""
        for page_number in (1, 2):
            at = rows_read()
            page = selection.page(position, PAGE)
            name = f"{flow_name} {action_name} {filter} {page_number}"
            costs[name] = rows_read() - at
            position = page.position
            assert position, name
    return costs


def test_a_page_reads_as_many_rows_whatever_the_size_of_its_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One test for both kinds of page, since filling the tables is most of what it costs."""
    if connection.vendor != "mysql":  # SQLite counts no rows
        return
    hive("hubspot")
    crm = Crm.objects.get()
    for number in range(1, 10):
        Biz.objects.create(pk=number, name=f"biz-{number}")
    costs: list[dict[str, int]] = []
    for count in (SMALL, LARGE):
        tables(count)
        fill(RecoveryEntry, count, id=lambda n: n + 1, crm_id=crm.pk, error_class="retry",
             state=lambda n: 2 * int(n % 10 != 1))  # fmt: skip
        with monkeypatch.context() as patch:
            small_pages.set_page_size(patch, PAGE)
            of_actions = costs_of_actions()
        costs.append(costs_of_indexes(count) | of_actions)
    small, large = costs
    assert {name: rows for name, rows in large.items() if rows > small[name] + 20} == {}
    assert max(large.values()) < 1000, large
