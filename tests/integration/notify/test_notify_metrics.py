"""What `/metrics` and the overview say of Notify, and what it costs to ask."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from bench.harness.plans import read_plan
from msgplatform.core import flows
from msgplatform.core.data import counting, sql
from msgplatform.core.queues import jobs
from msgplatform.core.rates.breaker import State
from msgplatform.models import Biz
from msgplatform.monitor import metrics
from msgplatform.monitor.statistics.points import CounterQuery, total
from notify import orders, presence
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import BizReceive, Receive, ReceiveMsg
from notify.monitor import metrics as of_notify
from notify.monitor.activity import ACTIVITY
from notify.orders import Result
from notify.subscriptions import sandbox
from tests.support.notify_rows import publish, subscription

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]
Delivery = ReceiveMsg.Status


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"), schedule=[10, 1000])


def drain(worker: Any) -> None:
    while worker.turn():
        pass


def scraped() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """(name, labels) → value, as a Prometheus server reads them."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = [sample for family in families for sample in family.samples]
    return {(name(s.name), tuple(sorted(s.labels.items()))): s.value for s in samples}


def name(full: str) -> str:
    return full.removeprefix("msgplatform_")


def of(row: BizReceive) -> tuple[tuple[str, str], ...]:
    return (("biz", row.biz.name), ("consumer", row.receive.name), ("subscription", str(row.pk)))


def mark(status: int, seconds: float = 0.04, after: float = 0.0) -> None:
    """Mark everything that is queued, as sent `after` seconds after it was accepted."""
    results = [
        Result(
            delivery.pk, delivery.biz_receive_id, delivery.claimed_by, delivery.send_times + 1,
            "delivered" if status == 200 else "failed", status,
            at=delivery.created_at.timestamp() + after - seconds, seconds=seconds,
        )
        for delivery in ReceiveMsg.objects.filter(status=Delivery.QUEUED)
    ]  # fmt: skip
    jobs.put(orders.MARKER_QUEUE, [results], ttl=None)
    drain(Marker())


def test_attempts_and_their_times_are_counters_and_histograms(row: BizReceive) -> None:
    for status, after in ((200, 0.3), (200, 3.0), (503, 0.0)):
        publish(row.biz, 2)
        drain(Maker())
        mark(status, after=after)
    found = scraped()
    assert found["notify_attempts_total", (("outcome", "delivered"),)] == 4
    assert found["notify_attempts_total", (("outcome", "failed"),)] == 2
    assert found["notify_exhausted_total", ()] == 0
    bucket = "notify_delivery_seconds_bucket"
    assert found[bucket, (("le", "0.25"),)] == 0
    assert found[bucket, (("le", "0.5"),)] == 2
    assert found[bucket, (("le", "5.0"),)] == found[bucket, (("le", "+Inf"),)] == 4
    assert found["notify_delivery_seconds_count", ()] == 4
    assert found["notify_delivery_seconds_sum", ()] == pytest.approx(6.6, abs=0.1)
    assert found["notify_request_seconds_count", ()] == 6
    assert found["notify_request_seconds_bucket", (("le", "0.05"),)] == 6
    now = sql.now()
    span: Any = ("minute", now - timedelta(minutes=5), now + timedelta(minutes=1))
    of_row = total(CounterQuery(ACTIVITY, *span, selection={"subscription": str(row.pk)}).series())
    assert (of_row["delivered"], of_row["failed"], ACTIVITY.success(of_row)) == (4, 2, 1.0)
    p50, p95, _request = (figure.of(of_row) for figure in ACTIVITY.figures)
    assert p50 == 0.5
    assert 2.5 < (p95 or 0) <= 5
    of_system = total(CounterQuery(ACTIVITY, *span, selection={"system": str(row.biz_id)}).series())
    assert of_system["accepted"] == 6


