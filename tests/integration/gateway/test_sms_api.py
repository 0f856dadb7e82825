"""SMS over HTTP: what is accepted, refused, repeated, and who may see what became of it."""

import json
from collections.abc import Iterator
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from gateway.forwarder.forwarder import Forwarder
from gateway.intake import accept
from gateway.lifecycle import keys, store
from gateway.messages import incoming
from gateway.messages.page import page as page_of
from gateway.models import SgipMo, SgipMt, SmsAccount, SmsGateway
from gateway.pump.pump import Pump
from msgplatform.core.data import ids as id_numbers, sql
from msgplatform.messages import engine
from notify.models import BizMsg
from tests.servers import Servers
from tests.support import sms_rows, table_rows
from tests.support.cutting_proxy import CuttingProxy
from tests.support.sms_rows import Caller, account, report, respond, submit

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)
SMS, BATCH = "/api/v1/sms", "/api/v1/sms/batch"
TEXT = {"to": "13800000000", "text": "您的验证码是 482913"}


def settle() -> None:
    """Publish and archive all that has ended."""
    Forwarder().turn()
    Pump().turn()


def gateway_id() -> int:
    return SmsGateway.objects.get().pk


def test_a_text_is_accepted_and_in_redis(shop: Caller, sms_redis: Any) -> None:
    answer = shop.post(SMS, {**TEXT, "reference": "order-7"})
    assert answer.status_code == 202
    body = answer.json()
    assert body["outcome"] == "created"
    (message,) = body["ids"]
    assert sms_redis.hget(keys.mt(int(message)), "state") == b"pending"
    assert sms_redis.lrange(keys.pending(gateway_id()), 0, -1) == [message.encode()]


def test_ids_are_in_the_order_of_the_recipients(shop: Caller) -> None:
    numbers = [f"1380000{n:04d}" for n in range(20)]
    body = shop.post(SMS, {**TEXT, "to": numbers}).json()
    states = [shop.get(f"{SMS}/{message}").json() for message in body["ids"]]
    assert [state["to"] for state in states] == [f"86{number}" for number in numbers]


@pytest.mark.parametrize("place", ["body", "header"])
def test_a_repeat_and_a_conflict(shop: Caller, place: str) -> None:
    headers = {"Idempotency-Key": "k"} if place == "header" else {}
    body = {**TEXT, "idempotency_key": "k"} if place == "body" else TEXT
    first = shop.post(SMS, body, **headers)
    again = shop.post(SMS, body, **headers)
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json() == {"ids": first.json()["ids"], "outcome": "duplicate"}
    other = shop.post(SMS, {**body, "text": "another"}, **headers)
    assert other.status_code == 409
    assert other["content-type"] == "application/problem+json"


def test_two_different_keys_are_refused(shop: Caller) -> None:
    answer = shop.post(SMS, {**TEXT, "idempotency_key": "a"}, **{"Idempotency-Key": "b"})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"to": []}, "to"),
        ({"to": 13800000000}, "to"),
        ({"to": "abc"}, "to"),
        ({"to": ["13800000000", "8613800000000"]}, "to"),
        ({"text": ""}, "text"),
        ({"text": "x" * 2001}, "text"),
        ({"text": "a\x00b"}, "text"),
        ({"account": "nobody"}, "account"),
        ({"extension": "7"}, "extension"),
        ({"priority": 10}, "priority"),
        ({"priority": "1"}, "priority"),
        ({"schedule_at": "tomorrow"}, "schedule_at"),
        ({"schedule_at": "2026-11-20T08:00:00"}, "schedule_at"),
        ({"schedule_at": "2999-01-01T00:00:00Z"}, "schedule_at"),
        ({"expire_at": "2020-01-01T00:00:00Z"}, "expire_at"),
        ({"expire_at": "1970-01-01T00:00:00Z"}, "expire_at"),
        ({"expire_at": "2099-01-01T00:00:00Z"}, "expire_at"),
        ({"expire_at": "9999-12-31T23:59:59-08:00"}, "expire_at"),
        ({"reference": "名"}, "reference"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "名"}, "idempotency_key"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_refusal_names_the_field(
    shop: Caller, sms_redis: Any, wrong: dict[str, Any], field: str
) -> None:
    answer = shop.post(SMS, {**TEXT, **wrong})
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert sms_redis.keys("*") == []


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"[]", 400), (b"\xff", 400)])
def test_a_broken_body(shop: Caller, body: bytes, status: int) -> None:
    assert shop.post(SMS, body).status_code == status


