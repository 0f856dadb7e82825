"""Filters on payloads of subscriptions: which deliveries are made, and what is said of others."""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from msgplatform.core.daemons.snapshot import Snapshot
from msgplatform.core.data import ids
from msgplatform.core.person.identity import Person
from msgplatform.core.secrets import encryption
from msgplatform.doors.api.access import keys
from msgplatform.models import AuditLog, Biz, MinuteCounter
from notify.actions import periods, resend
from notify.flow import FLOW
from notify.maker.capacity import Capacity
from notify.maker.maker import Maker
from notify.messages import filtered
from notify.models import BizMsg, BizReceive, ColdBizMsg, Receive, ReceiveMsg
from notify.person_data.stores import stores
from notify.subscriptions import formats, payload_filter, sandbox
from tests.support import table_rows
from tests.support.management import Manager
from tests.support.notify_plans import ROWS, fill, rows_read
from tests.support.notify_rows import publish, subscription

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]
LARGE = {"data": {"total": {"$gt": 100}}}


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def run(maker: Maker) -> None:
    while maker.turn():
        pass


def published(biz: Biz, *payloads: Any) -> list[int]:
    return [pk for payload in payloads for pk in publish(biz, payload=json.dumps(payload).encode())]


def recipients(pk: int) -> set[str]:
    rows = ReceiveMsg.objects.filter(msg_id=pk).values_list("biz_receive__receive__name", flat=True)
    return set(rows)


def test_a_message_goes_to_those_whose_filter_lets_it_through(biz: Biz) -> None:
    subscription(biz, "all")
    large = subscription(biz, "large", filter=LARGE)
    subscription(biz, "paid", filter={"type": "order.paid"})
    subscription(biz, "none", filter={"channel": "elsewhere"})
    pks = published(biz, {"total": 12}, {"total": 101}, {"total": "101"}, [1])
    run(Maker())
    assert [recipients(pk) for pk in pks] == [
        {"all", "paid"}, {"all", "paid", "large"}, {"all", "paid"}, {"all", "paid"},
    ]  # fmt: skip
    counted = MinuteCounter.objects.filter(subject=large.pk, name="filtered")
    assert sum(counted.values_list("value", flat=True)) == 3


def test_a_large_payload_is_read_for_it(biz: Biz) -> None:
    subscription(biz, "large", filter=LARGE)
    filler = "x" * 20_000
    small, large = published(biz, {"total": 1, "text": filler}, {"total": 101, "text": filler})
    run(Maker())
    assert (recipients(small), recipients(large)) == (set(), {"large"})


def test_a_change_holds_from_the_next_message_on(biz: Biz) -> None:
    row = subscription(biz, "shop", filter=LARGE)
    maker = Maker()
    (before,) = published(biz, {"total": 12})
    run(maker)
    manager = Manager("manage:subscriptions")
    address = "subscriptions/orders/shop"
    body = manager.send("GET", address).json()
    assert body["filter"] == LARGE
    answer = manager.send("PUT", address, {"filter": {"data": {"total": {"$lt": 100}}}})
    assert answer.status_code == 200
    assert answer.json()["filter_since"]
    small, large = published(biz, {"total": 12}, {"total": 101})
    run(maker)
    assert [recipients(pk) for pk in (before, small, large)] == [set(), {"shop"}, set()]
    assert manager.send("PUT", address, {}).json()["filter"] is None
    (after,) = published(biz, {"total": 101})
    run(maker)
    assert recipients(after) == {"shop"}
    row.refresh_from_db()
    assert row.filter is None
    entry = AuditLog.objects.filter(action__contains="subscription").order_by("-id").first()
    assert entry
    assert "filter" in json.dumps(entry.detail)