def test_a_repeated_batch_is_observed_once(row: BizReceive) -> None:
    publish(row.biz, 1)
    drain(Maker())
    (delivery,) = ReceiveMsg.objects.all()
    result = Result(delivery.pk, row.pk, delivery.claimed_by, 1, "delivered", 200, seconds=0.1)
    jobs.put(orders.MARKER_QUEUE, [[result, result], [result]], ttl=None)
    drain(Marker())
    assert scraped()["notify_request_seconds_count", ()] == 1


def test_the_oldest_due_delivery_of_each_subscription(row: BizReceive) -> None:
    late = subscription(row.biz, "late")
    paused = subscription(row.biz, "paused")
    publish(row.biz, 2)
    drain(Maker())
    now = sql.now()
    deliveries = ReceiveMsg.objects.all()
    deliveries.update(status=Delivery.PENDING, next_at=now + timedelta(hours=1))
    deliveries.filter(biz_receive=late).update(next_at=now - timedelta(seconds=300))
    deliveries.filter(biz_receive=paused).update(next_at=now - timedelta(days=3))
    BizReceive.objects.filter(pk=paused.pk).update(status=BizReceive.Status.DISABLED)
    found = scraped()
    assert found["notify_oldest_seconds", ()] == pytest.approx(300, abs=30)
    named = [key for key in found if key[0] == "notify_subscription_oldest_seconds"]
    assert named == [("notify_subscription_oldest_seconds", of(late))]
    assert found["notify_subscriptions", (("status", "disabled"),)] == 1
    status = flows.get("notify").health.status()  # type: ignore[union-attr]
    assert status.oldest_seconds == pytest.approx(300, abs=30)


def test_only_the_oldest_are_named(row: BizReceive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_notify, "MAX_NAMED", 3)
    rows = [row, *(subscription(row.biz, f"s{n}") for n in range(6))]
    publish(row.biz, 1)
    drain(Maker())
    for n, one in enumerate(rows):
        due = sql.now() - timedelta(minutes=n + 1)
        deliveries = ReceiveMsg.objects.filter(biz_receive=one)
        deliveries.update(status=Delivery.PENDING, next_at=due)
        BizReceive.objects.filter(pk=one.pk).update(failing_since=due, failures=2)
    BizReceive.objects.filter(pk=rows[6].pk).update(status=BizReceive.Status.DISCARDED)
    rows[5].receive.delivery = Receive.Delivery.LISTEN
    rows[5].receive.save()
    found = scraped()
    for name in ("notify_subscription_oldest_seconds", "notify_subscription_failing_seconds"):
        assert {key[1] for key in found if key[0] == name} == {of(one) for one in rows[2:5]}
    rows[4].receive.url = sandbox.URL
    rows[4].receive.save()
    BizReceive.objects.filter(pk=rows[3].pk).update(failures=1)
    failing = {key[1] for key in scraped() if key[0] == "notify_subscription_failing_seconds"}
    assert failing == {of(rows[n]) for n in (0, 1, 2)}, "no sandbox, and no first failure"


def test_an_expired_lease_is_seen(row: BizReceive) -> None:
    publish(row.biz, 1)
    drain(Maker())
    assert scraped()["notify_expired_lease_seconds", ()] == 0
    ReceiveMsg.objects.update(next_at=sql.now() - timedelta(seconds=100))
    assert scraped()["notify_expired_lease_seconds", ()] == pytest.approx(100, abs=30)


@pytest.mark.parametrize("holder", ["listener", "person", "breaker", "OUTBOUND"])
def test_an_expired_lease_that_waits_on_purpose_is_none(
    row: BizReceive, settings: Any, holder: str
) -> None:
    publish(row.biz, 1)
    drain(Maker())
    ReceiveMsg.objects.update(next_at=sql.now() - timedelta(seconds=100))
    match holder:
        case "listener":
            row.receive.delivery = Receive.Delivery.LISTEN
            row.receive.save()
        case "person":
            BizReceive.objects.update(status=BizReceive.Status.PAUSED)
        case "breaker":
            presence.report({row.pk: presence.LaneState("a", breaker=State.OPEN)})
        case _:
            settings.OUTBOUND = False
    assert scraped()["notify_expired_lease_seconds", ()] == 0


