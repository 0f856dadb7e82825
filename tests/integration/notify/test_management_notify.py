"""What is held, and secrets that are rotated, over the management API."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from msgplatform.doors.api.access import keys, throttling
from msgplatform.models import AuditLog, Biz
from notify.maker.maker import Maker
from notify.models import BizReceive, Receive, ReceiveMsg
from tests.support.api_support import problem
from tests.support.management import Manager
from tests.support.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
Delivery, Status = ReceiveMsg.Status, BizReceive.Status


@pytest.fixture(autouse=True)
def fresh(work_redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()


def drain(worker: Any) -> None:
    while worker.turn():
        pass


def test_a_schedule_that_a_statement_has_stored_breaks_no_list() -> None:
    row = subscription(Biz.objects.create(name="orders"))
    BizReceive.objects.filter(pk=row.pk).update(schedule=["soon", 5])
    answer = Manager("manage:subscriptions").send("GET", "subscriptions")
    assert answer.status_code == 200
    assert answer.json()["results"][0]["schedule"] == [5]


class TestHeld:
    @pytest.fixture
    def manager(self) -> Manager:
        return Manager("manage:held", name="night watch")

    @pytest.fixture
    def row(self) -> BizReceive:
        """A paused subscription with three deliveries, beside one that holds nothing."""
        biz = Biz.objects.create(name="orders")
        row = subscription(biz, status=Status.PAUSED)
        subscription(biz, "accounting")
        publish(biz, 3)
        drain(Maker())
        return row

    def deliveries(self, row: BizReceive, status: int) -> int:
        return ReceiveMsg.objects.filter(biz_receive=row, status=status).count()

    def test_it_is_listed_with_its_number(self, manager: Manager, row: BizReceive) -> None:
        other = subscription(Biz.objects.create(name="stock"), status=Status.DISABLED)
        publish(other.biz, 1)
        drain(Maker())
        results = manager.send("GET", "held").json()["results"]
        assert [(each["subscription"], each["status"], each["held"]) for each in results] == [
            ("orders/warehouse", "paused", 3), ("stock/warehouse", "disabled", 1),
        ]  # fmt: skip
        assert results[0]["oldest"] <= results[1]["oldest"]
        page = manager.send("GET", "held?limit=1").json()
        assert page["next"]
        (only,) = manager.send("GET", "held?system=stock").json()["results"]
        assert only["subscription"] == "stock/warehouse"
        problem(manager.send("GET", "held?system=nobody"), 400, "invalid-input")

    def test_it_is_released(self, manager: Manager, row: BizReceive) -> None:
        for _ in range(2):  # again it changes nothing
            answer = manager.send("POST", "held/orders/warehouse/release")
            assert answer.json() == {"status": "normal", "held": 3}
        drain(Maker())
        assert (self.deliveries(row, Delivery.HELD), self.deliveries(row, Delivery.QUEUED)) == (
            0,
            3,
        )
        (entry,) = AuditLog.objects.all()
        assert (entry.action, entry.actor, entry.detail) == (
            "subscription_resumed", "night watch (API key)",
            {"changes": {"status": ["PAUSED", "NORMAL"]}},
        )  # fmt: skip
        problem(manager.send("POST", "held/orders/warehouse/skip"), 409, "not-now")

    def test_it_is_skipped(self, manager: Manager, row: BizReceive) -> None:
        answer = manager.send("POST", "held/orders/warehouse/skip")
        assert answer.json() == {"status": "skipping", "held": 3}
        drain(Maker())
        row.refresh_from_db()
        assert (row.status, self.deliveries(row, Delivery.SKIPPED)) == (Status.NORMAL, 3)
        publish(row.biz, 1)
        drain(Maker())
        assert self.deliveries(row, Delivery.QUEUED) == 1
        assert manager.send("GET", "held").json()["results"] == []

    def test_what_waited_at_the_pause_is_held_too(self, manager: Manager) -> None:
        row = subscription(Biz.objects.create(name="books"))
        publish(row.biz, 2)
        Maker().splitter.split()
        BizReceive.objects.filter(pk=row.pk).update(status=Status.PAUSED)
        drain(Maker())
        (listed,) = manager.send("GET", "held").json()["results"]
        assert (listed["subscription"], listed["held"]) == ("books/warehouse", 2)
        answer = manager.send("POST", "held/books/warehouse/skip")
        assert answer.json() == {"status": "skipping", "held": 2}
        drain(Maker())
        assert self.deliveries(row, Delivery.SKIPPED) == 2

    def test_a_discarded_one_is_not_taken_up(self, manager: Manager, row: BizReceive) -> None:
        BizReceive.objects.filter(pk=row.pk).update(status=Status.DISCARDED)
        for change in ("release", "skip"):
            problem(manager.send("POST", f"held/orders/warehouse/{change}"), 409, "not-now")
            problem(manager.send("POST", f"held/orders/nobody/{change}"), 404, "not-found")


class TestRotation:
    @pytest.fixture
    def manager(self) -> Manager:
        return Manager("manage:consumers")

    def test_both_secrets_sign_for_a_while(self, manager: Manager) -> None:
        body = {"url": "https://warehouse.example/"}
        first = manager.send("PUT", "consumers/warehouse", body).json()
        path, seen = "consumers/warehouse/rotate", {"fingerprint": first["secret_fingerprint"]}
        rotated = manager.send("POST", path, {**seen, "hours": 24}).json()
        row = Receive.objects.get()
        assert rotated["secret"] == row.secret != first["secret"] == row.previous_secret
        until = row.previous_secret_until
        assert until
        assert timedelta(hours=23) < until - timezone.now() <= timedelta(hours=24)
        shown = manager.send("GET", "consumers/warehouse").json()
        assert shown["secret_fingerprint"] == rotated["secret_fingerprint"]
        assert shown["previous_secret_until"] == rotated["previous_secret_until"]
        # Sent twice: the secret that the consumer still uses goes on signing.
        problem(manager.send("POST", path, {**seen, "hours": 24}), 409, "not-now")
        assert Receive.objects.get().secret == row.secret
        last = manager.send(
            "POST", path, {"fingerprint": shown["secret_fingerprint"], "hours": 0}
        ).json()
        assert (last["previous_secret_until"], Receive.objects.get().previous_secret) == (None, "")
        said = str([*AuditLog.objects.values(), shown])
        for secret in (first["secret"], rotated["secret"], last["secret"]):
            assert secret not in said
            assert secret.removeprefix("whsec_") not in said
        rotations = AuditLog.objects.filter(action="consumer_secret_rotated").order_by("id")
        assert [entry.detail for entry in rotations] == [
            {"old_signs_hours": 24.0}, {"old_signs_hours": 0.0},
        ]  # fmt: skip

    def test_what_is_wrong_is_said(self, manager: Manager) -> None:
        manager.send("PUT", "consumers/warehouse", {"url": "https://warehouse.example/"})
        path = "consumers/warehouse/rotate"
        for body in ({}, {"fingerprint": "x", "hours": 169}, {"fingerprint": "x", "hours": -1},
                     {"fingerprint": "x", "hours": "5"}, {"fingerprint": 5}):  # fmt: skip
            problem(manager.send("POST", path, body), 400, "invalid-input")
        problem(manager.send("POST", path, {"fingerprint": "x"}), 409, "not-now")
        problem(
            manager.send("POST", "consumers/nobody/rotate", {"fingerprint": "x"}), 404, "not-found"
        )
