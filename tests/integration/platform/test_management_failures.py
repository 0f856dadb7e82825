"""Failures over the management API: the same groups as the console's page, and its two actions."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from msgplatform.core.queues import jobs
from msgplatform.doors.api.access import keys, throttling
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Acknowledgement, AuditLog, Biz, FailureGroup
from notify import orders
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import BizReceive, ReceiveMsg
from notify.orders import Result
from tests.support.api_support import problem
from tests.support.failure_times import tick
from tests.support.management import Manager
from tests.support.notify_rows import publish, subscription

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
Delivery = ReceiveMsg.Status


@pytest.fixture(autouse=True)
def fresh(work_redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()


@pytest.fixture
def manager() -> Manager:
    return Manager("manage:failures", name="night watch")


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders", title="Orders"), schedule=[])


def drain(worker: Any) -> None:
    while worker.turn():
        pass


def exhaust(row: BizReceive, count: int, status: int = 503) -> None:
    """The consumer refuses so many deliveries, and a marker writes it down."""
    publish(row.biz, count)
    drain(Maker())
    results = [
        Result(c.pk, row.pk, c.claimed_by, 1, "failed", status, response_body="no room")
        for c in ReceiveMsg.objects.filter(status=Delivery.QUEUED)
    ]
    jobs.put(orders.MARKER_QUEUE, [results], ttl=None)
    drain(Marker())


def test_the_list_has_what_the_page_has(
    manager: Manager, row: BizReceive, admin_client: Client
) -> None:
    exhaust(row, 2, 500)
    exhaust(row, 3)
    results = manager.send("GET", "failures").json()["results"]
    assert [(each["answer"], each["count"]) for each in results] == [
        ("HTTP 503", 3), ("HTTP 500", 2),
    ]  # fmt: skip
    page = admin_client.get("/console/failures")
    (listing,) = page.context["listings"]
    (place,) = listing.places
    assert [str(failure.id) for failure, _url in place.failures] == [each["id"] for each in results]
    assert (results[0]["place"], results[0]["example"]) == ("Orders → warehouse", "no room")
    assert results[0]["resend"]["filter"]["answer"] == "HTTP 503"
    assert manager.send("GET", "failures?flow=sms").json() == {"results": [], "unread": []}
    assert len(manager.send("GET", "failures?flow=notify").json()["results"]) == 2
    problem(manager.send("GET", "failures?flow=letters"), 400, "invalid-input")


def test_only_what_was_seen_is_acknowledged(manager: Manager, row: BizReceive) -> None:
    exhaust(row, 2)
    (seen,) = manager.send("GET", "failures").json()["results"]
    exhaust(row, 3)
    path = f"failures/{seen['id']}/acknowledge"
    body = {"note": " a test of ours ", "lost": seen["lost"], "last_at": seen["last_at"]}
    assert manager.send("POST", path, body).json() == {"acknowledged": 2}
    problem(manager.send("POST", path, body), 409, "not-now")
    (left,) = manager.send("GET", "failures").json()["results"]
    assert (left["count"], left["lost"]) == (3, 5)
    note = Acknowledgement.objects.get()
    assert (note.note, note.actor) == ("a test of ours", "night watch (API key)")
    entry = AuditLog.objects.get(action="failures_acknowledged")
    assert (entry.actor, entry.detail["count"]) == ("night watch (API key)", 2)
    for wrong, field in (
        ({"note": "  "}, "note"), ({"note": "x" * 501}, "note"), ({"lost": -1}, "lost"),
        ({"last_at": "2026-11-20T08:00:00"}, "last_at"), ({"since": "x"}, "since"),
    ):  # fmt: skip
        answer = manager.send("POST", path, {**body, **wrong})
        assert problem(answer, 400, "invalid-input")["errors"][0]["field"] == field
    path = f"failures/{int(seen['id']) + 1}/acknowledge"
    problem(manager.send("POST", path, body), 404, "not-found")


def test_a_group_is_sent_again(manager: Manager, row: BizReceive) -> None:
    exhaust(row, 2, 500)
    exhaust(row, 3)
    # Deliveries that ended after the job began are left alone.
    ReceiveMsg.objects.update(updated_at=FailureGroup.objects.get(answer="HTTP 500").last_at)
    FailureGroup.objects.update(counted_since=FailureGroup.objects.first().since - timedelta(1))
    (group, _other) = manager.send("GET", "failures").json()["results"]
    path = f"failures/{group['id']}/resend"
    job = manager.send("POST", path, {"rate": 1000}).json()
    assert (job["flow"], job["action"], job["total"]) == ("notify", "resend", 3)
    assert job["created_by"] == "night watch (API key)"
    runner = BulkRunner()
    while runner.turn():
        BulkJob.objects.update(lease_until=None)
    assert BulkJob.objects.get().state == BulkJob.State.DONE
    waiting = ReceiveMsg.objects.filter(status=Delivery.PENDING)
    assert (waiting.count(), set(waiting.values_list("http_status", flat=True))) == (3, {503})
    (left,) = manager.send("GET", "failures").json()["results"]
    assert left["answer"] == "HTTP 500"
    problem(manager.send("POST", path, {}), 409, "not-now")
    assert AuditLog.objects.get(action="bulk_resend").actor == "night watch (API key)"
    for wrong in (0, 100_001, "5"):
        problem(manager.send("POST", path, {"rate": wrong}), 400, "invalid-input")
    path = f"failures/{int(group['id']) + 9}/resend"
    problem(manager.send("POST", path, {}), 404, "not-found")


def test_what_was_acknowledged_is_not_sent_with_the_group(
    manager: Manager, row: BizReceive
) -> None:
    exhaust(row, 2)
    (seen,) = manager.send("GET", "failures").json()["results"]
    body = {"note": "known", "lost": seen["lost"], "last_at": seen["last_at"]}
    path = f"failures/{seen['id']}"
    assert manager.send("POST", f"{path}/acknowledge", body).json() == {"acknowledged": 2}
    tick()
    exhaust(row, 3)
    assert manager.send("POST", f"{path}/resend", {}).json()["total"] == 3
