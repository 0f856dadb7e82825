"""A consumer was away and is back: one request, and what waits for it is delivered at once."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from msgplatform.core.servers.private_server import free_port
from notify.demo.sink_process import SinkProcess
from tests.cluster import Cluster

WAITING = 6_000
# A probe by itself comes later than this.
PAUSE_SECONDS = 15.0
SOON_SECONDS = 5.0
# libcurl looks once a second which of its idle connections were closed.
CLOSED_SECONDS = 1.5

CAST = """
import json
from msgplatform.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
biz = Biz.objects.create(name={name!r})
receive = Receive.objects.create(name={name!r}, url={url!r})
row = BizReceive.objects.create(biz=biz, receive=receive, schedule={schedule!r})
_, token = keys.create(None, {name!r}, ["manage:subscriptions"])
print(json.dumps([biz.pk, row.pk, token]))
"""
PUBLISH = """
from notify import intake
events = [intake.Event({biz}, "stock.moved", b"{{}}") for _ in range({count})]
for start in range(0, len(events), 500):
    intake.publish_many(events[start:start + 500])
print("null")
"""
STATE = """
import json
from notify import lane_status
state = lane_status.read().get({row})
print(json.dumps([state.retry_in, state.is_open] if state else [0, False]))
"""
PAUSE = """
from notify.models import BizReceive
print(BizReceive.objects.filter(pk={row}).update(status=BizReceive.Status.PAUSED))
"""
LEFT = """
import json
from notify.models import ReceiveMsg
rows = ReceiveMsg.objects.filter(biz_receive_id={row}).exclude(status=ReceiveMsg.Status.DELIVERED)
print(json.dumps([[r.status, r.send_times] for r in rows[:10_000]]))
"""


def deliver_now(cluster: Cluster, name: str, token: str) -> Any:
    request = urllib.request.Request(
        f"{cluster.base_url}/api/v1/subscriptions/{name}/{name}/deliver",
        data=b"",
        method="POST",
        headers={"Authorization": f"Bearer {token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def test_what_waits_behind_an_open_breaker_is_delivered_at_one_call(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    cluster, port = shared_cluster, free_port()
    url = f"http://127.0.0.1:{port}/hook"
    biz, row, token = cluster.script(CAST.format(name="back", url=url, schedule=[60, 60, 600]))
    with SinkProcess(tmp_path / "away.seen", ["--status", "503"], port):
        cluster.script(PUBLISH.format(biz=biz, count=WAITING))
        cluster.wait_until(
            lambda: cluster.script(STATE.format(row=row))[0] > PAUSE_SECONDS, "a long pause"
        )
    time.sleep(CLOSED_SECONDS)
    with SinkProcess(tmp_path / "back.seen", [], port) as sink:
        called = time.time()
        assert deliver_now(cluster, "back", token)["probe"] is True
        cluster.wait_until(lambda: len(sink.ids()) == WAITING, "everything", 60)
        times = sorted(sink.times())
        assert times[0] - called < SOON_SECONDS, "the probe"
        assert times[int(WAITING * 0.9)] - called < PAUSE_SECONDS, "long before its own probe"
        cluster.wait_until(lambda: not cluster.script(LEFT.format(row=row)), "the marks")
        assert len(sink.lines()) == WAITING


def test_deliveries_do_not_wait_for_the_time_of_their_next_attempt(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    cluster, port = shared_cluster, free_port()
    url = f"http://127.0.0.1:{port}/hook"
    biz, row, token = cluster.script(CAST.format(name="later", url=url, schedule=[600, 600]))
    with SinkProcess(tmp_path / "failing.seen", ["--status", "503"], port):
        cluster.script(PUBLISH.format(biz=biz, count=2))
        failed = [[0, 1], [0, 1]]
        cluster.wait_until(
            lambda: cluster.script(LEFT.format(row=row)) == failed, "two failed attempts"
        )
    with SinkProcess(tmp_path / "repaired.seen", [], port) as sink:
        answer = deliver_now(cluster, "later", token)
        assert answer == {"probe": False, "made_due": 2, "more": False}
        cluster.wait_until(lambda: len(sink.ids()) == 2, "both", 30)


def test_a_paused_subscription_says_that_it_is_paused(shared_cluster: Cluster) -> None:
    cluster = shared_cluster
    _biz, row, token = cluster.script(
        CAST.format(name="paused", url="http://127.0.0.1:9/", schedule=[60])
    )
    cluster.script(PAUSE.format(row=row))
    answer = deliver_now(cluster, "paused", token)
    assert answer["status"] == 409
    assert "Resume it" in answer["detail"]