@pytest.mark.parametrize("scope", ["sms:read", "sms:write"])
def test_scopes(shop: Caller, scope: str) -> None:
    limited = Caller("shop", scope)
    assert limited.post(SMS, TEXT).status_code == (202 if scope == "sms:write" else 403)
    assert limited.post(BATCH, {"messages": [TEXT]}).status_code == (
        200 if scope == "sms:write" else 403
    )
    for path in (SMS, f"{SMS}/1"):
        assert (limited.get(path).status_code == 403) == (scope == "sms:write")


def test_a_batch_has_a_verdict_for_each(shop: Caller) -> None:
    shop.post(SMS, {**TEXT, "idempotency_key": "old"})
    answer = shop.post(
        BATCH,
        {
            "messages": [
                TEXT,
                {**TEXT, "to": "abc"},
                {"to": "13800000000"},
                {**TEXT, "idempotency_key": "old"},
                {**TEXT, "idempotency_key": "old", "text": "x"},
                7,
                {**TEXT, "idempotency_key": "new"},
                {**TEXT, "idempotency_key": "new"},
            ]
        },
    )
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [r["outcome"] for r in results] == [
        "created", "rejected", "rejected", "duplicate", "rejected", "rejected", "created",
        "duplicate",
    ]  # fmt: skip
    assert [r["code"] for r in results if "code" in r] == ["invalid", "invalid", "conflict",
                                                           "invalid"]  # fmt: skip
    assert [r["field"] for r in results[1:3]] == ["to", "text"]
    assert results[6]["ids"] == results[7]["ids"]


def test_half_an_emoji_refuses_its_text_only(shop: Caller) -> None:
    """JavaScript writes the half as an escape when it cuts a text."""
    texts = ["\U0001f600", "C:\\ud83d", "C:\\ud83d\ude00", "cut \ud83d", "\ude00",
             "\ud83d\ud83d\U0001f600", "whole"]  # fmt: skip
    answer = shop.post(BATCH, {"messages": [{**TEXT, "text": text} for text in texts]})
    assert answer.status_code == 200, answer.content
    outcomes = [(r["outcome"], r.get("code")) for r in answer.json()["results"]]
    good, bad = ("created", None), ("rejected", "invalid")
    assert outcomes == [good, good, bad, bad, bad, bad, good]
    assert store.read([answer.json()["results"][1]["ids"][0]])[0].mt.text == "C:\\ud83d"


@pytest.mark.parametrize("count", [0, 1001])
def test_a_batch_has_bounds(shop: Caller, count: int) -> None:
    assert shop.post(BATCH, {"messages": [TEXT] * count}).status_code == 400


def test_a_batch_has_a_bound_on_recipients(shop: Caller, sms_redis: Any) -> None:
    many = {**TEXT, "to": [f"1380000{n:04d}" for n in range(1000)]}
    answer = shop.post(BATCH, {"messages": [many] * 11})
    assert answer.status_code == 400
    assert sms_redis.keys("*") == []
    assert shop.post(BATCH, {"messages": [many] * 10}).status_code == 200
    assert sms_redis.llen(keys.pending(gateway_id())) == 10_000


def test_the_largest_batch(shop: Caller, sms_redis: Any) -> None:
    results = shop.post(BATCH, {"messages": [TEXT] * 1000}).json()["results"]
    assert len({r["ids"][0] for r in results}) == 1000
    assert sms_redis.llen(keys.pending(gateway_id())) == 1000


def test_a_message_from_its_first_state_to_the_archive(shop: Caller, sms_redis: Any) -> None:
    (message,) = shop.post(SMS, {**TEXT, "reference": "order-7"}).json()["ids"]
    seen = [shop.get(f"{SMS}/{message}").json()]
    (seqno,) = submit(gateway_id())[message]
    seen.append(shop.get(f"{SMS}/{message}").json())
    respond(seqno)
    seen.append(shop.get(f"{SMS}/{message}").json())
    report(seqno)
    seen.append(shop.get(f"{SMS}/{message}").json())
    settle()
    assert not sms_redis.exists(keys.mt(int(message)))
    seen.append(shop.get(f"{SMS}/{message}").json())

    assert [state["state"] for state in seen] == [
        "pending", "submitted", "responded", "delivered", "delivered",
    ]  # fmt: skip
    names = ("accepted_at", "submitted_at", "responded_at", "reported_at", "archived_at")
    assert [sum(state[name] is not None for name in names) for state in seen] == [1, 2, 3, 4, 5]
    for state in seen:
        assert (state["id"], state["to"]) == (message, "8613800000000")
        assert (state["reference"], state["account"]) == ("order-7", "marketing")
        assert state["text"] == TEXT["text"]
    # The archive keeps the very times.
    assert {n: seen[4][n] for n in names[:4]} == {n: seen[3][n] for n in names[:4]}


