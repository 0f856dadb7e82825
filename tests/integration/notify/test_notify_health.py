"""The marker keeps the health of subscriptions: since when they fail, and when it is enough."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import translation
from pytest_django import Settings

from msgplatform.core.connections import work_redis
from msgplatform.core.data import sql
from msgplatform.core.queues import jobs
from msgplatform.core.rates.breaker import State
from msgplatform.models import Alert, AuditLog, Biz
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss
from msgplatform.monitor.watch.of_flows import report_conditions
from notify import orders, presence
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import BizReceive, Receive, ReceiveMsg
from notify.monitor import conditions
from notify.orders import Outcome, Result
from tests.support.http_sinks import Sink, answering
from tests.support.notify_rows import publish, subscription
from tests.support.notify_turns import run_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
Status, Delivery = BizReceive.Status, ReceiveMsg.Status


@pytest.fixture
def row(settings: Settings) -> BizReceive:
    settings.NOTIFY_DISABLE_AFTER_HOURS = 10
    settings.NOTIFY_FAILING_MINUTES = 15
    return subscription(Biz.objects.create(name="orders"), schedule=[10] * 20)


def queued(row: BizReceive, count: int = 1) -> list[ReceiveMsg]:
    publish(row.biz, count)
    drain(Maker())
    return list(ReceiveMsg.objects.filter(status=Delivery.QUEUED).order_by("id"))


def drain(worker: Any) -> None:
    while worker.turn():
        pass


def result(delivery: ReceiveMsg, status: int, at: float = 0.0) -> Result:
    outcome: Outcome = "delivered" if status == 200 else "failed"
    return Result(
        delivery.pk,
        delivery.biz_receive_id,
        delivery.claimed_by,
        delivery.send_times + 1,
        outcome,
        status,
        at=at,
    )


def mark(*results: Result) -> None:
    jobs.put(orders.MARKER_QUEUE, [list(results)], ttl=None)
    drain(Marker())


def fail(row: BizReceive, count: int = 1, status: int = 503) -> None:
    mark(*[result(delivery, status) for delivery in queued(row, count)])


def failing_for(row: BizReceive, hours: float, failures: int = 30) -> None:
    since = sql.now() - timedelta(hours=hours)
    BizReceive.objects.filter(pk=row.pk).update(failing_since=since, failures=failures)


def state(row: BizReceive) -> tuple[int, bool, int]:
    row.refresh_from_db()
    return row.status, row.failing_since is not None, row.failures


def look() -> None:
    """As the watch of any program does."""
    assert report_conditions() == {}


def open_alerts() -> set[str]:
    look()
    return set(Alert.objects.filter(open_key__isnull=False).values_list("kind", flat=True))


def test_failures_add_up_from_the_first_one_on(row: BizReceive) -> None:
    fail(row, 3)
    assert state(row) == (Status.NORMAL, True, 3)
    first = row.failing_since
    fail(row, 2)
    assert state(row) == (Status.NORMAL, True, 5)
    assert row.failing_since == first
    assert abs((sql.now() - first).total_seconds()) < 60, "the database's clock, in UTC"


def test_a_success_ends_it(row: BizReceive) -> None:
    failing_for(row, 1)
    fail(row, 1, 200)
    assert state(row) == (Status.NORMAL, False, 0)


def test_only_what_fails_is_written(row: BizReceive) -> None:
    """A healthy subscription costs no write to its row, and none of another's is touched."""
    sick = subscription(row.biz, "sick")
    failing_for(sick, 1)
    deliveries = [delivery for delivery in queued(row, 20) if delivery.biz_receive_id == row.pk]
    with CaptureQueriesContext(connection) as captured:
        mark(*[result(delivery, 200) for delivery in deliveries])
    updates = [q["sql"].split(" SET ")[0] for q in captured if q["sql"].startswith("UPDATE")]
    assert updates
    assert not [statement for statement in updates if "biz_receive" in statement]
    assert state(sick)[1:] == (True, 30)


