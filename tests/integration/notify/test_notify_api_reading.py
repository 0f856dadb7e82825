"""Reading events over REST and in the console: payloads, filters of the list, what is next."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from bench.harness.plans import read_plan
from msgplatform.core.data import ids, sql
from msgplatform.doors.templatetags.pages import SHOWN
from msgplatform.models import Biz
from notify.messages import records
from notify.models import Attempt, BizMsg, BizReceive, ColdBizMsg, ReceiveMsg
from tests.integration.notify.api_caller import MESSAGES, Caller
from tests.support import archive_support
from tests.support.api_server import Server, server as served
from tests.support.archive_support import Status, archive, cold_ids
from tests.support.notify_plans import rows_read, two_stores
from tests.support.notify_rows import publish, subscription

pytestmark = pytest.mark.django_db(transaction=True)
server = served
LONG = json.dumps({"名": "x" * 3 * SHOWN, "n": 1.0}, ensure_ascii=False, indent=1).encode()


@pytest.fixture
def orders() -> Caller:
    return Caller("orders")


@pytest.fixture
def row(orders: Caller) -> BizReceive:
    return subscription(orders.biz)


def archived(row: BizReceive, **fields: Any) -> int:
    """A message that is in the archive by now."""
    pk = archive_support.message(row, Status.DELIVERED, days=40, **fields)
    archive()
    assert pk in cold_ids()
    return pk


class TestPayload:
    def test_whole_and_byte_for_byte(self, orders: Caller) -> None:
        (pk,) = publish(orders.biz, payload=LONG)
        answer = orders.get(f"{MESSAGES}/{pk}?expand=payload")
        assert answer.status_code == 200
        assert b'"payload":' + LONG in answer.content
        assert answer.json()["payload"] == json.loads(LONG)

    def test_only_when_asked_for(self, orders: Caller) -> None:
        (pk,) = publish(orders.biz)
        for query in ("", "?expand="):
            assert "payload" not in orders.get(f"{MESSAGES}/{pk}{query}").json()
        assert "payload" not in orders.get(MESSAGES).json()["results"][0]
        wrong = orders.get(f"{MESSAGES}/{pk}?expand=deliveries")
        assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (400, "expand")

    def test_of_an_archived_one(self, orders: Caller, row: BizReceive) -> None:
        pk = archived(row, payload=LONG)
        answer = orders.get(f"{MESSAGES}/{pk}?expand=payload")
        assert b'"payload":' + LONG in answer.content
        assert "payload" not in orders.get(f"{MESSAGES}/{pk}").json()

    def test_of_another_system(self, orders: Caller) -> None:
        (pk,) = publish(Biz.objects.create(name="stock"))
        assert orders.get(f"{MESSAGES}/{pk}?expand=payload").status_code == 404

    def test_on_the_real_server(self, server: Server, orders: Caller, work_redis: object) -> None:
        (pk,) = publish(orders.biz, payload=LONG)
        status, body = server.request("GET", f"{MESSAGES}/{pk}?expand=payload", orders.key)
        assert status == 200
        assert b'"payload":' + LONG in body
        status, body = server.request("GET", f"{MESSAGES}?event_typ=a", orders.key)
        assert (status, json.loads(body)["errors"][0]["field"]) == (400, "event_typ")


class TestDownload:
    @pytest.fixture
    def viewer(self) -> Client:
        user = User.objects.create_user("viewer", password="x", is_staff=True)
        wanted = ["view_bizmsg", "view_personal"]
        user.user_permissions.set(Permission.objects.filter(codename__in=wanted))
        client = Client()
        client.force_login(user)
        return client

    @pytest.mark.parametrize("is_archived", [False, True])
    def test_the_whole_as_a_file(
        self, viewer: Client, orders: Caller, row: BizReceive, is_archived: bool
    ) -> None:
        page = b"</pre><script>alert(1)</script>" + b" " * SHOWN
        payload = json.dumps(page.decode()).encode()
        pk = archived(row, payload=payload) if is_archived else publish(orders.biz, 1, payload)[0]
        answer = viewer.get(f"/console/notify/{pk}/content")
        assert (answer.status_code, answer.content) == (200, payload)
        assert answer["Content-Type"] == "application/json"
        assert answer["Content-Disposition"] == f'attachment; filename="order.paid-{pk}.json"'
        assert answer["X-Content-Type-Options"] == "nosniff"

    def test_the_page_leads_to_it(self, viewer: Client, orders: Caller) -> None:
        (pk,) = publish(orders.biz, payload=LONG)
        assert (
            f'href="/console/notify/{pk}/content"'
            in viewer.get(f"/console/notify/{pk}").content.decode()
        )

    def test_for_those_who_may_see_messages(self, viewer: Client, orders: Caller) -> None:
        (pk,) = publish(orders.biz)
        User.objects.get(username="viewer").user_permissions.clear()
        assert viewer.get(f"/console/notify/{pk}/content").status_code == 403
        assert Client().get(f"/console/notify/{pk}/content").status_code == 302

    @pytest.mark.parametrize("path", ["notify/7", "notify/abc", "sms/7", "nothing/7"])
    def test_where_there_is_none(self, admin_client: Client, sms_redis: object, path: str) -> None:
        assert admin_client.get(f"/console/{path}/content").status_code == 404


class TestFilters:
    def shown(self, orders: Caller, query: str) -> list[int]:
        """Of all pages."""
        seen: list[int] = []
        url = f"{MESSAGES}?{query}"
        while url:
            answer = orders.get(url)
            assert answer.status_code == 200, answer.content
            seen += [int(message["id"]) for message in answer.json()["results"]]
            url = answer.json()["next"]
        return seen

    @pytest.fixture
    def made(self, orders: Caller, row: BizReceive) -> list[tuple[int, str]]:
        """Ids with their types, oldest first: two archived ones, then four others."""
        kinds = ["order.paid", "order.sent"]
        old = [
            (archive_support.message(row, Status.DELIVERED, days=40 - n, event_type=kind), kind)
            for n, kind in enumerate(kinds)
        ]
        archive()
        assert len(cold_ids()) == 2
        new = [
            (int(orders.post(MESSAGES, {"event_type": kind, "payload": 1}).json()["id"]), kind)
            for kind in kinds * 2
        ]
        publish(Biz.objects.create(name="stock"))
        return old + new

    @pytest.mark.parametrize("limit", ["1", "200"])
    def test_by_event_type(self, orders: Caller, made: list[tuple[int, str]], limit: str) -> None:
        for kind in ("order.paid", "order.sent"):
            expected = [pk for pk, of in reversed(made) if of == kind]
            assert self.shown(orders, f"event_type={kind}&limit={limit}") == expected
        assert self.shown(orders, "event_type=order") == []
        assert self.shown(orders, "event_type=Order.Paid") == []

    def test_by_time(self, orders: Caller, made: list[tuple[int, str]]) -> None:
        newest_first = [pk for pk, _kind in reversed(made)]
        # Between the archived ones.
        between = ids.datetime_of(newest_first[-1]) + timedelta(hours=1)
        text = between.isoformat().replace("+00:00", "Z")
        assert self.shown(orders, f"since={text}") == newest_first[:-1]
        assert self.shown(orders, f"until={text}") == newest_first[-1:]
        assert (
            self.shown(orders, f"since={text}&event_type=order.paid&limit=1")
            == [pk for pk, kind in reversed(made) if kind == "order.paid"][:-1]
        )
        # The + of a zone that was not quoted arrives as a space.
        assert self.shown(orders, f"since={between.isoformat()}") == newest_first[:-1]
        earlier = (between - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
        refused = orders.get(f"{MESSAGES}?since={text}&until={earlier}")
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["field"] == "until"

    @pytest.mark.parametrize("limit", ["1", "2", "3", "200"])
    def test_a_page_ends_early_when_there_are_many_deliveries(
        self, orders: Caller, row: BizReceive, limit: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(records, "MAX_DELIVERIES", 3)
        days = [(40, 2), (39, 1), (38, 7), (2, 1), (1.5, 2), (1, 2), (0.5, 9), (0.1, 1)]
        made = [
            archive_support.message(row, *[Status.DELIVERED] * count, days=age)
            for age, count in days
        ]
        archive()
        assert len(cold_ids()) == 3
        assert self.shown(orders, f"limit={limit}") == sorted(made, reverse=True)
        first = orders.get(f"{MESSAGES}?limit={limit}").json()
        assert len(first["results"]) == 1, "the next one has nine deliveries"
        assert first["previous"] is None, "pages go forward only"

    def test_of_many_deliveries_the_latest_attempts_are_shown(
        self, orders: Caller, row: BizReceive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(records, "MAX_ATTEMPTS", 4)
        for age in (40, 1):
            pk = archive_support.message(row, Status.EXHAUSTED, Status.EXHAUSTED, days=age)
            for delivery in ReceiveMsg.objects.filter(msg_id=pk):
                first = Attempt.objects.get(copy_id=delivery.pk)
                for number in (2, 3):
                    first.pk = archive_support.old_id(age)
                    first.number, first.claim = number, f"{delivery.pk}{number}"[-32:]
                    first.save(force_insert=True)
            archive()
            shown = orders.get(f"{MESSAGES}/{pk}").json()["deliveries"]
            assert [[a["number"] for a in one["attempts"]] for one in shown] == [[2, 3]] * 2

    @pytest.mark.parametrize(
        ("name", "value"),
        [("event_type", "a b"), ("event_type", "x" * 129), ("since", "yesterday"),
         ("since", "2026-11-20T08:00:00"), ("until", "2026-13-01T00:00:00Z"),
         ("status", "gone"), ("subscription", "orders/warehouse"), ("consumer", "nobody"),
         ("text", "a%00b"), ("cursor", "x")],
    )  # fmt: skip
    def test_a_wrong_one_is_named(self, orders: Caller, name: str, value: str) -> None:
        answer = orders.get(f"{MESSAGES}?{name}={value}")
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["field"] == name

    def test_by_what_became_of_it(self, orders: Caller, row: BizReceive) -> None:
        failed, delivered, skipped = (
            archive_support.message(row, status, days=days)
            for days, status in (
                (40, Status.EXHAUSTED),
                (30, Status.DELIVERED),
                (2, Status.SKIPPED),
            )
        )
        archive()
        assert delivered in cold_ids()
        accepted = int(orders.post(MESSAGES, {"event_type": "a", "payload": 1}).json()["id"])
        for status, expected in (("exhausted", failed), ("delivered", delivered),
                                 ("skipped", skipped), ("accepted", accepted)):  # fmt: skip
            assert self.shown(orders, f"status={status}") == [expected]
        by_subscription = [skipped, delivered, failed]
        assert self.shown(orders, f"subscription={row.pk}&limit=1") == by_subscription
        assert self.shown(orders, "consumer=warehouse") == by_subscription
        assert self.shown(orders, "consumer=warehouse&status=skipped") == [skipped]
        assert self.shown(orders, f"consumer=warehouse&subscription={row.pk}") == by_subscription
        assert self.shown(orders, "subscription=987654") == []

    def test_by_channel_key_and_text(self, orders: Caller, row: BizReceive) -> None:
        made = [
            archive_support.message(
                row, Status.DELIVERED, days=days, channel=name, key=name, payload=b'{"is":"%s"}'
                % name.encode(), answer=f"thanks for {name}",
            )
            for days, name in ((40, "eu"), (2, "us"))
        ]  # fmt: skip
        archive()
        for pk, name in zip(made, ("eu", "us"), strict=True):
            for query in (f"channel={name}", f"idempotency_key={name}", f"text=for+{name}",
                          f"text=%22{name}%22&channel={name}"):  # fmt: skip
                assert self.shown(orders, query) == [pk], query
        assert self.shown(orders, "text=pardon") == []
        # A key is of one system.
        assert self.shown(Caller("stock"), "idempotency_key=us") == []

    def test_only_of_the_caller(self, orders: Caller, row: BizReceive) -> None:
        """Neither another system's events, nor whether a subscription has a certain name."""
        archive_support.message(row, Status.DELIVERED, channel="eu", key="k")
        other = Caller("stock")
        for query in ("", f"subscription={row.pk}", "status=delivered", "channel=eu",
                      "idempotency_key=k", "text=thank", "event_type=order.paid"):  # fmt: skip
            assert self.shown(other, query) == []
        refused = [
            other.get(f"{MESSAGES}?{query}")
            for query in ("subscription=orders/warehouse", "subscription=orders/nothing",
                          "consumer=warehouse", "consumer=nothing", "biz=orders", "id=1")
        ]  # fmt: skip
        assert {answer.status_code for answer in refused} == {400}
        bodies = [answer.json()["errors"][0] for answer in refused]
        assert bodies[0] == bodies[1]
        assert bodies[2] == bodies[3]

    def test_a_page_costs_the_same_wherever_it_begins(
        self, orders: Caller, row: BizReceive
    ) -> None:
        """Neither a sort nor more rows than those of the page, in both stores."""
        two_stores(orders.biz.pk)
        for event_type in ("type.n0", "type.n1"):
            pages = f"{MESSAGES}?event_type={event_type}&limit=50"
            newest = self.shown(orders, f"event_type={event_type}&limit=200")
            assert len(newest) >= 200
            for before in (newest[2], newest[120]):
                started = rows_read()
                assert len(orders.get(f"{pages}&cursor={before}").json()["results"]) == 50
                assert rows_read() - started < 600

    def test_both_places_have_the_index(self, orders: Caller) -> None:
        two_stores(orders.biz.pk)
        for model in (BizMsg, ColdBizMsg):
            wanted = sql.of_one(model._base_manager.all(), "biz_id", orders.biz.pk)
            wanted = sql.of_one(wanted, "event_type", "type.n1").filter(id__lt=2**62)
            rows = wanted.order_by("-biz_id", "-event_type", "-id").values_list("id")[:50]
            statement, parameters = rows.query.sql_with_params()
            with connection.cursor() as cursor:
                (step,) = read_plan(cursor, statement, parameters)
            assert "of_both" in str(step), step
            assert "filesort" not in str(step), step


