"""Marker: monotonic, set-wise, repeatable; a bad result steps aside."""

import random
import threading
from contextlib import suppress
from datetime import timedelta

import pytest
import redis
import time_machine
from django.db import OperationalError, connection

from msgplatform.core.data import ids, sql
from msgplatform.core.queues import jobs
from msgplatform.models import Alert, Biz, MinuteCounter
from msgplatform.models.counters import WHOLE
from notify import orders, presence
from notify.actions import actions
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import Attempt, BizReceive, ReceiveMsg
from notify.orders import Result
from notify.presence import LaneState
from tests.support.notify_rows import publish, resend, subscription

ACTION = actions.ACTIONS["resend"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
Status = ReceiveMsg.Status


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"), schedule=[10, 1000])


def queued(row: BizReceive, count: int = 1) -> list[ReceiveMsg]:
    publish(row.biz, count)
    maker = Maker()
    while maker.turn():
        pass
    return list(ReceiveMsg.objects.filter(status=Status.QUEUED).order_by("id"))


def result(delivery: ReceiveMsg, outcome: str = "delivered", **fields: object) -> Result:
    given: dict = {"attempt": delivery.send_times + 1, "http_status": 200, **fields}
    given |= {"claim": delivery.claimed_by, "outcome": outcome}
    return Result(delivery.pk, delivery.biz_receive_id, **given)


def mark(*results: Result) -> None:
    jobs.put(orders.MARKER_QUEUE, [list(results)], ttl=None)
    marker = Marker()
    while marker.turn():
        pass
    assert jobs.depths([orders.MARKER_QUEUE])[orders.MARKER_QUEUE] == 0


def counted(name: str) -> int:
    return sum(MinuteCounter.objects.filter(WHOLE, name=name).values_list("value", flat=True))


def test_delivered(row: BizReceive) -> None:
    deliveries = queued(row, 3)
    mark(*[result(delivery) for delivery in deliveries])
    for delivery in ReceiveMsg.objects.all():
        assert (delivery.status, delivery.send_times) == (Status.DELIVERED, 1)
        assert (delivery.http_status, delivery.claimed_by) == (200, "")
    assert counted("delivered") == 3


def test_the_same_batch_twice_counts_once(row: BizReceive) -> None:
    (delivery,) = queued(row)
    mark(result(delivery), result(delivery))
    mark(result(delivery))
    assert counted("delivered") == 1
    assert ReceiveMsg.objects.get().send_times == 1


def test_every_attempt_is_written_down_once(row: BizReceive) -> None:
    (delivery,) = queued(row)
    first = result(
        delivery, "failed", http_status=503, at=1_700_000_000.5, seconds=0.25,
        response_headers="retry-after: 1", response_body="忙 busy\ufffd",
    )  # fmt: skip
    mark(first, first)
    mark(first)
    (attempt,) = delivery.attempts.all()
    assert ids.bucket_of(attempt.pk) == ids.bucket_of(delivery.pk)
    assert (attempt.number, attempt.http_status, attempt.seconds) == (1, 503, 0.25)
    assert attempt.at.timestamp() == 1_700_000_000.5
    assert attempt.response_body == "忙 busy\ufffd"
    delivery.refresh_from_db()
    delivery.claimed_by = "another claim"
    mark(result(delivery, attempt=2))
    assert [(a.number, a.http_status) for a in delivery.attempts.order_by("id")] == [
        (1, 503),
        (2, 200),
    ]


def test_an_attempt_after_the_end_of_its_claim_is_logged_without_its_answer(
    row: BizReceive,
) -> None:
    """A sender stood still. Another one delivered, and an erasure replaced all answers since."""
    (delivery,) = queued(row)
    answer = {"response_headers": "x-name: Ann", "response_body": "no Ann", "detail": "Ann"}
    late = result(delivery, "failed", http_status=503, **answer)
    delivery.claimed_by = "another claim"
    delivery.save()
    mark(result(delivery))
    mark(late)
    assert list(delivery.attempts.order_by("id").values_list("http_status", *answer)) == [
        (200, "", "", ""), (503, "", "", ""),
    ]  # fmt: skip


def test_what_was_not_sent_is_no_attempt(row: BizReceive) -> None:
    (delivery,) = queued(row)
    mark(result(delivery, "unsent"))
    assert delivery.attempts.count() == 0


def test_failed_waits_for_the_schedule(row: BizReceive) -> None:
    (delivery,) = queued(row)
    before = sql.now()
    mark(result(delivery, "failed", http_status=503, error=""))
    after = sql.now()
    delivery.refresh_from_db()
    assert (delivery.status, delivery.send_times, delivery.http_status) == (Status.PENDING, 1, 503)
    shortest, longest = timedelta(seconds=10 * 0.8), timedelta(seconds=10 * 1.2)
    assert before + shortest <= delivery.next_at <= after + longest


def test_failures_do_not_come_back_together(row: BizReceive) -> None:
    deliveries = queued(row, 50)
    mark(*[result(delivery, "failed", http_status=500) for delivery in deliveries])
    times = set(ReceiveMsg.objects.values_list("next_at", flat=True))
    assert len(times) > 40


@pytest.mark.parametrize("fields", [{"http_status": 429}, {"http_status": 0, "error": "timeout"}])
def test_an_overloaded_consumer_gets_a_minute(row: BizReceive, fields: dict) -> None:
    (delivery,) = queued(row)
    before = sql.now()
    mark(result(delivery, "failed", **fields))
    delivery.refresh_from_db()
    assert delivery.next_at - before >= timedelta(minutes=1)


def test_retry_after_is_heard(row: BizReceive) -> None:
    (delivery,) = queued(row)
    before = sql.now()
    mark(result(delivery, "failed", http_status=503, retry_after=500.0))
    delivery.refresh_from_db()
    assert delivery.next_at - before >= timedelta(seconds=500)


def test_the_schedule_ends_in_exhausted(row: BizReceive) -> None:
    (delivery,) = queued(row)
    mark(result(delivery, "failed", attempt=3, http_status=404))
    delivery.refresh_from_db()
    assert (delivery.status, delivery.send_times, delivery.http_status) == (
        Status.EXHAUSTED,
        3,
        404,
    )
    assert counted("exhausted") == 1


def test_a_success_applies_whatever_the_state(row: BizReceive) -> None:
    """It was reclaimed meanwhile: the first claim's success still cancels the retry."""
    (delivery,) = queued(row)
    ReceiveMsg.objects.update(claimed_by="somebody else", send_times=5, status=Status.EXHAUSTED)
    mark(result(delivery))
    delivery.refresh_from_db()
    assert (delivery.status, delivery.send_times) == (Status.DELIVERED, 5)


@pytest.mark.parametrize("outcome", ["failed", "unsent"])
def test_a_failure_of_an_older_claim_changes_nothing(row: BizReceive, outcome: str) -> None:
    (delivery,) = queued(row)
    ReceiveMsg.objects.update(claimed_by="somebody else")
    mark(result(delivery, outcome, http_status=500))
    delivery.refresh_from_db()
    assert (delivery.status, delivery.send_times) == (Status.QUEUED, 0)
    assert counted("failed") == 0


def test_a_failure_after_the_success_changes_nothing(row: BizReceive) -> None:
    (delivery,) = queued(row)
    mark(result(delivery))
    mark(result(delivery, "failed", http_status=500))
    assert ReceiveMsg.objects.get().status == Status.DELIVERED


def test_unsent_goes_back_without_an_attempt(row: BizReceive) -> None:
    (delivery,) = queued(row)
    mark(result(delivery, "unsent"))
    delivery.refresh_from_db()
    assert (delivery.status, delivery.send_times, delivery.claimed_by) == (Status.PENDING, 0, "")


def test_a_bad_result_does_not_stop_its_neighbours(row: BizReceive) -> None:
    deliveries = queued(row, 20)
    results = [result(delivery) for delivery in deliveries]
    results[7] = result(deliveries[7], attempt=2**64 - 1)  # no column holds that
    mark(*results)
    states = [delivery.status for delivery in ReceiveMsg.objects.order_by("id")]
    assert states.count(Status.DELIVERED) == 19
    assert states[7] == Status.POISON
    assert Alert.objects.get(kind="notify.poison").open_key


def test_an_unreadable_batch_is_dropped(row: BizReceive) -> None:
    jobs.put(orders.MARKER_QUEUE, [{"not": "results"}], ttl=None)
    marker = Marker()
    assert marker.turn() is True
    assert marker.turn() is False


def test_resend_starts_a_new_generation(row: BizReceive) -> None:
    deliveries = queued(row, 5)
    mark(*[result(delivery, "failed", attempt=3, http_status=500) for delivery in deliveries])
    assert ACTION.count({}).count == 5
    begun = ACTION.step({}, "", 3)
    first = ACTION.step({}, begun.cursor, 3)
    assert (first.done, bool(first.cursor)) == (3, True)
    assert ACTION.step({}, first.cursor, 3).done == 2
    assert ACTION.step({}, begun.cursor, 3).done == 0, "a repeated step finds nothing"
    for delivery in ReceiveMsg.objects.all():
        assert (delivery.status, delivery.send_times, delivery.generation) == (Status.PENDING, 0, 1)


def test_a_late_failure_does_not_touch_the_new_generation(row: BizReceive) -> None:
    (delivery,) = queued(row)
    mark(result(delivery, "failed", attempt=3, http_status=500))
    assert ACTION.step({}, ACTION.step({}, "", 10).cursor, 10).done == 1
    mark(result(delivery, "failed", attempt=3, http_status=500))
    assert ReceiveMsg.objects.get().status == Status.PENDING


def test_a_repeated_old_success_does_not_hide_that_of_the_resend(row: BizReceive) -> None:
    (delivery,) = queued(row)
    old = result(delivery)
    mark(old)
    assert resend([delivery.pk]) == 1
    while Maker().turn():
        pass
    delivery.refresh_from_db()
    mark(old)
    assert ReceiveMsg.objects.get().status == Status.QUEUED
    mark(old, result(delivery))
    assert ReceiveMsg.objects.get().status == Status.DELIVERED


def test_a_subscription_newer_than_the_cache_has_its_schedule(row: BizReceive) -> None:
    marker = Marker()
    marker.subscriptions.refresh()
    newer = subscription(row.biz, "newer", schedule=[60])
    deliveries = queued(row)
    (delivery,) = [delivery for delivery in deliveries if delivery.biz_receive_id == newer.pk]
    jobs.put(orders.MARKER_QUEUE, [[result(delivery, "failed", http_status=503)]], ttl=None)
    marker.turn()
    delivery.refresh_from_db()
    assert delivery.status == Status.PENDING


def test_an_outage_keeps_the_results_in_the_queue(row: BizReceive, work_redis: redis.Redis) -> None:
    """Only what was in hand is held; the rest waits where the maker sees how old it is."""
    deliveries = queued(row, 40)
    for delivery in deliveries:
        jobs.put(orders.MARKER_QUEUE, [[result(delivery)]], ttl=None)
    marker = Marker()
    settings_dict = connection.settings_dict
    name = settings_dict["NAME"]
    connection.close()
    settings_dict["NAME"] = "/no/such/place"
    for _ in range(5):
        with pytest.raises(OperationalError):
            marker.turn()
        connection.close()
    settings_dict["NAME"] = name
    assert work_redis.llen("rq:queue:notify-marker") >= 30
    while marker.turn():
        pass
    assert ReceiveMsg.objects.filter(status=Status.DELIVERED).count() == 40


def test_a_result_that_nothing_can_read_does_not_stop_the_marker(row: BizReceive) -> None:
    """Whatever it raises: the neighbours in its batch and the batches behind it are marked."""
    deliveries = queued(row, 3)
    jobs.put(
        orders.MARKER_QUEUE,
        [[result(deliveries[0]), result(deliveries[1], at=1e18)], [result(deliveries[2])]],
        ttl=None,
    )
    marker = Marker()
    while marker.turn():
        pass
    states = [delivery.status for delivery in ReceiveMsg.objects.order_by("id")]
    assert states == [Status.DELIVERED] * 3, "only its line in the log is missing"
    assert [delivery.attempts.count() for delivery in deliveries] == [1, 0, 1]
    assert "could not be logged" in Alert.objects.get(kind="notify.poison").text


def test_not_even_an_id(row: BizReceive) -> None:
    """No row is meant by it; its neighbours and the next batches are marked and logged."""
    deliveries = queued(row, 2)
    nonsense = Result(2**70, row.pk, "no claim", 1, "failed", 500)
    mark(result(deliveries[0]), nonsense, result(deliveries[1]))
    assert {delivery.status for delivery in ReceiveMsg.objects.all()} == {Status.DELIVERED}
    assert Attempt.objects.count() == 2


def test_what_is_delivered_is_never_poison(row: BizReceive) -> None:
    (delivery,) = queued(row)
    mark(result(delivery))
    delivery.refresh_from_db()
    mark(result(delivery, "failed", attempt=2**64 - 1))
    delivery.refresh_from_db()
    assert (delivery.status, delivery.claimed_by) == (Status.DELIVERED, "")


def test_bad_results_of_one_subscription_are_one_alert(row: BizReceive) -> None:
    deliveries = queued(row, 5)
    mark(*[result(delivery, attempt=2**64 - 1) for delivery in deliveries])
    assert Alert.objects.get().count == 5
    assert ReceiveMsg.objects.filter(status=Status.POISON).count() == 5
    assert counted("poison") == 5


@pytest.mark.usefixtures("ids_of_its_own")
def test_minutes_are_those_of_the_database(row: BizReceive) -> None:
    deliveries = queued(row, 2)
    with time_machine.travel(sql.now() + timedelta(days=400)):
        Marker().mark([result(deliveries[0]), result(deliveries[1], "failed", http_status=500)])
    for counter in MinuteCounter.objects.all():
        assert abs(counter.minute - sql.now()) < timedelta(minutes=3)
    row.refresh_from_db()
    assert row.failing_since
    assert abs(row.failing_since - sql.now()) < timedelta(minutes=3)


def test_ids_are_of_now_again(row: BizReceive) -> None:
    """After a test of another clock: `ids_of_its_own` takes it back."""
    (delivery, *_) = queued(row, 1)
    assert abs(ids.datetime_of(delivery.pk) - sql.now()) < timedelta(minutes=3)


def test_many_markers_at_once_lose_nothing(row: BizReceive) -> None:
    """They share subscriptions, counters and some deliveries, in another order each."""
    rows = [row, *(subscription(row.biz, f"s{n}", schedule=[1000]) for n in range(4))]
    deliveries = queued(row, 60)
    assert len(deliveries) == 300
    results = [result(delivery, "failed", http_status=503, at=1.0) for delivery in deliveries]
    chance = random.Random(7)
    batches = [chance.sample(results, 30) for _ in range(20)]
    batches += [results[start::10] for start in range(10)]
    jobs.put(orders.MARKER_QUEUE, batches, ttl=None)

    def run() -> None:
        marker = Marker()
        while marker.turn():
            pass
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ReceiveMsg.objects.filter(status=Status.PENDING, send_times=1).count() == 300
    assert counted("failed") == 300
    for one in rows:
        one.refresh_from_db()
        assert one.failures == 60
    assert Alert.objects.count() == 0


def test_a_work_redis_that_is_full_of_results_is_drained(
    row: BizReceive, work_redis: redis.Redis
) -> None:
    """A hosted Redis has a limit; what frees it must not need it."""
    large = Result(1, row.pk, "claim", 1, "unsent", response_body="x" * 4000)
    presence.report({n: LaneState(sender="s", waiting=1) for n in range(200)})
    work_redis.config_set("maxmemory", work_redis.info("memory")["used_memory"] + 8_000_000)
    try:
        with pytest.raises(redis.exceptions.RedisError):  # noqa: PT012 - it fails at some time
            while True:
                jobs.put(orders.MARKER_QUEUE, [[large] * 20], None)
        with suppress(redis.exceptions.RedisError):
            for number in range(100_000):
                work_redis.set(f"filled:{number}", "")
        waiting = jobs.depths([orders.MARKER_QUEUE])[orders.MARKER_QUEUE]
        assert waiting > 50
        assert Marker().turn()
        assert jobs.depths([orders.MARKER_QUEUE])[orders.MARKER_QUEUE] < waiting
    finally:
        work_redis.config_set("maxmemory", 0)