def test_why_a_message_failed(shop: Caller) -> None:
    (message,) = shop.post(SMS, TEXT).json()["ids"]
    (seqno,) = submit(gateway_id())[message]
    respond(seqno)
    report(seqno, state=2, error=25)
    before = shop.get(f"{SMS}/{message}").json()
    settle()
    after = shop.get(f"{SMS}/{message}").json()
    for state in (before, after):
        assert (state["state"], state["error_code"]) == ("failed", 25)
        assert "reached" in state["error"]


def test_a_refusal_is_no_report(shop: Caller) -> None:
    """Only the response ended it; the console still knows when."""
    (message,) = shop.post(SMS, TEXT).json()["ids"]
    respond(submit(gateway_id())[message][0], result=5)
    live = shop.get(f"{SMS}/{message}").json()
    settle()
    archived = shop.get(f"{SMS}/{message}").json()
    (listed,) = shop.get(SMS).json()["results"]
    for state in (live, archived, listed):
        assert (state["state"], state["error_code"]) == ("failed", 5)
        assert state["responded_at"]
        assert state["reported_at"] is None
    event = BizMsg.objects.get(event_type="sms.report")
    assert json.loads(bytes(event.payload))["reported_at"] is None
    row = SgipMt.objects.get()
    assert row.ended_at is not None
    page = page_of(message)
    assert page is not None
    assert [entry.at for entry in page.timeline if entry.state == "failed"] == [row.ended_at]


def test_a_system_sees_its_own_messages_only(shop: Caller) -> None:
    other = Caller("stock")
    (message,) = shop.post(SMS, TEXT).json()["ids"]
    assert other.get(f"{SMS}/{message}").status_code == 404
    respond(submit(gateway_id())[message][0], result=5)
    settle()
    assert shop.get(f"{SMS}/{message}").status_code == 200
    assert other.get(f"{SMS}/{message}").status_code == 404
    assert other.get(SMS).json()["results"] == []
    assert [row["id"] for row in shop.get(SMS).json()["results"]] == [message]


@pytest.mark.parametrize("unknown", ["0", "1", str(2**63 - 1), str(2**63), "x"])
def test_an_unknown_id(shop: Caller, unknown: str) -> None:
    assert shop.get(f"{SMS}/{unknown}").status_code == 404