@pytest.mark.parametrize(
    ("statuses", "failures"),
    [([503, 503, 200], 0), ([200, 503, 503], 2), ([503, 200, 503], 1), ([503, 503, 503], 33)],
)
def test_the_last_outcomes_of_a_batch_decide(
    row: BizReceive, statuses: list[int], failures: int
) -> None:
    """In the order in which the attempts ended, whatever their order in the batch."""
    failing_for(row, 6)
    before = BizReceive.objects.get().failing_since
    deliveries = queued(row, 3)
    ended = enumerate(zip(deliveries, statuses, strict=True))
    results = [result(delivery, status, at=1000.0 + n) for n, (delivery, status) in ended]
    mark(*reversed(results))
    assert state(row) == (Status.NORMAL, failures > 0, failures)
    assert (row.failing_since == before) == (failures == 33)


def test_a_repeated_batch_counts_once(row: BizReceive) -> None:
    deliveries = queued(row, 2)
    good = result(deliveries[0], 200, at=1.0)
    bad = result(deliveries[1], 503, at=2.0)
    mark(good)
    mark(bad)
    mark(bad, bad)
    mark(good)
    assert state(row) == (Status.NORMAL, True, 1), "an old success, read again, says nothing"


# -- 410 -----------------------------------------------------------------------------------------
def test_gone_disables_and_the_delivery_waits(row: BizReceive) -> None:
    BizReceive.objects.update(schedule=[], attempts_limit=1)
    (delivery,) = queued(row)
    mark(result(delivery, 410))
    assert state(row) == (Status.DISABLED, True, 1)
    assert "410" in row.disabled_reason
    assert row.why_disabled == row.disabled_reason
    look()
    alert = Alert.objects.get()
    with translation.override("zh-hans"):
        alert.translate()
        assert "消费方应答 410" in row.why_disabled
        assert row.why_disabled in alert.text
    delivery.refresh_from_db()
    assert (delivery.status, delivery.send_times, delivery.http_status) == (
        Delivery.PENDING,
        1,
        410,
    )
    assert delivery.attempts.get().http_status == 410
    entry = AuditLog.objects.get()
    assert (entry.actor, entry.action) == ("platform", "subscription_disabled")
    assert str(row.pk) in entry.target
    look()
    alert = Alert.objects.get()
    assert (alert.kind, bool(alert.open_key)) == ("notify.disabled", True)
    assert "410" in alert.text


def test_after_a_resume_everything_is_sent_and_the_alert_is_over(row: BizReceive) -> None:
    fail(row, 2, 410)
    publish(row.biz, 3)
    drain(Maker())
    held = ReceiveMsg.objects.filter(status=Delivery.HELD)
    assert held.count() == 5, "those of the two attempts too"
    held.update(next_at=sql.now())
    BizReceive.objects.update(
        status=Status.NORMAL, failing_since=None, failures=0, disabled_reason=""
    )
    drain(Maker())
    deliveries = list(ReceiveMsg.objects.filter(status=Delivery.QUEUED))
    assert len(deliveries) == 5
    mark(*[result(delivery, 200) for delivery in deliveries])
    assert state(row) == (Status.NORMAL, False, 0)
    assert open_alerts() == set()


@pytest.mark.parametrize("status", [Status.PAUSED, Status.DISCARDED, Status.DISABLED])
def test_what_an_operator_has_stopped_stays_as_it_is(row: BizReceive, status: int) -> None:
    failing_for(row, 100)
    (delivery,) = queued(row)
    BizReceive.objects.update(status=status)
    mark(result(delivery, 410))
    assert state(row)[0] == status
    assert AuditLog.objects.count() == 0
    delivery.refresh_from_db()
    assert delivery.status == Delivery.PENDING