def test_none_too_many_after_the_time_that_is_told(biz: Biz) -> None:
    """The filter becomes stricter again and again, before and after splits: an event that is
    accepted after a change never comes by the filter of before, and none that the strictest one
    lets through is missing."""
    subscription(biz, "shop", filter={"data": {"$gte": 0}})
    manager, maker, choices = Manager("manage:subscriptions"), Maker(), random.Random(23)
    bounds = [(datetime.min.replace(tzinfo=UTC), 0)]  # since when at least which number
    for _step in range(120):
        action = choices.choice(("publish", "publish", "split", "change"))
        if action == "publish":
            published(biz, *(choices.randrange(100) for _ in range(5)))
        elif action == "split":
            maker.splitter.split()
        elif bounds[-1][1] < 90:
            bound = bounds[-1][1] + 3
            body = {"filter": {"data": {"$gte": bound}}}
            answer = manager.send("PUT", "subscriptions/orders/shop", body).json()
            bounds.append((datetime.fromisoformat(answer["filter_since"]), bound))
    maker.splitter.split()
    assert len(bounds) > 10
    delivered_ids = set(ReceiveMsg.objects.values_list("msg_id", flat=True))
    for message in BizMsg.objects.all():
        number = json.loads(bytes(message.payload))
        bound_then = max(bound for since, bound in bounds if since <= message.created_at)
        if message.pk in delivered_ids:
            assert number >= bound_then
        else:
            assert number < bounds[-1][1]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"data.a": {"$foo": 1}}, "no such operator"),
        ({"total": 1}, "begins with one of"),
        ([], "object"),
        ("x", "object"),
        ({"data.a": "x" * 70_000}, "8192 bytes"),
    ],
)
def test_a_bad_filter_is_refused_at_put(biz: Biz, document: Any, words: str) -> None:
    subscription(biz, "shop")
    answer = Manager("manage:subscriptions").send(
        "PUT", "subscriptions/orders/shop", {"filter": document}
    )
    assert answer.status_code == 400
    assert words in answer.content.decode().lower()
    assert BizReceive.objects.get().filter is None


def test_a_name_twice_is_refused(biz: Biz, admin_client: Client) -> None:
    """One of the two conditions would be lost without a word."""
    row = subscription(biz, "shop")
    text = '{"data.total": {"$gt": 1}, "data.total": {"$lt": 5}}'
    answer = Manager("manage:subscriptions").send(
        "PUT", "subscriptions/orders/shop", f'{{"filter": {text}}}'.encode()
    )
    assert answer.status_code == 400
    assert "'data.total' is there twice" in answer.json()["detail"]
    page = admin_client.post(f"/admin/notify/bizreceive/{row.pk}/filter/", {"filter": text})
    assert "“data.total” is there twice" in page.content.decode()
    assert BizReceive.objects.get().filter is None


def test_a_filter_that_a_statement_wrote_stops_no_maker(biz: Biz) -> None:
    """Its deliveries are made, and held back until somebody has corrected it."""
    row = subscription(biz, "broken")
    BizReceive.objects.filter(pk=row.pk).update(filter={"nonsense": 1})
    subscription(biz, "all")
    (pk,) = published(biz, {"total": 1})
    run(Maker())
    assert recipients(pk) == {"all", "broken"}
    statuses = dict(ReceiveMsg.objects.values_list("biz_receive__receive__name", "status"))
    assert statuses == {"all": ReceiveMsg.Status.QUEUED, "broken": ReceiveMsg.Status.PENDING}


def test_page_and_api_say_why(biz: Biz, admin_client: Client) -> None:
    subscription(biz, "large", filter=LARGE)
    (pk,) = published(biz, {"total": 12})
    run(Maker())
    page = FLOW.messages.page(str(pk))
    assert page
    (card,) = page.recipients
    assert (card.state, card.why) == ("filtered", "Filtered: data.total 12 is not > 100.")
    assert not page.no_recipient_reasons
    html = admin_client.get(f"/console/notify/{pk}").content.decode()
    assert "data.total 12 is not &gt; 100" in html
    key = keys.create(biz, "test", ["events:read"])[1]
    headers = {"Authorization": f"Bearer {key}"}
    (said,) = Client().get(f"/api/v1/messages/{pk}", headers=headers).json()["filtered"]
    assert (said["consumer"], said["reason"]) == ("large", "data.total 12 is not > 100")
    BizReceive.objects.update(filter={"data": {"total": 12}})
    (card,) = FLOW.messages.page(str(pk)).recipients  # type: ignore[union-attr]
    assert "its filter of today lets it through" in card.why


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_filter_that_is_asked_shows_no_payload(is_sealed: bool) -> None:
    Snapshot.expire_all()
    biz = Biz.objects.create(name="cellar", encrypts_payloads=is_sealed)
    subscription(biz, "large", filter=LARGE)
    (pk,) = published(biz, {"total": 12})
    run(Maker())
    headers = {"Authorization": f"Bearer {keys.create(biz, 'test', ['events:read'])[1]}"}
    message = Client().get(f"/api/v1/messages/{pk}", headers=headers).json()
    assert len(message["filtered"]) == 1
    assert "payload" not in message
    message = Client().get(f"/api/v1/messages/{pk}?expand=payload", headers=headers).json()
    assert (len(message["filtered"]), message["payload"]) == (1, {"total": 12})


