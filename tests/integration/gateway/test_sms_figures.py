"""What metrics and console say of waiting messages is what their keys say, whoever holds them."""

import time
from typing import Any

import msgspec
import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from gateway.lifecycle import keys, store
from gateway.models import SmsGateway
from gateway.monitor import metrics as gauges
from msgplatform.core import flows
from msgplatform.core.servers.private_server import free_port
from msgplatform.monitor import metrics
from tests.support.sms_net_support import accept, gateway, mt

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("sms_redis", "work_redis"),
]
MANY = 2_500


@pytest.fixture
def row() -> SmsGateway:
    return gateway(free_port())


def truth(client: Any, *ids: str) -> tuple[int, int, float | None]:
    """Of these messages: pending and due, not due yet, and since when the first has been due (unix
    seconds)."""
    waits, later = [], 0
    scheduled = {
        message.decode(): at
        for key in client.scan_iter("{sms}:zset:schedule-*")
        for message, at in client.zrange(key, 0, -1, withscores=True)
    }
    for id in ids:
        state, accepted, msg = client.hmget(keys.mt(int(id)), "state", "accepted_at", "msg")
        if state != b"pending":
            continue
        due = scheduled.get(
            id, max(float(accepted), msgspec.json.decode(msg).get("schedule_at", 0))
        )
        if due > time.time():
            later += 1
        else:
            waits.append(due)
    return len(waits), later, min(waits, default=None)


def older(client: Any, message: str, seconds: float) -> None:
    client.hincrbyfloat(keys.mt(int(message)), "accepted_at", -seconds)


def compare(client: Any, row: SmsGateway, console: Client, *ids: str) -> None:
    waiting, later, oldest = truth(client, *ids)
    before = time.time()
    families = text_string_to_metric_families(metrics.exposition().decode())
    after = time.time()
    found = {s.name.removeprefix("msgplatform_"): s.value for f in families for s in f.samples}
    assert found["sms_pending"] + found["sms_claimed"] == waiting
    assert found["sms_scheduled"] == later
    seconds = found["sms_oldest_pending_seconds"]
    if oldest is None:
        assert seconds == 0
    else:
        assert before - oldest - 1 <= seconds <= after - oldest + 1
    status = flows.get("sms").health.status()  # type: ignore[union-attr]
    assert status.backlog == waiting
    assert f"<dt>waiting</dt><dd>{waiting:,}</dd>" in console.get("/console/").content.decode()
    (shown,) = console.get("/admin/gateway/smsgateway/").context["cl"].result_list
    assert shown.queue.pending + shown.queue.claimed == waiting
    waits = {wait.which: wait.since for wait in gauges.waits()}
    if oldest is None:
        assert waits == {}
    else:
        assert waits[str(row.pk)].timestamp() == pytest.approx(oldest, abs=1)


def test_what_senders_hold(row: SmsGateway, sms_redis: Any, admin_client: Client) -> None:
    ids = accept(*(mt(number, [row.pk]) for number in range(MANY)))
    older(sms_redis, ids[0], 600)
    compare(sms_redis, row, admin_client, *ids)
    store.claim(row.pk, "one", MANY - 100, 30)
    compare(sms_redis, row, admin_client, *ids)
    store.claim(row.pk, "other", MANY, 30)
    assert sms_redis.zcard(keys.claimed(row.pk)) == MANY
    compare(sms_redis, row, admin_client, *ids)


def test_what_a_dead_sender_held(row: SmsGateway, sms_redis: Any, admin_client: Client) -> None:
    ids = accept(*(mt(number, [row.pk], priority=number % 3) for number in range(40)))
    older(sms_redis, ids[7], 300)
    store.claim(row.pk, "dead", 15, 1e-6)
    compare(sms_redis, row, admin_client, *ids)


def test_a_schedule_is_no_waiting_until_it_is_due(
    row: SmsGateway, sms_redis: Any, admin_client: Client
) -> None:
    """A message that was accepted a day before its time has not waited for a day."""
    now = time.time()
    later = accept(mt(1, [row.pk], schedule_at=now + 3600))
    due = accept(mt(2, [row.pk], schedule_at=now - 60), mt(3, [row.pk], schedule_at=now - 30))
    for message in due:
        older(sms_redis, message, 86_400)
    compare(sms_redis, row, admin_client, *later, *due)
    store.claim(row.pk, "sender", 1, 30)
    compare(sms_redis, row, admin_client, *later, *due)


def test_what_is_due_while_no_sender_runs(
    row: SmsGateway, sms_redis: Any, admin_client: Client
) -> None:
    """Only a claim moves it from the schedule to the list."""
    (message,) = accept(mt(1, [row.pk], schedule_at=time.time() + 3600))
    sms_redis.zadd(keys.scheduled(row.pk), {message: time.time() - 120})
    compare(sms_redis, row, admin_client, message)


def test_the_oldest_is_found_behind_many_that_were_scheduled(
    row: SmsGateway, sms_redis: Any, admin_client: Client
) -> None:
    """They were accepted before it, for a later time."""
    now = time.time()
    ids = accept(*(mt(number, [row.pk], schedule_at=now - 5) for number in range(250)))
    for message in ids:
        older(sms_redis, message, 7200)
    (oldest,) = accept(mt(900, [row.pk]))
    older(sms_redis, oldest, 600)
    store.claim(row.pk, "sender", 500, 30)
    compare(sms_redis, row, admin_client, *ids, oldest)
    assert truth(sms_redis, oldest)[2] == truth(sms_redis, *ids, oldest)[2]


def test_nothing_waits(row: SmsGateway, sms_redis: Any, admin_client: Client) -> None:
    compare(sms_redis, row, admin_client)
