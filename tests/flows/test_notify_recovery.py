"""A consumer was away and is back: one request, and what waits for it is delivered at once. A
consumer that is slow: everybody sees that deliveries wait, and for how long."""

import json
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from demo.sink_process import SinkProcess
from msgplatform.core.servers.private_server import free_port
from tests.cluster import PATIENT_LEASE_SECONDS, Cluster

WAITING = 6_000
# A probe by itself comes later than this.
PAUSE_SECONDS = 30.0
SOON_SECONDS = 25.0
# libcurl looks once a second which of its idle connections were closed.
CLOSED_SECONDS = 1.5

CAST = """
import json
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
biz = Biz.objects.create(name={name!r})
receive = Receive.objects.create(name={name!r}, url={url!r})
row = BizReceive.objects.create(biz=biz, receive=receive, schedule={schedule!r})
_, token = keys.create(None, {name!r}, ["manage:subscriptions"])
print(json.dumps([biz.pk, row.pk, token]))
"""
PUBLISH = """
from notify.intake import intake
events = [intake.Event({biz}, "stock.moved", b"{{}}") for _ in range({count})]
for start in range(0, len(events), 500):
    intake.publish_many(events[start:start + 500])
print("null")
"""
STATE = """
import json
from notify import presence
state = presence.read().get({row})
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
        with urllib.request.urlopen(request, timeout=120) as answer:
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
        cluster.wait_until(lambda: len(sink.ids()) == WAITING, "everything", 600)
        assert min(sink.times()) - called < SOON_SECONDS, "long before its own probe"
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
        cluster.wait_until(lambda: len(sink.ids()) == 2, "both", 300)


def test_a_paused_subscription_says_that_it_is_paused(shared_cluster: Cluster) -> None:
    cluster = shared_cluster
    _biz, row, token = cluster.script(
        CAST.format(name="paused", url="http://127.0.0.1:9/", schedule=[60])
    )
    cluster.script(PAUSE.format(row=row))
    answer = deliver_now(cluster, "paused", token)
    assert answer["status"] == 409
    assert "Resume it" in answer["detail"]


SLOW = """
import json
from datetime import timedelta
from msgplatform.core.data import sql
from notify.admin import health, subscription_cells
from notify.models import BizReceive
from notify.monitor import conditions, metrics
row = BizReceive.objects.select_related("biz", "receive").get(pk={row})
row.health = state = health.read([row])[row.pk]
waits = [wait.since for wait in metrics.waits() if wait.which == "deliveries"]
from django.test import override_settings
with override_settings(ALERT_BACKLOG_MINUTES=0.2):
    lines = [finding.what for finding in conditions.examine()]
print(json.dumps(dict(
    due=state.due_seconds or 0, state=str(subscription_cells.state(row)),
    waits=max([(sql.now() - since).total_seconds() for since in waits], default=0), doctor=lines,
    metric=[s.value for s in metrics.samples()
            if s.metric.name == "notify_subscription_oldest_seconds"],
)))
"""
# Longer than a lease: what is in a sender's hand is given back and queued again meanwhile.
LONG_SECONDS = PATIENT_LEASE_SECONDS + 8


def test_a_slow_consumer_is_seen(cluster: Cluster, tmp_path: Path) -> None:
    with SinkProcess(tmp_path / "slow.seen", ["--delay", "2"]) as sink:
        biz, row, _ = cluster.script(CAST.format(name="slow", url=sink.url, schedule=[60]))
        cluster.console.run(
            f"from notify.models import BizReceive\n"
            f"BizReceive.objects.filter(pk={row}).update(in_flight_limit=4)"
        )
        began = time.monotonic()
        cluster.script(PUBLISH.format(biz=biz, count=796))  # for more than six minutes
        looks: list[Any] = []

        def is_seen() -> bool:
            if time.monotonic() < began + LONG_SECONDS:
                return False  # nothing is so old, and a look asks everything
            looks.append(shown := cluster.script(SLOW.format(row=row)))
            ages = [shown["due"], shown["waits"], *shown["metric"]]
            return min(ages) >= LONG_SECONDS and "busy" in shown["state"]

        # A lease that runs out before its results are marked starts an age anew: one look at which
        # all of them are right is what is asked for.
        cluster.wait_until(is_seen, "the age of what waits", LONG_SECONDS + 240)
        shown = looks[-1]
        assert max(shown["due"], shown["waits"]) <= time.monotonic() - began + 5
        # The report may be of the moment between two answers and the next requests.
        sentence = r"[0-4] of 4 slots, busy since .*, [01]?\d\d a minute, about \d+ (min|s) left"
        assert re.search(sentence, shown["state"])
        assert any("slow → slow has waited" in line for line in shown["doctor"])