class TestNextAttempt:
    def test_only_while_one_waits(self, orders: Caller, row: BizReceive) -> None:
        (pk,) = publish(orders.biz)
        at = sql.now() + timedelta(hours=1)
        ReceiveMsg.objects.create(
            id=pk + 1, msg_id=pk, biz=orders.biz, biz_receive=row, next_at=at, created_at=at,
            updated_at=at,
        )  # fmt: skip
        for status in ReceiveMsg.Status:
            ReceiveMsg.objects.update(status=status)
            for path in (MESSAGES, f"{MESSAGES}/{pk}"):
                body = orders.get(path).json()
                message = body["results"][0] if "results" in body else body
                waits = status == ReceiveMsg.Status.PENDING
                assert (message["deliveries"][0]["next_at"] is not None) == waits, status

    def test_in_the_console(self, admin_client: Client, orders: Caller, row: BizReceive) -> None:
        """A delivered one's page showed when its lease had ended."""
        (pk,) = publish(orders.biz)
        lease = sql.now().replace(year=2031, month=3, day=4)
        ReceiveMsg.objects.create(
            id=pk + 1, msg_id=pk, biz=orders.biz, biz_receive=row, next_at=lease, send_times=1,
            created_at=sql.now(), updated_at=sql.now(), status=ReceiveMsg.Status.DELIVERED,
        )  # fmt: skip
        addresses = (f"/console/notify/{pk}", "/console/search/notify?biz=orders")
        for address in addresses:
            page = admin_client.get(address)
            assert page.status_code == 200
            assert "2031-03-04" not in page.content.decode()
        ReceiveMsg.objects.update(status=ReceiveMsg.Status.PENDING)
        for address in addresses:
            assert "2031-03-04" in admin_client.get(address).content.decode()


def test_a_delivery_names_its_consumer(orders: Caller, row: BizReceive) -> None:
    pk = archive_support.message(row, Status.PENDING)
    cold = archived(row)
    for message in (pk, cold):
        (delivery,) = orders.get(f"{MESSAGES}/{message}").json()["deliveries"]
        assert (delivery["subscription"], delivery["consumer"]) == (str(row.pk), "warehouse")
    listed = orders.get(MESSAGES).json()["results"]
    assert {one["deliveries"][0]["consumer"] for one in listed} == {"warehouse"}
    row.delete()
    (delivery,) = orders.get(f"{MESSAGES}/{pk}").json()["deliveries"]
    assert delivery["consumer"] is None
