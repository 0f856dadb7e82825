"""What metrics and console say is what a COUNT finds, also while something is down."""

import time
from datetime import timedelta

import pytest
from django.db.models import Min, Sum
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from msgplatform.core import flows
from msgplatform.core.data import sql
from msgplatform.core.servers.private_server import free_port
from msgplatform.models import Biz, MinuteCounter
from msgplatform.models.counters import WHOLE
from msgplatform.monitor import metrics
from notify import presence
from notify.maker.maker import Maker
from notify.models import BizMsg, BizReceive, Receive, ReceiveMsg
from notify.monitor import metrics as of_notify
from tests.support.notify_rows import publish, subscription
from tests.support.notify_turns import old_maker, run_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
Delivery = ReceiveMsg.Status
WAITING, SPAN = 600, 3600


@pytest.fixture
def dead(settings: Settings) -> BizReceive:
    """A subscription whose consumer refuses connections, behind an open breaker."""
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    row = subscription(Biz.objects.create(name="orders"), schedule=[SPAN])
    Receive.objects.update(url=f"http://127.0.0.1:{free_port()}/")
    publish(row.biz, WAITING)
    run_until(lambda: is_open(row) and nobody_has_any())
    return row


def is_open(row: BizReceive) -> bool:
    state = presence.read().get(row.pk)
    return state is not None and state.is_open


def nobody_has_any() -> bool:
    """All results are marked."""
    return not (
        BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).exists()
        or ReceiveMsg.objects.filter(status=Delivery.QUEUED).exists()
    )


def count(*statuses: int) -> int:
    """The truth."""
    return ReceiveMsg.objects.filter(status__in=statuses).count()


def oldest() -> float:
    """The truth: seconds since the first delivery was due that waits."""
    first = ReceiveMsg.objects.filter(status=Delivery.PENDING, next_at__lte=sql.now())
    return (sql.now() - first.aggregate(at=Min("next_at"))["at"]).total_seconds()


def scraped() -> dict[tuple[str, str], float]:
    """(name, status or outcome) → value."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = [sample for family in families for sample in family.samples]
    return {
        (
            s.name.removeprefix("msgplatform_"),
            s.labels.get("status", s.labels.get("outcome", "")),
        ): (s.value)
        for s in samples
    }


def compare(row: BizReceive, client: Client) -> None:
    """Every figure with the rows."""
    found = scraped()
    for status in of_notify.NOT_DELIVERED:
        name = Delivery(status).name.lower()
        assert found["notify_deliveries_open", name] == count(status), name
    assert found["notify_exhausted_total", ""] == count(Delivery.EXHAUSTED)
    exhausted = MinuteCounter.objects.filter(WHOLE, name="exhausted").aggregate(Sum("value"))
    assert (exhausted["value__sum"] or 0) == count(Delivery.EXHAUSTED)
    lost = flows.get("notify").health.failures()
    assert sum(failure.count for failure in lost) == count(Delivery.EXHAUSTED)
    waiting = count(Delivery.PENDING, Delivery.QUEUED, Delivery.HELD)
    unsplit = BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).count()
    assert found["notify_messages_unsplit", ""] == unsplit
    assert flows.get("notify").health.status().backlog == waiting + unsplit
    overview = client.get("/console/").content.decode()
    assert f"<dt>waiting</dt><dd>{waiting + unsplit:,}</dd>" in overview
    listed = client.get("/admin/notify/bizreceive/").context["cl"].result_list
    assert [one.health.waiting for one in listed] == [waiting]
    card = client.get(f"/admin/notify/bizreceive/{row.pk}/change/").content.decode()
    if waiting:
        assert f"<dt>waiting</dt><dd>{waiting}</dd>" in card


def test_while_a_consumer_is_dead_and_after_its_deliveries_expired(
    dead: BizReceive, admin_client: Client
) -> None:
    assert count(Delivery.PENDING) == WAITING
    compare(dead, admin_client)
    assert scraped()["notify_oldest_seconds", ""] == pytest.approx(oldest(), abs=60)
    _pass(seconds=2 * SPAN)
    assert scraped()["notify_oldest_seconds", ""] == pytest.approx(oldest(), abs=60)
    maker, deadline = old_maker(), time.monotonic() + 180
    while count(Delivery.PENDING, Delivery.QUEUED):
        assert time.monotonic() < deadline
        _keep_the_breaker_open(dead)
        maker.turn()
    assert count(Delivery.EXHAUSTED) == WAITING
    compare(dead, admin_client)


def test_while_nobody_splits(dead: BizReceive, admin_client: Client) -> None:
    publish(dead.biz, 40)
    BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).update(
        created_at=sql.now() - timedelta(hours=3)
    )
    compare(dead, admin_client)
    assert scraped()["notify_oldest_seconds", ""] == pytest.approx(3 * 3600, abs=60)


def test_while_no_sender_runs(admin_client: Client) -> None:
    """Orders lie on the queue: each is many deliveries."""
    row = subscription(Biz.objects.create(name="orders"))
    publish(row.biz, 1300)
    maker = Maker()
    while maker.turn():
        pass
    assert count(Delivery.QUEUED)
    compare(row, admin_client)


def _pass(seconds: float) -> None:
    """As if everything had been due so long ago, a hundred deliveries a little longer."""
    then = sql.now() - timedelta(seconds=seconds)
    ReceiveMsg.objects.update(next_at=then)
    first = ReceiveMsg.objects.order_by("-id").values_list("pk", flat=True)[:100]
    ReceiveMsg.objects.filter(pk__in=list(first)).update(next_at=then - timedelta(minutes=7))
    BizReceive.objects.update(failing_since=then)


def _keep_the_breaker_open(row: BizReceive) -> None:
    state = presence.read().get(row.pk)
    assert state is not None
    opened = presence.LaneState(
        "s", breaker=state.breaker, open_for=1.0, retry_in=60.0, in_flight=0, waiting=0
    )
    presence.report({row.pk: opened})