def test_what_senders_say_of_those_that_are_not_idle(row: BizReceive) -> None:
    idle, gone = subscription(row.biz, "idle"), 10**6
    presence.report(
        {
            row.pk: presence.LaneState("a", in_flight=3, waiting=70, breaker=State.HALF_OPEN),
            idle.pk: presence.LaneState("a", per_second=10.0),
            gone: presence.LaneState("a", in_flight=1),
        }
    )
    found = scraped()
    assert found["notify_subscription_in_flight", of(row)] == 3
    assert found["notify_subscription_waiting", of(row)] == 70
    assert found["notify_subscription_breaker", of(row)] == 1
    assert ("notify_subscription_breaker", of(idle)) not in found
    assert sum(key[0] == "notify_subscription_in_flight" for key in found) == 1


def test_counts_end_at_a_bound(row: BizReceive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_notify, "MAX_COUNTED", 5)
    publish(row.biz, 12)
    assert scraped()["notify_messages_unsplit", ()] == 5
    drain(Maker())
    ReceiveMsg.objects.update(status=Delivery.EXHAUSTED)
    assert scraped()["notify_deliveries_open", (("status", "exhausted"),)] == 5
    assert flows.get("notify").health.status().facts == {}  # type: ignore[union-attr]
    ReceiveMsg.objects.update(status=Delivery.HELD)
    status = flows.get("notify").health.status()  # type: ignore[union-attr]
    assert status.facts == {"held": "5 or more"}
    nine = list(ReceiveMsg.objects.values_list("pk", flat=True)[:9])
    ReceiveMsg.objects.filter(pk__in=nine).delete()
    assert flows.get("notify").health.status().facts == {"held": 3}  # type: ignore[union-attr]


def test_large_counts_are_not_read_at_each_scrape(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "MANY", 60)
    monkeypatch.setattr(counting, "REST", 10**6)
    # Kept counts outlive the test that they belong to.
    counts = counting.KeptCounts(of_notify.open_counts.count)
    monkeypatch.setattr(of_notify, "open_counts", counts)
    publish(row.biz, 40)
    drain(Maker())
    publish(row.biz, 30)

    def counted() -> tuple[int, int]:
        """Statements that count, and rows that they and all others read (on MariaDB)."""
        before = rows_read()
        with CaptureQueriesContext(connection) as captured:
            found = scraped()
        assert (found["notify_deliveries_open", QUEUED], found["notify_messages_unsplit", ()]) == (
            40,
            30,
        )
        return sum("COUNT(" in query["sql"] for query in captured), rows_read() - before

    first, again = counted(), counted()
    of_others = again[0]  # of Feed and CRM sync
    assert first[0] - of_others == 2, "one for deliveries, one for messages"
    if connection.vendor == "mysql":
        assert first[1] - again[1] >= 70


QUEUED = (("status", "queued"),)


def rows_read() -> int:
    """By this connection so far; 0 on SQLite, which does not count."""
    if connection.vendor != "mysql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read_%'")
        return sum(int(value) for name, value in cursor.fetchall() if "_rnd_" not in name)


def test_a_scrape_reads_no_table_whole(row: BizReceive) -> None:
    """Every query on the deliveries is an index range that ends at a bound, on both databases."""
    for n in range(5):
        subscription(row.biz, f"s{n}")
    publish(row.biz, 100)
    drain(Maker())
    with CaptureQueriesContext(connection) as captured:
        scraped()
    asked = [query["sql"] for query in captured if "receive_msg" in query["sql"]]
    assert asked
    for query in asked:
        assert "LIMIT" in query
        with connection.cursor() as cursor:
            plan = [str(step) for step in read_plan(cursor, query)]
        of_deliveries = [line for line in plan if "receive_msg" in line]
        assert of_deliveries
        assert all("receive_msg_due" in line for line in of_deliveries), plan
        assert "COVERING INDEX" in str(plan) or "Using index" in str(plan), plan
