"""Failures of Notify: counted where it happens, until they are sent again."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client
from pytest_django import Settings

from msgplatform.core import flows
from msgplatform.core.data import sql
from msgplatform.core.flows.bulk_pages import Counted
from msgplatform.core.queues import jobs
from msgplatform.core.rates.breaker import State
from msgplatform.messages.filters import moment
from msgplatform.models import Alert, Biz
from msgplatform.monitor import failure_groups, failure_store
from msgplatform.monitor.failure_store import Loss
from msgplatform.monitor.watch import of_flows
from notify import orders, presence
from notify.maker import expiry
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import BizMsg, BizReceive, ReceiveMsg
from notify.orders import Result
from tests.support.archive_support import archive, message
from tests.support.bulk_form import preview
from tests.support.failure_times import tick
from tests.support.notify_rows import publish, resend, subscription
from tests.support.notify_turns import old_maker

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]
Delivery = ReceiveMsg.Status


@pytest.fixture
def row(settings: Settings) -> BizReceive:
    settings.NOTIFY_FAILING_MINUTES = 0
    return subscription(Biz.objects.create(name="orders"), schedule=[])


def drain(worker: Any) -> None:
    while worker.turn():
        pass


def mark(results: list[Result]) -> None:
    jobs.put(orders.MARKER_QUEUE, [results], ttl=None)
    drain(Marker())


def exhaust(row: BizReceive, count: int, status: int = 503, body: str = "") -> list[Result]:
    """The consumer refuses them, and a marker writes it down."""
    publish(row.biz, count)
    drain(Maker())
    queued = ReceiveMsg.objects.filter(status=Delivery.QUEUED, biz_receive=row)
    results = [
        Result(c.pk, row.pk, c.claimed_by, 1, "failed", status, response_body=body) for c in queued
    ]
    mark(results)
    return results


def exhaust_behind_a_breaker(row: BizReceive, count: int) -> None:
    publish(row.biz, count)
    Maker().splitter.split()
    ReceiveMsg.objects.filter(status=Delivery.PENDING).update(next_at=Now() - timedelta(hours=2))
    BizReceive.objects.update(failing_since=sql.now() - timedelta(hours=3), failures=9)
    opened = presence.LaneState("s", breaker=State.OPEN, retry_in=90, open_for=1)
    presence.report({row.pk: opened})
    maker = old_maker()
    drain(maker)


def counted() -> dict[str, int]:
    """As the page Failures has it: answer → how many."""
    flow = flows.get("notify")
    assert flow
    return {str(failure.answer): failure.count for failure in flow.health.failures()}


def alert() -> Alert:
    of_flows.report_failures()
    return Alert.objects.get(open_key__isnull=False)


def exhausted() -> int:
    return ReceiveMsg.objects.filter(status=Delivery.EXHAUSTED).count()


def test_marker_and_breaker_count_by_answer(row: BizReceive) -> None:
    exhaust(row, 5, body="no room")
    exhaust(row, 2, status=500)
    exhaust_behind_a_breaker(row, expiry.PAGE + 13)
    assert counted() == {"HTTP 503": 5, "HTTP 500": 2, expiry.ERROR: expiry.PAGE + 13}
    (said,) = [f.said for f in flows.get("notify").health.failures() if f.answer == "HTTP 503"]  # type: ignore[union-attr]
    assert said == "no room"


def test_marking_the_same_results_again_counts_nothing(row: BizReceive) -> None:
    mark(exhaust(row, 5))
    assert counted() == {"HTTP 503": 5}


def test_sent_again_they_leave_the_count_wherever_they_are(row: BizReceive) -> None:
    days = 40.0
    for _ in range(4):
        message(row, Delivery.EXHAUSTED, days=days)
    lost = ReceiveMsg.objects.values_list("id", flat=True)
    long_ago = sql.now() - timedelta(days=days + 1)
    failure_store.add("notify", [Loss(row.pk, "HTTP 200", pk) for pk in lost], long_ago)
    archive()
    assert BizMsg.objects.count() == 0, "they are in the archive"
    exhaust(row, 3)
    assert counted() == {"HTTP 200": 4, "HTTP 503": 3}
    flow = flows.get("notify")
    assert flow
    assert flow.health.failures()[0].message == "", "an archived one is not looked for"
    run("replay_failed", subscription=str(row.pk), since="2020-01-01")
    assert counted() == {}
    assert exhausted() == 0


def run(action: str, **filter: str) -> None:
    flow, cursor = flows.get("notify"), ""
    assert flow
    while True:
        cursor = flow.action(action).step(filter, cursor, 500).cursor
        if not cursor:
            return


def test_the_group_s_own_filter_sends_it_and_nothing_else(
    row: BizReceive, admin_client: Client
) -> None:
    other = subscription(Biz.objects.create(name="bills"), "other", schedule=[])
    exhaust(row, 5)
    exhaust(other, 2)
    exhaust(row, 3, status=500)
    flow = flows.get("notify")
    assert flow
    wanted = next(f for f in flow.health.failures() if f.count == 3)
    shown = preview(admin_client, "notify", action=wanted.action, **wanted.filter)
    assert shown.context["counted"] == Counted(3)
    run(wanted.action, **wanted.filter)
    left = {(f.subject, f.answer, f.count) for f in flow.health.failures()}
    assert left == {(row.pk, "HTTP 503", 5), (other.pk, "HTTP 503", 2)}
    assert ReceiveMsg.objects.filter(status=Delivery.PENDING).count() == 3


def acknowledge_all() -> None:
    flow = flows.get("notify")
    assert flow
    for one in flow.health.failures():
        snapshot = failure_groups.GroupSnapshot(one.id, one.lost, one.last_at)
        assert failure_groups.acknowledge_group(flow, snapshot, "known", "ann") == one.count
    tick()


def test_what_was_acknowledged_is_not_sent_with_the_group(
    row: BizReceive, admin_client: Client
) -> None:
    exhaust(row, 2)
    exhaust(row, 1, status=500)
    acknowledge_all()
    exhaust(row, 3)
    exhaust(row, 2, status=500)
    flow = flows.get("notify")
    assert flow
    first, second = flow.health.failures()
    assert (first.count, second.count) == (3, 2)
    for filter, count in (
        (first.filter, 3), (second.filter, 2), (first.place_filter, 5), (second.place_filter, 5),
    ):  # fmt: skip
        shown = preview(admin_client, "notify", action="resend", **filter)
        assert shown.context["counted"] == Counted(count)
        # The browser sends the form's time back: it is not one to the millisecond.
        widget = shown.context["form"]["failed_since"].as_widget()
        (sent,) = re.findall(r' value="([^"]+)"', widget)
        assert moment(sent, "") == moment(filter["failed_since"], "")
    run("resend", **first.filter)
    assert counted() == {"HTTP 500": 2}
    assert exhausted() == 2 + 1 + 2


def test_what_arrives_after_all_leaves_the_count(row: BizReceive) -> None:
    (first, *_) = exhaust(row, 2)
    mark([Result(first.id, row.pk, "an earlier claim", 1, "delivered", 200)])
    assert counted() == {"HTTP 503": 1}


def test_one_alert_until_all_are_sent_again(row: BizReceive) -> None:
    exhaust(row, 3)
    exhaust(row, 1, status=500)
    assert alert().key == f"notify.failures:{row.pk}"
    assert "HTTP 503 (3)" in alert().text
    assert (alert().count, Alert.objects.count()) == (1, 1)
    deliveries = list(ReceiveMsg.objects.values_list("pk", flat=True))
    resend(deliveries[:2])
    assert alert().text.startswith("Messages: 2, since")
    resend(deliveries)
    of_flows.report_failures()
    assert Alert.objects.get().resolved_at
    assert counted() == {}
