"""Deliveries that are given up: one alert for a subscription, with the number of all of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from msgplatform.core.data import sql
from msgplatform.core.queues import jobs
from msgplatform.core.rates.breaker import State
from msgplatform.models import Alert, Biz
from notify import lane_status, orders
from notify.bulk import send_again
from notify.maker import expiry
from notify.maker.maker import Maker
from notify.marker import failing_subscriptions
from notify.marker.marker import Marker
from notify.models import BizReceive, ReceiveMsg
from notify.orders import Result
from tests.integration.support.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
Delivery = ReceiveMsg.Status


@pytest.fixture
def row(settings: Settings) -> BizReceive:
    settings.NOTIFY_FAILING_MINUTES = 0
    return subscription(Biz.objects.create(name="orders"), schedule=[])


def drain(worker: Any) -> None:
    while worker.turn():
        pass


def give_up(row: BizReceive, count: int) -> None:
    """The consumer refuses them, and a marker writes it down."""
    publish(row.biz, count)
    drain(Maker())
    queued = ReceiveMsg.objects.filter(status=Delivery.QUEUED, biz_receive=row)
    results = [Result(c.pk, row.pk, c.claimed_by, 1, "failed", 503) for c in queued]
    jobs.put(orders.MARKER_QUEUE, [results], ttl=None)
    drain(Marker())
    failing_subscriptions.reconcile_alerts()


def give_up_behind_a_breaker(row: BizReceive, count: int) -> None:
    publish(row.biz, count)
    Maker().splitter.split()
    ReceiveMsg.objects.filter(status=Delivery.PENDING).update(next_at=Now() - timedelta(seconds=9))
    BizReceive.objects.update(failing_since=sql.now() - timedelta(seconds=20), failures=9)
    opened = lane_status.Live("s", breaker=State.OPEN, retry_in=90, open_for=1)
    lane_status.report({row.pk: opened})
    drain(Maker())
    failing_subscriptions.reconcile_alerts()


def alert() -> Alert:
    return Alert.objects.get(open_key__isnull=False)


def exhausted() -> int:
    return ReceiveMsg.objects.filter(status=Delivery.EXHAUSTED).count()


def test_one_alert_counts_what_marker_and_breaker_gave_up(row: BizReceive) -> None:
    give_up(row, 5)
    assert alert().key == f"notify.given_up:{row.pk}"
    assert "5 deliveries were given up" in alert().text
    give_up_behind_a_breaker(row, expiry.PAGE + 13)
    assert exhausted() == 5 + expiry.PAGE + 13
    assert f"{exhausted()} deliveries were given up" in alert().text
    assert (alert().count, Alert.objects.count()) == (1, 1)


def test_each_subscription_has_its_own(row: BizReceive) -> None:
    other = subscription(row.biz, "other", schedule=[])
    give_up(row, 1)
    give_up(other, 1)
    texts = dict(Alert.objects.values_list("key", "text"))
    assert set(texts) == {f"notify.given_up:{one.pk}" for one in (row, other)}
    assert "1 delivery was given up" in texts[f"notify.given_up:{row.pk}"]


def test_what_a_killed_maker_gave_up_is_told_by_the_next_marker(row: BizReceive) -> None:
    publish(row.biz, 3)
    Maker().splitter.split()
    ReceiveMsg.objects.update(next_at=Now() - timedelta(seconds=9))
    BizReceive.objects.update(failing_since=sql.now() - timedelta(seconds=20), failures=9)
    opened = lane_status.Live("s", breaker=State.OPEN, retry_in=90, open_for=1)
    lane_status.report({row.pk: opened})
    drain(Maker())
    assert Alert.objects.count() == 0
    drain(Marker())
    assert "3 deliveries" in alert().text


def test_a_person_ends_it_and_a_new_one_counts_anew(row: BizReceive, admin_client: Client) -> None:
    give_up(row, 5)
    admin_client.post(
        "/admin/msgplatform/alert/", {"action": "resolve", "_selected_action": alert().pk}
    )
    failing_subscriptions.reconcile_alerts()
    assert not Alert.objects.filter(open_key__isnull=False).exists()
    give_up(row, 2)
    assert "2 deliveries" in alert().text
    assert exhausted() == 7


def test_it_ends_when_all_are_sent_again(row: BizReceive) -> None:
    give_up(row, 3)
    deliveries = list(ReceiveMsg.objects.values_list("pk", flat=True))
    send_again.selection(deliveries[:2])
    failing_subscriptions.reconcile_alerts()
    assert alert().key
    send_again.selection(deliveries)
    failing_subscriptions.reconcile_alerts()
    assert Alert.objects.get().resolved_at


def test_it_ends_when_its_window_passes_without_more(row: BizReceive, settings: Settings) -> None:
    give_up(row, 3)
    then = timezone.now() - timedelta(hours=settings.NOTIFY_GIVEN_UP_HOURS, minutes=1)
    BizReceive.objects.update(given_up_since=then - timedelta(days=9))
    failing_subscriptions.reconcile_alerts()
    assert alert().resolved_at is None, "it began long ago, and goes on"
    BizReceive.objects.update(given_up_at=then)
    failing_subscriptions.reconcile_alerts()
    assert Alert.objects.get().resolved_at
    give_up(row, 1)
    assert "1 delivery" in alert().text


def test_a_count_begins_anew_also_when_nobody_looked_meanwhile(row: BizReceive) -> None:
    give_up(row, 3)
    long_ago = timezone.now() - timedelta(days=300)
    BizReceive.objects.update(given_up_at=long_ago, given_up_since=long_ago)
    give_up(row, 2)
    row.refresh_from_db()
    assert row.given_up == 2
    assert row.given_up_since is not None
    assert timezone.now() - row.given_up_since < timedelta(minutes=5)
