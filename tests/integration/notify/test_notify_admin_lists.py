"""Lists of messages and deliveries: on indexes whatever is chosen, and sending again."""

from __future__ import annotations

import random
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from msgplatform.core.data import ids, sql
from msgplatform.models import AuditLog, Biz
from notify.maker.maker import Maker
from notify.models import BizMsg, BizReceive, ReceiveMsg
from tests.support import table_rows
from tests.support.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

MESSAGES, DELIVERIES = "/admin/notify/bizmsg/", "/admin/notify/receivemsg/"
Status = ReceiveMsg.Status
ROWS = 20_000


def rows_of(client: Client, address: str) -> list[Any]:
    answer = client.get(address)
    assert answer.status_code == 200, (address, answer.status_code)
    return list(answer.context["cl"].result_list)


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


# -- plans ---------------------------------------------------------------------------------------
def fill() -> list[BizReceive]:
    """Skewed over 10 systems and 40 subscriptions: the first has most of it, the last a few."""
    rng = random.Random(7)
    systems = [Biz.objects.create(name=f"system-{n}") for n in range(10)]
    rows = [subscription(biz, f"consumer-{n}") for biz in systems for n in range(4)]
    weights = [1 / (n + 1) ** 1.5 for n in range(len(rows))]
    made = ids.reserve(2 * ROWS).ids([rng.randrange(256) for _ in range(2 * ROWS)])
    now = timezone.now()
    statuses = rng.choices(list(Status), [3, 1, 1, 90, 4, 0.1, 0.9], k=ROWS)
    owners = rng.choices(rows, weights, k=ROWS)
    table_rows.insert_like(
        BizMsg(event_type="order.paid", payload=b"{}", state=1, created_at=now),
        ("id", "biz_id"),
        ((number, row.biz_id) for number, row in zip(made[:ROWS], owners, strict=True)),
    )
    table_rows.insert_like(
        ReceiveMsg(next_at=now, created_at=now, updated_at=now),
        ("id", "msg_id", "biz_id", "biz_receive_id", "status"),
        (
            (number, message, row.biz_id, row.pk, status.value)
            for number, message, row, status in zip(
                made[ROWS:], made[:ROWS], owners, statuses, strict=True
            )
        ),
    )
    with connection.cursor() as cursor:
        tables = ("biz_msg", "receive_msg")
        for table in tables:
            cursor.execute(
                f"ANALYZE TABLE {table}" if connection.vendor == "mysql" else f"ANALYZE {table}"
            )
            cursor.fetchall()
    return rows


def wrong_steps(statement: str) -> list[str]:
    """Steps of a plan that read a whole hot table, or sort rows instead of ids."""
    with connection.cursor() as cursor:
        plan = sql.plan(cursor, statement)
    if connection.vendor == "sqlite":
        details = [step["detail"] for step in plan]
        hot = re.compile(r"SCAN (biz_msg|receive_msg)\b(?!.* USING )")
        return [d for d in details if hot.match(d)]
    wrong = []
    for step in plan:
        if step["table"] not in ("biz_msg", "receive_msg"):
            continue
        extra = step["Extra"] or ""
        searching = "Using where" in extra and int(step["rows"]) > ROWS / 2
        if step["type"] == "ALL" or (step["type"] == "index" and searching):
            wrong.append(f"reads all of {step['table']}")
        # A few dozen rows may be sorted as they are; more only by what the index holds.
        if "filesort" in extra and "Using index" not in extra and int(step["rows"]) > 500:
            wrong.append(f"sorts {step['rows']} rows of {step['table']}")
    return wrong


