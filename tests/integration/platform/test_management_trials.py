"""Test sends over the management API: they do what the console's buttons do, and are audited."""

import threading
from typing import Any

import pytest
from django.db import OperationalError, connection
from standardwebhooks import Webhook

from crmsync import trials
from crmsync.models import Crm
from gateway.lifecycle import keys as sms_keys, store
from gateway.models import SmsAccount, SmsGateway
from msgplatform.doors.api.access import keys, throttling
from msgplatform.models import AuditLog, Biz
from notify.models import Attempt, BizMsg, BizReceive, Receive
from tests.support import sms_rows
from tests.support.api_support import problem
from tests.support.http_sinks import Sink, answering, refusing_port
from tests.support.json_stub import Answer, asked, serving
from tests.support.lead_store import LeadStore, rest
from tests.support.management import Manager
from tests.support.notify_rows import subscription
from tests.support.sms_rows import Caller, gateway

shop = sms_rows.shop
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
ANSWER = b"HTTP/1.1 202 Fine\r\nSet-Cookie: hush\r\nContent-Length: 6\r\n\r\nthanks"


@pytest.fixture(autouse=True)
def fresh(settings: Any, work_redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]


@pytest.fixture
def manager() -> Manager:
    return Manager("manage:tests", name="smoke")


def entries() -> list[tuple[str, str]]:
    rows = AuditLog.objects.filter(actor="smoke (API key)").order_by("id")
    return list(rows.values_list("action", "target"))


class TestSubscription:
    PATH = "subscriptions/shop/till/tests"

    @pytest.fixture
    def row(self) -> BizReceive:
        biz = Biz.objects.create(name="shop")
        return subscription(biz, "till", status=BizReceive.Status.PAUSED)

    def test_the_consumer_gets_one_signed_request(self, manager: Manager, row: BizReceive) -> None:
        with Sink(answering(ANSWER)) as sink:
            url = sink.url() + "?token=hush"
            Receive.objects.update(url=url, headers={"X-Api-Key": "hush"})
            usual = manager.send("POST", self.PATH, {})
            body = {"event_type": "order.paid", "payload": {"n": 1.50}}
            own = manager.send("POST", self.PATH, body)
        assert own.status_code == 200, own.content
        first, second = sink.requests
        said = [
            Webhook(row.receive.secret).verify(seen.body.decode(), dict(seen.headers))
            for seen in (first, second)
        ]
        assert [(each["type"], each["data"]) for each in said] == [
            ("webhook.test", {"test": True, "subscription": str(row.pk)}),
            ("order.paid", {"n": 1.5}),
        ]
        assert (usual.json()["delivered"], usual.json()["status"], usual.json()["body"]) == (
            True, 202, "thanks",
        )  # fmt: skip
        assert usual.json()["message_id"] == first.headers["webhook-id"]
        assert "hush" not in usual.content.decode() + own.content.decode()
        assert not BizMsg.objects.exists()
        assert not Attempt.objects.exists()
        assert entries() == [("subscription_tested", f"{row} #{row.pk}")] * 2

    def test_what_does_not_work_is_said(self, manager: Manager, row: BizReceive) -> None:
        Receive.objects.update(url=f"http://127.0.0.1:{refusing_port()}/")
        shown = manager.send("POST", self.PATH, {}).json()
        assert (shown["delivered"], shown["status"], shown["error"]) == (False, 0, "connect")
        for body in ({"event_type": "order paid"}, {"payload": "x" * 262_144}, {"type": "x"}):
            problem(manager.send("POST", self.PATH, body), 400, "invalid-input")
        problem(manager.send("POST", "subscriptions/shop/nobody/tests", {}), 404, "not-found")
        Receive.objects.update(url="http://10.0.0.1/")
        shown = manager.send("POST", self.PATH, {}).json()
        assert shown["error"] == "address_forbidden"