class TestList:
    @pytest.fixture
    def ids(self, shop: Caller) -> list[str]:
        """Six archived messages; every second one failed."""
        account(shop.biz, "notices", is_default=False)
        made = []
        for n in range(6):
            body = {**TEXT, "to": f"1380000000{n % 3}", "account": ["marketing", "notices"][n // 3]}
            made += shop.post(SMS, body).json()["ids"]
        for n, (seqno,) in enumerate(submit(gateway_id()).values()):
            respond(seqno, result=5 * (n % 2))
            report(seqno, f"861380000000{n % 3}")
        settle()
        assert SgipMt.objects.count() == 6
        return made

    def shown(self, shop: Caller, **query: str) -> list[str]:
        answer = shop.get(SMS, **query)
        assert answer.status_code == 200, answer.content
        return [row["id"] for row in answer.json()["results"]]

    def test_newest_first(self, shop: Caller, ids: list[str]) -> None:
        assert self.shown(shop) == ids[::-1]

    def test_by_number_in_either_form(self, shop: Caller, ids: list[str]) -> None:
        for number in ("13800000001", "8613800000001"):
            assert self.shown(shop, number=number) == [ids[4], ids[1]]

    def test_by_account_and_state(self, shop: Caller, ids: list[str]) -> None:
        assert self.shown(shop, account="notices") == ids[:2:-1]
        assert self.shown(shop, state="failed") == ids[1::2][::-1]
        assert self.shown(shop, state="failed", account="marketing") == [ids[1]]

    def test_by_key_and_reference(self, shop: Caller, ids: list[str]) -> None:
        for pk, key, reference in ((ids[2], "order-7", "r-7"), (ids[3], "Order-7", "R-7")):
            SgipMt.objects.filter(pk=int(pk)).update(idempotency_key=key, reference=reference)
            assert self.shown(shop, key=key) == self.shown(shop, reference=reference) == [pk]
        assert self.shown(shop, key="order-7", reference="r-8") == []

    def test_one_in_flight_is_asked_for_by_its_id(self, shop: Caller, ids: list[str]) -> None:
        (live,) = shop.post(SMS, {**TEXT, "reference": "r-7"}).json()["ids"]
        assert self.shown(shop, reference="r-7") == []
        assert live not in self.shown(shop)
        assert shop.get(f"{SMS}/{live}").json()["state"] == "pending"

    def test_nothing_is_told_of_another_system(self, shop: Caller, ids: list[str]) -> None:
        """Neither its messages nor whether it has an account of this name."""
        stock = Caller("stock")
        assert self.shown(stock) == self.shown(stock, number="13800000001") == []
        assert self.shown(stock, state="failed", key="") == []
        refusals = [stock.get(SMS, account=name) for name in ("notices", "none")]
        details = [{**answer.json(), "instance": ""} for answer in refusals]
        assert [answer.status_code for answer in refusals] == [400, 400]
        assert details[0] == details[1]

    def test_a_page_that_looked_at_enough_is_short(
        self, shop: Caller, ids: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        SgipMt.objects.filter(pk=int(ids[0])).update(reference="r-7")
        monkeypatch.setattr(engine, "BATCH", 2)
        monkeypatch.setattr(engine, "MAX_SCANNED", 4)
        first = shop.get(SMS, reference="r-7").json()
        assert (first["results"], first["previous"]) == ([], None)
        second = shop.get(first["next"]).json()
        assert [row["id"] for row in second["results"]] == [ids[0]]
        assert second["next"] is None

    def test_by_time(self, shop: Caller, ids: list[str]) -> None:
        # By the ids' clock: a test that moved this process' clock ahead has moved theirs.
        now = id_numbers.datetime_of(int(ids[0]))
        before, after = (now + timedelta(hours=h) for h in (-1, 1))
        assert self.shown(shop, since=before.isoformat()) == ids[::-1]
        assert self.shown(shop, since=after.isoformat()) == []
        assert self.shown(shop, until=before.isoformat()) == []
        assert self.shown(shop, until=after.isoformat()) == ids[::-1]

    def test_page_by_page(self, shop: Caller, ids: list[str]) -> None:
        seen: list[str] = []
        url: str | None = f"{SMS}?limit=4"
        while url:
            page = shop.get(url).json()
            seen += [row["id"] for row in page["results"]]
            url = page["next"]
        assert seen == ids[::-1]

    def test_a_page_costs_the_same_wherever_it_begins(self, shop: Caller) -> None:
        """A system with most of the messages, and one with few."""
        few = Caller("stock")
        made = id_numbers.reserve(4000).ids([0] * 4000)
        now = sql.now()
        table_rows.insert_like(
            SgipMt(
                account_id=1, gateway_id=1, user_number="8613800000000", fee_type=1, agent_flag=0,
                morelateto_mt_flag=2, priority=0, report_flag=1, final="delivered",
                accepted_at=now, archived_at=now,
            ),
            ("id", "biz_id"),
            ((pk, few.biz.pk if n % 25 == 0 else shop.biz.pk) for n, pk in enumerate(made)),
        )  # fmt: skip
        if connection.vendor == "mysql":
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE TABLE sgip_mt")
                cursor.fetchall()
        for caller, pages in ((shop, 18), (few, 2)):
            url: str = f"{SMS}?limit=50"
            for _page in range(pages):
                before = rows_read()
                body = caller.get(url).json()
                assert len(body["results"]) == 50
                # Beside the page: the key, the throttle, what the rows refer to.
                assert rows_read() - before < 150
                url = body["next"]

    @pytest.mark.parametrize(
        ("name", "value"),
        [("state", "gone"), ("since", "yesterday"), ("until", "2026-01-01"), ("account", "x"),
         ("reference", "a\x00b"), ("id", "1"), ("biz", "stock"),
         ("limit", "0"), ("cursor", "x")],
    )  # fmt: skip
    def test_a_wrong_filter_is_named(self, shop: Caller, name: str, value: str) -> None:
        answer = shop.get(SMS, **{name: value})
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["field"] == name


INCOMING = "/api/v1/sms/incoming"


def rows_read() -> int:
    """What this session has read from tables and indexes; SQLite does not count it."""
    if connection.vendor != "mysql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
        return sum(int(value) for _name, value in cursor.fetchall())


class TestIncoming:
    def shown(self, caller: Caller, url: str = INCOMING, **query: str) -> list[str]:
        """Of all pages."""
        seen: list[str] = []
        while url:
            answer = caller.get(url, **query)
            assert answer.status_code == 200, answer.content
            seen += [row["id"] for row in answer.json()["results"]]
            url, query = answer.json()["next"], {}
        return seen

    def test_from_the_oldest_on(self, shop: Caller) -> None:
        ids = sms_rows.incoming(shop.biz, 7)
        assert ids != sorted(ids, key=int)
        assert self.shown(shop) == self.shown(shop, limit="2") == ids
        (row,) = shop.get(INCOMING, limit="1").json()["results"]
        assert row.pop("received_at").endswith("Z")
        assert row == {
            "id": ids[0], "from": "8613800000000", "to": "10655", "account": "marketing",
            "text": "text 0", "parts": 1, "missing_parts": 0,
        }  # fmt: skip

    def test_since_an_id(self, shop: Caller) -> None:
        ids = sms_rows.incoming(shop.biz, 7)
        for n, last in enumerate(ids):
            assert self.shown(shop, since_id=last, limit="2") == ids[n + 1 :]
        assert self.shown(shop, since_id="0") == ids

    def test_of_the_same_moment(self, shop: Caller) -> None:
        """A pump archives many at once."""
        ids = sorted(sms_rows.incoming(shop.biz, 5), key=int)
        SgipMo.objects.update(archived_at=SgipMo.objects.earliest("archived_at").archived_at)
        for n, last in enumerate(ids):
            assert self.shown(shop, since_id=last, limit="2") == ids[n + 1 :]

    def test_one_that_is_gone(self, shop: Caller) -> None:
        """Then what was archived after its id was made: nothing is missing."""
        gone, *left = sms_rows.incoming(shop.biz, 3)
        SgipMo.objects.filter(pk=int(gone)).delete()
        made = id_numbers.datetime_of(int(gone))
        for pk, seconds in zip(left, (-2, -1), strict=True):
            SgipMo.objects.filter(pk=int(pk)).update(archived_at=made + timedelta(seconds=seconds))
        assert self.shown(shop, since_id=gone) == []
        earlier = str(id_numbers.first_id_at(made - timedelta(seconds=1, milliseconds=500)))
        SgipMo.objects.update(archived_at=F("archived_at") - timedelta(hours=1))
        assert self.shown(shop, since_id=earlier) == []
        earlier = str(id_numbers.first_id_at(made - timedelta(hours=1, seconds=1.5)))
        assert self.shown(shop, since_id=earlier) == [left[1]]

    def test_whose_and_who_may(self, shop: Caller) -> None:
        ids = sms_rows.incoming(shop.biz, 2)
        stranger = Caller("stock")
        assert self.shown(stranger) == []
        assert self.shown(stranger, since_id=ids[0]) == []
        assert Caller("shop", "sms:write").get(INCOMING).status_code == 403

    @pytest.mark.parametrize("wrong", ["x", "-1", "9" * 20, "1.5"])
    def test_a_wrong_id(self, shop: Caller, wrong: str) -> None:
        answer = shop.get(INCOMING, since_id=wrong)
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["field"] == "since_id"

    def test_what_was_just_archived_waits(self, shop: Caller) -> None:
        """Another pump may be about to commit what it archived before."""
        (new,) = sms_rows.incoming(shop.biz, 1, seconds_ago=0.0)
        assert self.shown(shop) == []
        SgipMo.objects.update(archived_at=sql.now() - incoming.SETTLED)
        assert self.shown(shop) == [new]

    def test_a_page_costs_the_same_wherever_it_begins(self, shop: Caller) -> None:
        ids = sms_rows.incoming(shop.biz, 1000)
        if connection.vendor == "mysql":
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE TABLE sgip_mo")
                cursor.fetchall()
        for last in (ids[2], ids[300], ids[600], ids[900]):
            before = rows_read()
            rows = incoming.since(shop.biz.pk, int(last)).order_by(*incoming.ORDER)
            assert len(sql.first(rows, 50)) == 50
            assert rows_read() - before < 130


class TestDailyLimit:
    """That no more may be sent today is no wrong request: it says when to repeat it."""

    @pytest.fixture(autouse=True)
    def used_up(self, shop: Caller) -> None:
        SmsAccount.objects.update(daily_limit=2)
        to = ["13800000000", "13800000001"]
        assert shop.post(SMS, {**TEXT, "to": to, "idempotency_key": "first"}).status_code == 202

    def test_a_single_text(self, shop: Caller) -> None:
        now = datetime.now(timezone.get_default_timezone())
        midnight = datetime.combine(now + timedelta(days=1), time.min, now.tzinfo)
        answer = shop.post(SMS, TEXT)
        assert (answer.status_code, answer.json()["type"]) == (429, "/problems/throttled")
        assert "limit of 2 messages a day" in answer.json()["detail"]
        assert answer["Retry-After"] in answer.json()["detail"]
        # It is rounded up, and some time has passed.
        assert -1 <= (midnight - now).total_seconds() - int(answer["Retry-After"]) <= 600

    def test_one_in_a_batch(self, shop: Caller) -> None:
        repeat = {**TEXT, "to": ["13800000000", "13800000001"], "idempotency_key": "first"}
        answer = shop.post(BATCH, {"messages": [TEXT, repeat]})
        assert answer.status_code == 200
        refused, repeated = answer.json()["results"]
        assert (refused["outcome"], refused["code"], refused["field"]) == (
            "rejected", "limit", "account",
        )  # fmt: skip
        assert repeated["outcome"] == "duplicate"

    def test_what_no_day_has_room_for_is_a_wrong_request(self, shop: Caller) -> None:
        answer = shop.post(SMS, {**TEXT, "to": [f"1380000000{n}" for n in range(3)]})
        assert answer.status_code == 400
        assert [error["field"] for error in answer.json()["errors"]] == ["to"]


CALLS = [
    pytest.param(SMS, {**TEXT, "idempotency_key": "k"}, id="single"),
    pytest.param(SMS, TEXT, id="without-a-key"),
    pytest.param(BATCH, {"messages": [{**TEXT, "idempotency_key": "k"}]}, id="batch"),
]


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_without_redis_nothing_was_accepted(
    shop: Caller, settings: Any, path: str, body: dict[str, Any]
) -> None:
    settings.SMS_REDIS_URL = "unix:///nowhere/sms.sock"
    answer = shop.post(path, body)
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
    assert int(answer["Retry-After"]) > 0


@pytest.fixture
def cut(shop: Caller, servers: Servers, settings: Any, tmp_path: Path) -> Iterator[CuttingProxy]:
    """Redis behind a proxy, through which the answer of no script comes back."""
    assert shop.post(SMS, TEXT).status_code == 202  # Redis knows the script
    path = tmp_path / "cut.sock"
    with CuttingProxy(path, servers.sms.socket, b"EVALSHA", arrives=True) as proxy:
        settings.SMS_REDIS_URL = f"unix://{proxy.path}"
        yield proxy


@pytest.mark.parametrize(("path", "body"), [CALLS[0], CALLS[2]])
def test_a_lost_answer_leaves_the_outcome_open(
    shop: Caller, cut: CuttingProxy, settings: Any, path: str, body: dict[str, Any]
) -> None:
    answer = shop.post(path, body)
    assert cut.cut.is_set()
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/outcome-unknown")
    settings.SMS_REDIS_URL = f"unix://{cut.target}"
    again = shop.post(path, body).json()  # it was
    assert again.get("results", [again])[0]["outcome"] == "duplicate"


def test_what_was_stored_behind_a_lost_answer_is_counted_once(
    shop: Caller, cut: CuttingProxy, settings: Any, sms_redis: Any
) -> None:
    SmsAccount.objects.update(daily_limit=2)
    accept.intake().directory.refresh(at_once=True)
    body = {**TEXT, "idempotency_key": "k"}
    assert shop.post(SMS, body).json()["type"] == "/problems/outcome-unknown"
    settings.SMS_REDIS_URL = f"unix://{cut.target}"
    assert shop.post(SMS, body).json()["outcome"] == "duplicate"
    (name,) = sms_redis.keys(f"{keys.PREFIX}spent:*")
    assert sms_redis.get(name) == b"1"