def test_whatever_is_chosen_is_read_from_an_index(admin_client: Client) -> None:
    rows = fill()
    frequent, rare = rows[0], rows[-1]
    since = (timezone.localtime() - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
    found: dict[str, list[str]] = {}
    for address in [
        MESSAGES,
        f"{MESSAGES}?p=3",
        f"{MESSAGES}?state__exact=0",
        f"{MESSAGES}?biz__id__exact={frequent.biz_id}",
        f"{MESSAGES}?biz__id__exact={rare.biz_id}&state__exact=1",
        f"{MESSAGES}?id_since={since}",
        f"{MESSAGES}?q=order.paid",
        DELIVERIES,
        f"{DELIVERIES}?p=3",
        *(f"{DELIVERIES}?status__exact={status.value}" for status in Status),
        *(f"{DELIVERIES}?biz_receive__id__exact={row.pk}" for row in (frequent, rare)),
        *(
            f"{DELIVERIES}?biz_receive__id__exact={row.pk}&status__exact={status.value}"
            for row in (frequent, rare)
            for status in (Status.DELIVERED, Status.EXHAUSTED)
        ),
        *(f"{DELIVERIES}?biz__id__exact={row.biz_id}" for row in (frequent, rare)),
        f"{DELIVERIES}?id_since={since}&id_until=2099-01-01T00:00",
        f"{DELIVERIES}?q=order.paid",
    ]:
        with CaptureQueriesContext(connection) as captured:
            rows_of(admin_client, address)
        asked = [q["sql"] for q in captured if "_msg" in q["sql"] and q["sql"].startswith("SELECT")]
        assert asked
        for statement in asked:
            if wrong := wrong_steps(statement):
                found[address] = [*wrong, statement[:300]]
    assert found == {}


def rows_read() -> int:
    """What this session has read from tables and indexes (MariaDB counts it)."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
        return sum(int(value) for _name, value in cursor.fetchall())


def test_what_is_rare_costs_little(admin_client: Client) -> None:
    """A plan may name an index and still walk through all of it."""
    if connection.vendor == "sqlite":  # it does not count; the plans above say it
        return
    rare = fill()[-1]
    for query in (
        f"?biz_receive__id__exact={rare.pk}",
        f"?biz__id__exact={rare.biz_id}",
        f"?biz_receive__id__exact={rare.pk}&status__exact=3",
        "?status__exact=5",
    ):
        rows_of(admin_client, DELIVERIES + query)
        before = rows_read()
        shown = rows_of(admin_client, DELIVERIES + query)
        assert shown
        assert rows_read() - before < ROWS / 5, query


def test_a_page_asks_as_much_for_50_rows_as_for_5(biz: Biz, admin_client: Client) -> None:
    def queries() -> int:
        Maker().splitter.split()
        with CaptureQueriesContext(connection) as captured:
            rows_of(admin_client, MESSAGES)
            rows_of(admin_client, DELIVERIES)
        return len(captured)

    for n in range(2):
        subscription(biz, f"few-{n}")
    publish(biz, 5)
    few = queries()
    for n in range(20):
        subscription(biz, f"more-{n}")
    publish(biz, 60)
    assert queries() == few


# -- filters and search --------------------------------------------------------------------------
def test_filters_find_what_they_say(biz: Biz, admin_client: Client) -> None:
    other = Biz.objects.create(name="stock")
    first, second = subscription(biz, "one"), subscription(other, "two")
    publish(biz, 3)
    publish(other, 2)
    Maker().splitter.split()
    of_first = ReceiveMsg.objects.filter(biz_receive=first)
    of_first.filter(pk=of_first.order_by("pk")[0].pk).update(status=Status.EXHAUSTED)

    def count(query: str, address: str = DELIVERIES) -> int:
        return len(rows_of(admin_client, address + query))

    assert count(f"?biz_receive__id__exact={first.pk}") == 3
    assert count(f"?biz_receive__id__exact={second.pk}") == 2
    assert count(f"?biz__id__exact={biz.pk}") == 3
    assert count(f"?biz__id__exact={biz.pk}&status__exact=4") == 1
    assert count(f"?biz__id__exact={other.pk}&status__exact=4") == 0
    assert count(f"?biz__id__exact={other.pk}", MESSAGES) == 2
    hour = timedelta(hours=1)
    for offset, wanted in ((-hour, 5), (hour, 0)):
        moment = (timezone.localtime() + offset).strftime("%Y-%m-%dT%H:%M")
        assert count(f"?id_since={moment}") == wanted
        assert count(f"?id_until={moment}", MESSAGES) == 5 - wanted
        assert count(f"?id_until={moment}&biz__id__exact={biz.pk}") == (3 if wanted == 0 else 0)


@pytest.mark.parametrize(
    "query",
    [
        "?id_since=no-time", "?id_since=2026-13-45T00:00", "?id_until=9999-12-31T23:59",
        "?id_since=0001-01-01T00:00", "?biz__id__exact=x", "?q=%00", "?q=" + "9" * 400,
        "?q=9223372036854775808", "?biz_receive__id__exact=99999999999999999999",
        "?p=0", "?p=999999",
    ],
)  # fmt: skip
def test_wrong_input_is_no_server_error(admin_client: Client, query: str) -> None:
    for address in (MESSAGES, DELIVERIES):
        # 400: a filter of the other list.
        assert admin_client.get(address + query).status_code in (200, 302, 400)


def test_search_finds_by_any_id_and_by_key(biz: Biz, admin_client: Client) -> None:
    subscription(biz, "one")
    subscription(biz, "two")
    wanted, other = publish(biz, 2)
    Maker().splitter.split()
    delivery = ReceiveMsg.objects.filter(msg_id=wanted).order_by("pk")[0]
    assert [row.pk for row in rows_of(admin_client, f"{MESSAGES}?q={wanted}")] == [wanted]
    assert [row.pk for row in rows_of(admin_client, f"{DELIVERIES}?q={delivery.pk}")] == [
        delivery.pk
    ]
    found = {row.msg_id for row in rows_of(admin_client, f"{DELIVERIES}?q={other}")}
    assert found == {other}
    assert len(rows_of(admin_client, f"{DELIVERIES}?q=order.paid")) == 4
    assert rows_of(admin_client, f"{MESSAGES}?q=nothing.like.it") == []


def test_ids_are_written_in_full(biz: Biz, admin_client: Client) -> None:
    (message,) = publish(biz)
    text = admin_client.get(MESSAGES).content.decode()
    assert f'href="/console/notify/{message}">{message}<' in text


def test_a_subscription_is_found_by_typing(biz: Biz, admin_client: Client) -> None:
    for n in range(30):
        subscription(biz, f"consumer-{n}")
    with CaptureQueriesContext(connection) as captured:
        answer = admin_client.get(
            "/admin/autocomplete/",
            {"app_label": "notify", "model_name": "receivemsg", "field_name": "biz_receive",
             "term": "consumer-1"},
        )  # fmt: skip
    assert [found["text"] for found in answer.json()["results"]][:2] == [
        "orders → consumer-1", "orders → consumer-10",
    ]  # fmt: skip
    assert len(captured) < 8


# -- sending again -------------------------------------------------------------------------------
def again(client: Client, deliveries: list[ReceiveMsg]) -> str:
    form = {
        "action": "send_again",
        "_selected_action": [str(delivery.pk) for delivery in deliveries],
    }
    return str(client.post(DELIVERIES, form, follow=True).content.decode())


def test_selected_deliveries_are_sent_again(biz: Biz, admin_client: Client) -> None:
    subscription(biz)
    publish(biz, 5)
    Maker().splitter.split()
    deliveries = list(ReceiveMsg.objects.order_by("pk"))
    for delivery, status in zip(
        deliveries,
        (Status.EXHAUSTED, Status.POISON, Status.EXHAUSTED, Status.DELIVERED),
        strict=False,
    ):
        ReceiveMsg.objects.filter(pk=delivery.pk).update(status=status, send_times=9)
    text = again(admin_client, [deliveries[0], deliveries[1], deliveries[3], deliveries[4]])
    now = dict(ReceiveMsg.objects.values_list("pk", "status"))
    assert [now[delivery.pk] for delivery in deliveries] == [
        Status.PENDING, Status.PENDING, Status.EXHAUSTED, Status.PENDING, Status.PENDING,
    ]  # fmt: skip
    assert "3 deliveries are sent again." in text
    assert "1 was left alone" in text
    entry = AuditLog.objects.get(action="deliveries_sent_again")
    assert (entry.action, entry.target) == ("deliveries_sent_again", "3")
    assert all(isinstance(number, str) for number in entry.detail["ids"])


def test_who_may_only_look_sends_nothing(biz: Biz) -> None:
    subscription(biz)
    publish(biz)
    Maker().splitter.split()
    ReceiveMsg.objects.update(status=Status.EXHAUSTED)
    user = User.objects.create_user("looker", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_receivemsg"))
    client = Client()
    client.force_login(user)
    again(client, list(ReceiveMsg.objects.all()))
    assert ReceiveMsg.objects.get().status == Status.EXHAUSTED