class TestSms:
    BODY = {"to": "13800000000", "text": "您好"}

    def test_one_message_is_accepted(self, manager: Manager, shop: Caller) -> None:
        other, account = gateway("backup", priority=9), SmsAccount.objects.get()
        path = f"sms/accounts/{account.name}/tests"
        answer = manager.send("POST", path, {**self.BODY, "gateway": "backup"})
        assert answer.status_code == 202
        message = answer.json()["id"]
        (kept,) = store.read([message])
        assert (kept.mt.text, kept.mt.user_number) == ("您好", "8613800000000")
        assert (kept.mt.reference, list(kept.mt.gateways)) == ("test over the API", [other.pk])
        assert entries() == [("sms_tested", message)]

    def test_a_repeat_with_its_key_is_no_second_message(
        self, manager: Manager, shop: Caller, sms_redis: Any
    ) -> None:
        def refuse_log(execute: Any, statement: str, *arguments: Any) -> Any:
            if statement.startswith("INSERT"):  # as on a primary that steps down
                raise OperationalError(1290, "read only")
            return execute(statement, *arguments)

        path = f"sms/accounts/{SmsAccount.objects.get().name}/tests"
        with connection.execute_wrapper(refuse_log):
            answer = manager.send("POST", path, self.BODY, idempotency_key="smoke-7")
        problem(answer, 503, "outcome-unknown")
        assert entries() == []
        for _ in range(2):
            answer = manager.send("POST", path, self.BODY, idempotency_key="smoke-7")
            assert answer.status_code == 202
        assert sms_redis.llen(sms_keys.pending(SmsGateway.objects.get().pk)) == 1
        assert entries() == [("sms_tested", answer.json()["id"])]
        other = {**self.BODY, "text": "other"}
        problem(manager.send("POST", path, other, idempotency_key="smoke-7"), 409, "conflict")

    def test_what_cannot_be_sent_is_said(self, manager: Manager, shop: Caller) -> None:
        account = SmsAccount.objects.get()
        path = f"sms/accounts/{account.name}/tests"
        for wrong, field in (
            ({"to": "abc"}, "to"), ({"text": "a\x00b"}, "text"), ({"gateway": "none"}, "gateway"),
            ({"gateway": ""}, "gateway"), ({"account": "x"}, "account"),
        ):  # fmt: skip
            answer = manager.send("POST", path, {**self.BODY, **wrong})
            assert problem(answer, 400, "invalid-input")["errors"][0]["field"] == field
        name = SmsGateway.objects.get().name
        SmsGateway.objects.update(enabled=False)
        answer = manager.send("POST", path, {**self.BODY, "gateway": name})
        problem(answer, 409, "not-now")
        SmsAccount.objects.update(enabled=False)
        problem(manager.send("POST", path, self.BODY), 409, "not-now")
        problem(manager.send("POST", "sms/accounts/none/tests", self.BODY), 404, "not-found")
        assert entries() == []


class TestCrm:
    def crm(self, url: str) -> Crm:
        return Crm.objects.create(
            name="api", adapter="http", settings={"url": f"{url}/{{key}}", **rest(url)},
            credentials={"token": "hush-hush"},
        )  # fmt: skip

    def test_a_lead_comes_and_goes(self, manager: Manager) -> None:
        leads = LeadStore()
        with serving(leads) as server:
            self.crm(server.url("/leads"))
            body = {"key": "test-7", "fields": {"name": "Ann", "phone": "1"}}
            answer = manager.send("POST", "crms/api/tests/lead", body)
            calls = [request.method for request in asked(server)]
        assert calls == ["PUT", "GET", "DELETE"]
        assert leads.leads == {}
        shown = answer.json()
        assert (shown["taken"], shown["stored"]["name"]) == (True, "Ann")
        assert shown["removal"] == "It was deleted from the CRM afterwards."
        (call,) = shown["calls"]
        assert call["status"] == 201
        assert "hush-hush" not in answer.content.decode()
        assert entries() == [("crm_test_lead_sent", "api")]
        problem(manager.send("POST", "crms/api/tests/lead", {"key": "7"}), 400, "invalid-input")

    def test_a_slow_crm_may_have_stored_the_lead(
        self, manager: Manager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go_on = threading.Event()
        monkeypatch.setattr(trials.ask, "__defaults__", (0.05,))
        with serving(lambda request: Answer({"late": go_on.wait(600)})) as server:
            self.crm(server.url("/leads"))
            answer = manager.send("POST", "crms/api/tests/lead", {})
            go_on.set()
        problem(answer, 503, "outcome-unknown")

    def test_a_refusal_and_a_crm_that_does_not_answer(self, manager: Manager) -> None:
        with serving(lambda request: Answer({"message": "phone is wrong"}, 422)) as server:
            crm = self.crm(server.url("/leads"))
            shown = manager.send("POST", "crms/api/tests/lead", {"fields": {"phone": "x"}}).json()
            assert not shown["taken"]
            assert "phone is wrong" in shown["outcome"]
        address = f"http://127.0.0.1:{refusing_port()}/leads"
        crm.settings = {"url": f"{address}/{{key}}", **rest(address)}
        crm.save()
        tested = manager.send("POST", "crms/api/tests").json()
        assert tested["kind"] in ("untested", "unreachable")
        problem(manager.send("POST", "crms/nobody/tests"), 404, "not-found")
        assert entries()[-1] == ("crm_tested", "api")