def test_a_success_after_the_410_in_the_same_batch_wins(row: BizReceive) -> None:
    first, second = queued(row, 2)
    mark(result(first, 410, at=1.0), result(second, 200, at=2.0))
    assert state(row) == (Status.NORMAL, False, 0)


def test_many_markers_disable_it_once(row: BizReceive) -> None:
    rows = [row, *(subscription(row.biz, f"s{n}", schedule=[10]) for n in range(9))]
    deliveries = queued(row, 8)
    batches = [[result(delivery, 410) for delivery in deliveries[start::8]] for start in range(8)]
    jobs.put(orders.MARKER_QUEUE, batches, ttl=None)
    start = threading.Barrier(4)

    def run() -> None:
        marker = Marker()
        start.wait()
        drain(marker)
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in rows:
        assert state(one) == (Status.DISABLED, True, 8)
    assert AuditLog.objects.count() == len(rows)
    look()
    assert set(Alert.objects.values_list("open_key", flat=True)) == {
        f"notify.disabled:{one.pk}" for one in rows
    }


# -- too long ------------------------------------------------------------------------------------
def test_who_fails_for_too_long_is_disabled(row: BizReceive) -> None:
    failing_for(row, 10.01, failures=36)
    fail(row)
    assert state(row) == (Status.DISABLED, True, 37)
    assert "37" in row.disabled_reason
    assert open_alerts() == {"notify.disabled"}
    assert AuditLog.objects.get().detail["failures"] == 37
    fail(row)
    look()
    assert Alert.objects.get(kind="notify.disabled").count == 1


def test_not_yet(row: BizReceive) -> None:
    failing_for(row, 9.9)
    fail(row)
    assert state(row) == (Status.NORMAL, True, 31)
    assert open_alerts() == {"notify.failing"}


def test_one_failure_long_ago_is_not_failing_all_the_time(row: BizReceive) -> None:
    failing_for(row, 1000, failures=1)
    look()
    assert open_alerts() == set()
    fail(row)
    assert state(row) == (Status.NORMAL, True, 2), "not disabled"
    look()
    assert open_alerts() == {"notify.failing"}, "but failing, for all that is known"


def test_never(row: BizReceive, settings: Settings) -> None:
    settings.NOTIFY_DISABLE_AFTER_HOURS = 0
    settings.NOTIFY_FAILING_MINUTES = 0
    failing_for(row, 10_000)
    fail(row)
    assert state(row)[0] == Status.NORMAL
    assert open_alerts() == set()


def test_told_although_it_is_never_disabled(row: BizReceive, settings: Settings) -> None:
    settings.NOTIFY_DISABLE_AFTER_HOURS = 0
    failing_for(row, 1)
    fail(row)
    look()
    assert "disabled" not in Alert.objects.get(kind="notify.failing").text


def test_after_a_quarter_of_an_hour_it_is_reported_and_a_success_ends_it(row: BizReceive) -> None:
    failing_for(row, 14.5 / 60)
    fail(row)
    assert open_alerts() == set()
    failing_for(row, 15.5 / 60, failures=37)
    look()
    look()
    alert = Alert.objects.get()
    assert (alert.kind, alert.count) == ("notify.failing", 1)
    assert "37 in a row" in alert.text
    assert "it will be disabled on" in alert.text
    failing_for(row, 16 / 60, failures=38)
    look()
    alert.refresh_from_db()
    assert ("38 in a row" in alert.text, alert.count) == (True, 1)
    fail(row, 1, 200)
    assert open_alerts() == set()
    assert Alert.objects.get().resolved_at


def test_an_alert_needs_no_marker(row: BizReceive) -> None:
    """Alerts follow from stored rows, so a marker that dies after its commit loses none."""
    BizReceive.objects.update(status=Status.DISABLED, disabled_reason="it was gone")
    look()
    assert "it was gone" in Alert.objects.get(kind="notify.disabled").text
    BizReceive.objects.update(status=Status.NORMAL, disabled_reason="")
    assert open_alerts() == set()