def test_what_lacks_a_delivery_for_another_reason_is_not_filtered(biz: Biz) -> None:
    subscription(biz, "shop")
    manager, address = Manager("manage:subscriptions"), "subscriptions/orders/shop"
    manager.send("PUT", address, {"event_types": ["stock.*"], "filter": LARGE})
    BizReceive.objects.update(filter_since=timezone.now() - timedelta(minutes=1))
    small, large = published(biz, {"total": 12}, {"total": 101})
    run(Maker())
    manager.send("PUT", address, {"filter": LARGE})
    pages = [FLOW.messages.page(str(pk)) for pk in (small, large)]
    assert [len(page.recipients) for page in pages if page] == [1, 0]


def test_backfill_obeys_it_or_not(biz: Biz) -> None:
    (first, second) = published(biz, {"total": 12}, {"total": 101})
    run(Maker())
    subscription(biz, "large", filter=LARGE)
    assert periods.add_missing([first, second], periods.Scope()) == 1
    assert (recipients(first), recipients(second)) == (set(), {"large"})
    assert periods.add_missing([first, second], periods.Scope(has_filtered=True)) == 1
    assert recipients(first) == {"large"}


def test_many_filters_share_a_transaction_fairly(biz: Biz, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages beyond what is tried in one turn wait for the next one, in their order."""
    monkeypatch.setattr("notify.maker.fanout.MAX_TRIALS", 4)
    for number in range(3):
        subscription(biz, f"s{number}", filter={"data": number})
    other = Biz.objects.create(name="stock")
    subscription(other, "shop")
    pks = published(biz, *range(5))
    (of_other,) = published(other, 1)
    maker = Maker()
    maker.splitter.split()
    assert recipients(of_other) == {"shop"}
    run(maker)
    assert [recipients(pk) for pk in pks] == [{"s0"}, {"s1"}, {"s2"}, set(), set()]


def test_a_system_whose_filters_take_long_holds_up_no_other(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has one message in each turn; the others go on, and all keep their order."""
    monkeypatch.setattr("notify.maker.fanout.TRIAL_SECONDS", 0)
    for number in range(3):
        subscription(biz, f"s{number}", filter={"data": {"$gte": number}})
    subscription(biz, "other", event_types=["order.late"])
    stock, shops = Biz.objects.create(name="stock"), Biz.objects.create(name="shops")
    subscription(stock, "shop", filter={"data": {"$gte": 0}})
    subscription(shops, "shop")
    pks = published(biz, *range(3))
    pks += publish(biz, event_type="order.late", payload=b"5")
    of_stock, of_shops = published(stock, 1, 2), published(shops, 1, 2, 3)
    maker = Maker()
    maker.splitter.split()
    assert [len(recipients(pk)) for pk in pks] == [1, 0, 0, 0]
    assert [len(recipients(pk)) for pk in of_stock] == [1, 0]
    assert [len(recipients(pk)) for pk in of_shops] == [1, 1, 1]
    for _turn in range(3):
        maker.splitter.split()
    assert [len(recipients(pk)) for pk in (*pks, *of_stock)] == [1, 2, 3, 4, 1, 1]
    assert not maker.splitter.waiting()


@pytest.mark.parametrize("has_capacity", [True, False])
def test_large_payloads_are_read_in_portions(biz: Biz, has_capacity: bool) -> None:
    row = subscription(biz, "large", filter=LARGE)
    payload = json.dumps({"total": 101, "text": "x" * 200_000}).encode()
    pks = [pk for _ in range(4) for pk in publish(biz, 50, payload)]
    maker = Maker()
    capacity = Capacity.read(maker.subscriptions.by_queue()) if has_capacity else None
    with CaptureQueriesContext(connection) as captured:
        while maker.splitter.split(capacity=capacity)[0]:
            pass
    reads = [q["sql"] for q in captured if "SELECT id, payload" in q["sql"]]
    read_counts = [statement.partition(" IN ")[2].count(",") + 1 for statement in reads]
    assert 0 < max(read_counts) * len(payload) <= 16 * 1024 * 1024
    assert ReceiveMsg.objects.filter(biz_receive=row).count() == len(pks)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_payload_that_cannot_be_read_is_set_aside_as_without_a_filter(is_sealed: bool) -> None:
    """It neither stops the maker nor disappears."""
    Snapshot.expire_all()
    biz = Biz.objects.create(name="cellar", encrypts_payloads=is_sealed)
    row = subscription(biz, "shop", filter={"data": 1})
    (pk,) = published(biz, 1)
    payload = encryption.seal(b"\xff") if is_sealed else b"\xff"
    BizMsg.objects.filter(pk=pk).update(payload=payload)
    (after,) = published(biz, 1)
    maker = Maker()
    maker.splitter.split()
    assert (recipients(pk), recipients(after)) == ({"shop"}, {"shop"})
    ReceiveMsg.objects.filter(msg_id=pk).delete()
    assert periods.add_missing([pk], periods.Scope(row.pk)) == 1


class TestTrial:
    def test_over_the_api(self, biz: Biz) -> None:
        subscription(biz, "shop", event_types=["order.*"], filter=LARGE)
        pks = published(biz, *({"total": total} for total in (12, 101, 500)))
        publish(biz, event_type="stock.empty", payload=b'{"total":999}')
        run(Maker())
        manager = Manager("manage:subscriptions")
        own = manager.send("POST", "subscriptions/orders/shop/filter-trial", {}).json()
        assert (own["tried"], own["matching"]) == (3, 2)
        last = own["events"][-1]
        assert (last["id"], last["matches"]) == (str(pks[0]), False)
        assert last["reason"] == "data.total is not > 100"
        body = {"filter": {"data": {"total": 500}}}
        tried = manager.send("POST", "subscriptions/orders/shop/filter-trial", body).json()
        assert [said["matches"] for said in tried["events"]] == [True, False, False]
        assert tried["last_day"] == {"events": 3, "coming": 2, "matching": 1, "is_whole": True}
        wrong = manager.send(
            "POST", "subscriptions/orders/shop/filter-trial", {"filter": {"total": 1}}
        )
        assert wrong.status_code == 400
        assert BizReceive.objects.get().filter == LARGE, "nothing is saved"

    def test_in_the_console(self, biz: Biz, admin_client: Client) -> None:
        row = subscription(biz, "shop", filter=LARGE)
        address = f"/admin/notify/bizreceive/{row.pk}/filter/"
        assert "nothing to try it on" in admin_client.get(address).content.decode()
        published(biz, {"total": 12}, {"total": 101})
        run(Maker())
        assert "1 of the latest 2 messages" in admin_client.get(address).content.decode()
        html = admin_client.post(address, {"filter": ""}).content.decode()
        assert "Of 2 events of the last 24 hours 2 would come" in html
        assert "with the filter that is saved now 1" in html
        answer = admin_client.post(address, {"filter": '{"data": {"total": 12}}'})
        assert "data.total 101 is not = 12" in answer.content.decode()
        answer = admin_client.post(address, {"filter": '{"total": 12}'})
        assert "begins with one of" in answer.content.decode()
        answer = admin_client.post(address, {"filter": "{"})
        assert "this is not JSON" in answer.content.decode()

    def test_archived_messages_are_tried_too(self, biz: Biz) -> None:
        row = subscription(biz, "shop", filter=LARGE)
        published(biz, *({"total": total} for total in (12, 101)))
        run(Maker())
        message = BizMsg.objects.latest("id")
        ColdBizMsg.objects.create(
            id=message.pk - 1, biz_id=biz.pk, event_type="order.paid", payload=b'{"total":500}',
            created_at=message.created_at, archived_at=message.created_at,
        )  # fmt: skip
        old_pk = ids.first_id_at(timezone.now() - timedelta(days=2))
        ColdBizMsg.objects.create(
            id=old_pk, biz_id=biz.pk, event_type="order.paid", payload=b'{"total":7}',
            created_at=ids.datetime_of(old_pk), archived_at=timezone.now(),
        )  # fmt: skip
        trial = filtered.try_filter(row, None)
        assert [tried.id for tried in trial.messages][1::2] == [message.pk - 1, old_pk]
        day = trial.day
        assert (day.events, day.coming, day.matching, day.is_whole) == (3, 2, 3, True)

    def test_the_work_is_bounded_on_a_large_table(self) -> None:
        rows = fill()
        before = rows_read()
        trial = filtered.try_filter(rows[0], None, max_counted=1_000)
        assert rows_read() - before < ROWS / 4
        day = trial.day
        assert (day.events, day.matching, day.is_whole) == (1_000, 1_000, False)

    def test_a_day_of_more_messages_than_are_looked_at_is_not_whole(self, biz: Biz) -> None:
        row = subscription(biz, "shop", event_types=["order.refunded"])
        count = 50_001
        message = BizMsg(
            biz_id=biz.pk, event_type="order.paid", payload=b"{}", state=1,
            created_at=timezone.now(),
        )  # fmt: skip
        numbers = ids.reserve(count).ids([0] * count)
        table_rows.insert_like(message, ("id",), ((number,) for number in numbers))
        day = filtered.try_filter(row, None).day
        assert (day.events, day.is_whole) == (0, False)

    def test_who_sees_no_personal_data_tries_the_own_filter_alone(
        self, biz: Biz, client: Client
    ) -> None:
        """With others the payload could be found out letter by letter."""
        row = subscription(biz, "shop", filter=LARGE)
        published(biz, {"total": 12, "name": "Anna"})
        person = User.objects.create_user("viewer", is_staff=True)
        views = Permission.objects.filter(codename__startswith="view_")
        person.user_permissions.set(views.exclude(codename="view_personal"))
        client.force_login(person)
        address = f"/admin/notify/bizreceive/{row.pk}/filter/"
        for name in ("Anna", "Bob"):
            answer = client.post(address, {"filter": f'{{"data.name": "{name}"}}'})
            assert (answer.status_code, answer.context["matching"]) == (200, 0)


def test_a_sealed_payload_is_opened_for_it() -> None:
    Snapshot.expire_all()
    biz = Biz.objects.create(name="cellar", encrypts_payloads=True)
    subscription(biz, "large", filter=LARGE)
    small, large = published(biz, {"total": 1}, {"total": 101})
    assert encryption.is_sealed(bytes(BizMsg.objects.get(pk=small).payload))
    run(Maker())
    assert (recipients(small), recipients(large)) == (set(), {"large"})


def test_the_form_has_it(biz: Biz, admin_client: Client) -> None:
    row = subscription(biz, "shop")
    address = f"/admin/notify/bizreceive/{row.pk}/change/"
    html = admin_client.get(address).content.decode()
    assert 'name="filter"' in html
    assert "filtered, 24 hours" not in html
    since = datetime(2026, 11, 29, 8, 0, 5, tzinfo=UTC)
    BizReceive.objects.update(filter=LARGE, filter_since=since)
    published(biz, {"total": 12})
    run(Maker())
    html = admin_client.get(address).content.decode()
    assert "filtered, 24 hours" in html
    assert f"{timezone.localtime(since):%Y-%m-%d %H:%M:%S}" in html


def test_an_empty_filter_is_none(biz: Biz, admin_client: Client) -> None:
    """It says nothing of a message that lacks a delivery for another reason."""
    row = subscription(biz, "shop", event_types=["stock.*"])
    (pk,) = published(biz, {"total": 12})
    run(Maker())
    form = admin_client.get(f"/admin/notify/bizreceive/{row.pk}/change/").context["adminform"].form
    shown = {field.html_name: field.value() for field in form}
    entered = {name: value for name, value in shown.items() if value not in (None, False)}
    for text in ("", "{}"):
        admin_client.post(
            f"/admin/notify/bizreceive/{row.pk}/change/",
            entered | {"filter": text, "event_types": "order.*"},
        )
        row.refresh_from_db()
        assert (row.event_types, row.filter, row.filter_since) == (["order.*"], None, None)
    answer = Manager("manage:subscriptions").send(
        "PUT", "subscriptions/orders/shop", {"event_types": ["order.*"], "filter": {}}
    )
    assert (answer.status_code, answer.json()["filter"]) == (200, None)
    BizReceive.objects.update(filter={})  # as an earlier release stored it
    page = FLOW.messages.page(str(pk))
    assert page
    assert not page.recipients


@pytest.mark.parametrize("document", [{"nonsense": 1}, [], "text"])
def test_pages_and_backfill_go_on_with_a_filter_that_a_statement_wrote(
    biz: Biz, admin_client: Client, document: Any
) -> None:
    row = subscription(biz, "broken", event_types=["stock.*"])
    subscription(biz, "all")
    (pk,) = published(biz, {"total": 1})
    run(Maker())
    BizReceive.objects.filter(pk=row.pk).update(filter=document, event_types=[])
    assert admin_client.get(f"/console/notify/{pk}").status_code == 200
    assert periods.add_missing([pk], periods.Scope()) == 1
    assert recipients(pk) == {"all", "broken"}


class TestOtherDoors:
    """What every field of a subscription has."""

    def test_the_platform_file(self, biz: Biz) -> None:
        subscription(biz, "shop", filter=LARGE)
        manager = Manager("manage:platform")
        file = manager.send("GET", "platform").json()
        assert file["subscriptions"]["orders/shop"]["filter"] == LARGE
        file["subscriptions"]["orders/shop"]["filter"] = {"type": "order.late"}
        assert manager.send("PUT", "platform", file).status_code == 200
        row = BizReceive.objects.get()
        assert row.filter == {"type": "order.late"}
        assert row.filter_since is not None
        file["subscriptions"]["orders/shop"]["filter"] = {"total": 1}
        answer = manager.send("PUT", "platform", file)
        assert answer.status_code == 400
        assert "begins with one of" in answer.content.decode()

    def test_a_cloud_event(self, biz: Biz, client: Client) -> None:
        _, key = keys.create(biz, "test", ["events:write"])
        source = formats.source("orders")
        subscription(biz, "shop", filter={"source": source, "data.total": 1, "channel": "eu"})
        pks = []
        for total in (1, 2):
            event = {
                "specversion": "1.0", "id": str(total), "source": "/shops/7", "channel": "eu",
                "type": "order.paid", "data": {"total": total},
            }  # fmt: skip
            answer = client.post(
                "/api/v1/messages", json.dumps(event), content_type="application/cloudevents+json",
                headers={"Authorization": f"Bearer {key}"},
            )  # fmt: skip
            pks.append(int(answer.json()["id"]))
        run(Maker())
        assert [recipients(pk) for pk in pks] == [{"shop"}, set()]

    def test_a_sandbox(self, biz: Biz) -> None:
        row = subscription(biz, "sandbox-shop", filter=LARGE)
        Receive.objects.filter(pk=row.receive_id).update(url=sandbox.URL)
        small, large = published(biz, {"total": 1}, {"total": 101})
        run(Maker())
        assert (recipients(small), recipients(large)) == (set(), {"sandbox-shop"})

    def test_an_erasure_takes_a_number_out_of_it(self, biz: Biz) -> None:
        subscription(biz, "shop", filter={"data": {"phone": {"$neq": "13812345678"}, "total": 1}})
        store = next(store for store in stores() if store.name == "notify.filters")
        person = Person(phones=frozenset({"13812345678"}))
        assert store.erase(person, store.find(person, "").rows) == 1
        row = BizReceive.objects.get()
        assert "13812345678" not in json.dumps(row.filter)
        assert payload_filter.compiled(row.filter), "what is left is a filter"

    def test_resending_does_not_ask_it(self, biz: Biz) -> None:
        row = subscription(biz, "shop")
        (pk,) = published(biz, {"total": 12})
        run(Maker())
        delivery = ReceiveMsg.objects.get(msg_id=pk)
        exhausted = ReceiveMsg.Status.EXHAUSTED
        ReceiveMsg.objects.filter(pk=delivery.pk).update(status=exhausted)
        BizReceive.objects.filter(pk=row.pk).update(filter=LARGE)
        later = timezone.now() + timedelta(seconds=5)
        assert resend.resend_deliveries([delivery.pk], [exhausted], later) == 1