def test_a_marker_makes_no_alert_of_its_own(row: BizReceive) -> None:
    failing_for(row, 11)
    fail(row)
    assert state(row)[0] == Status.DISABLED
    assert not Alert.objects.exists(), "results do not wait for a look at hundreds of subscriptions"


# -- processes of their own ----------------------------------------------------------------------
def test_a_missing_process_of_its_own_makes_an_alert(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    BizReceive.objects.update(own_process=True)
    assert open_alerts() == set(), "it may be a restart"
    monkeypatch.setattr(conditions, "PATIENCE_SECONDS", 0.0)
    look()
    look()
    alert = Alert.objects.get(kind="notify.own_process")
    assert f"run_sender --subscription {row.pk}" in alert.text
    assert alert.subject == f"No sender delivers for the subscription {row}"
    assert (alert.open_key, alert.count) == (f"notify.own_process:{row.pk}", 1)
    monkeypatch.undo()
    work_redis().flushdb()
    assert open_alerts() == {"notify.own_process"}, "the memory was lost, not the alert"
    presence.report_dedicated("its sender", [row.pk])
    assert open_alerts() == set()


def test_a_missing_process_counts_anew_after_it_came_back(row: BizReceive) -> None:
    assert presence.missing_processes.note({row.pk}) == {row.pk: 0.0}
    time.sleep(0.05)
    assert presence.missing_processes.note({row.pk})[row.pk] >= 0.05
    assert presence.missing_processes.note(set()) == {}
    assert presence.missing_processes.note({row.pk}) == {row.pk: 0.0}


@pytest.mark.parametrize("status", [Status.PAUSED, Status.DISCARDED])
def test_a_subscription_that_delivers_nothing_needs_no_process(
    row: BizReceive, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "PATIENCE_SECONDS", 0.0)
    BizReceive.objects.update(own_process=True, status=status)
    assert open_alerts() == set()


# -- subscriptions that cannot be read, or are gone ----------------------------------------------
def test_deliveries_of_an_unreadable_subscription_wait(row: BizReceive) -> None:
    BizReceive.objects.update(schedule=[])
    deliveries = queued(row, 3)
    Receive.objects.update(headers=["not", "a", "mapping"])
    marker = Marker()
    jobs.put(
        orders.MARKER_QUEUE, [[result(delivery, 503) for delivery in deliveries]] * 2, ttl=None
    )
    with CaptureQueriesContext(connection) as captured:
        drain(marker)
    reads = [q["sql"] for q in captured if "previous_secret" in q["sql"]]
    # Checksums are asked before and after the rows are read.
    assert len([sql for sql in reads if "CRC32" not in sql]) == 1, "not for every result"
    for delivery in ReceiveMsg.objects.all():
        assert delivery.status == Delivery.PENDING
        assert 30 < (delivery.next_at - sql.now()).total_seconds() <= 60
    assert state(row)[1:] == (True, 3)


def test_deliveries_of_a_subscription_that_is_gone_are_exhausted(row: BizReceive) -> None:
    (delivery,) = queued(row)
    BizReceive.objects.all().delete()
    mark(result(delivery, 503))
    delivery.refresh_from_db()
    assert delivery.status == Delivery.EXHAUSTED


# -- end to end ----------------------------------------------------------------------------------
def is_disabled(row: BizReceive) -> Callable[[], bool]:
    rows = BizReceive.objects.filter(pk=row.pk, status=Status.DISABLED)
    return lambda: rows.exists() and "notify.disabled" in open_alerts()


@pytest.mark.parametrize("answer", ["410 Gone", "500 Broken"])
def test_auto_disable_fires_and_the_operator_is_told_by_webhook(
    row: BizReceive, settings: Settings, answer: str
) -> None:
    """Real requests to a consumer that is gone, and to one that fails for longer than allowed."""
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    settings.NOTIFY_DISABLE_AFTER_HOURS = 0.5 / 3600
    refused = b"HTTP/1.1 " + answer.encode() + b"\r\nContent-Length: 0\r\n\r\n"
    with Sink(answering(refused)) as broken, Sink(answering()) as pager:
        Receive.objects.filter(pk=row.receive_id).update(url=broken.url())
        # Long in all: what waits behind its breaker must not be exhausted meanwhile.
        BizReceive.objects.filter(pk=row.pk).update(schedule=[0.1] * 40 + [600])
        watch = subscription(Biz.objects.create(name="platform"), "pager", schedule=[1] * 9)
        Receive.objects.filter(pk=watch.receive_id).update(url=pager.url())
        publish(row.biz, 3)
        run_until(is_disabled(row))
        run_until(lambda: any(b"notify.disabled" in seen.body for seen in pager.requests))
        asked = len(broken.requests)
        later = ReceiveMsg.objects.filter(msg_id__in=publish(row.biz, 3))
        run_until(lambda: later.filter(status=Delivery.HELD).count() == 3)
        waiting = ReceiveMsg.objects.filter(biz_receive=row)
        assert {delivery.status for delivery in waiting} <= {
            Delivery.PENDING,
            Delivery.QUEUED,
            Delivery.HELD,
        }
        assert len(broken.requests) == asked, "nothing more is sent to it"
    row.refresh_from_db()
    assert ("410" in row.disabled_reason) == (answer == "410 Gone")
    assert AuditLog.objects.get().actor == "platform"


def test_however_long_its_attempts_take_a_delivery_has_all_of_them(row: BizReceive) -> None:
    """Timeouts, a Retry-After and a backlog take longer than the waits of the schedule."""
    BizReceive.objects.update(schedule=[5], attempts_limit=4)
    (delivery,) = queued(row)
    ReceiveMsg.objects.update(created_at=sql.now() - timedelta(days=1))
    failing_for(row, hours=9)
    seen = []
    for _attempt in range(4):
        ReceiveMsg.objects.update(status=Delivery.QUEUED, claimed_by="c" * 32)
        delivery.refresh_from_db()
        mark(result(delivery, 503))
        delivery.refresh_from_db()
        seen.append(delivery.status)
    assert seen == [Delivery.PENDING] * 3 + [Delivery.EXHAUSTED]


def test_what_decides_is_said_by_the_alert_and_by_doctor(row: BizReceive) -> None:
    """Since when, which answer, what waits, when it is tried next."""
    (delivery, *_others) = queued(row, 3)
    BizReceive.objects.filter(pk=row.pk).update(
        failing_since=sql.now() - timedelta(minutes=16), failures=41
    )
    ReceiveMsg.objects.filter(pk=delivery.pk).update(
        status=Delivery.PENDING, http_status=503, next_at=sql.now() + timedelta(minutes=5)
    )
    ReceiveMsg.objects.update(created_at=sql.now() - timedelta(minutes=11))
    presence.report(
        {row.pk: presence.LaneState("me", breaker=State.OPEN, retry_in=90, open_for=16)}
    )
    look()
    text = Alert.objects.get().text
    expected = (
        "Has failed for 16 min: HTTP 503, 41 in a row. "
        "Deliveries that wait: 3, the oldest for 11 min. Next probe at "
    )
    assert text.startswith(expected), text
    assert "it will be disabled on" in text
    (line,) = [f.what for f in conditions.examine() if f.level == "bad"]
    assert expected in line


def test_the_answer_of_a_failure_is_remembered(row: BizReceive) -> None:
    failure_store.add("notify", [Loss(row.pk, "timeout", 1)], sql.now())
    failing_for(row, 1, failures=3)
    look()
    alert = Alert.objects.get()
    assert "Has failed for 1 h: timeout, 3 in a row." in alert.text
    with translation.override("zh-hans"):
        alert.translate()
    assert "已失败 1 小时：超时，连续 3 次。" in alert.text
