"""The rehearsal of a restore: with OUTBOUND off programs run, and nothing leaves the platform.

The same programs with OUTBOUND on reach each listener, so that the silence before is theirs.
"""

import shutil
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import WEB, Cluster

PROGRAMS = (
    "run_maker", "run_sender", "run_marker", "run_sms_sender", "run_sync_poller",
    "run_sync_handler",
)  # fmt: skip
# Longer than the pauses of a program that looks for work.
QUIET_SECONDS = 5.0
SET_UP = """
from crmsync.intake.intake import NewLead, add_many
from crmsync.models import Crm, Policy, Source
from gateway.intake import accept
from gateway.intake.request import Request
from gateway.models import SmsAccount, SmsGateway
from msgplatform.models import Biz
from notify.intake import intake
from notify.models import BizReceive, Receive
ports = {ports!r}
biz = Biz.objects.create(name="shop")
consumer = Receive.objects.create(name="warehouse", url="http://127.0.0.1:%d/" % ports["consumer"])
BizReceive.objects.create(biz=biz, receive=consumer)
intake.publish_many([intake.Event(biz.pk, "order.paid", b"1") for _ in range(20)])
SmsGateway.objects.create(
    name="unicom", host="127.0.0.1", port=ports["gateway"], login_name="us", login_password="x",
    smg_login_name="smg", smg_login_password="y", corp_id="99999")
SmsAccount.objects.create(biz=biz, name="m", sp_number="10655", corp_id="99999", is_default=True)
sms_intake = accept.intake()
sms_intake.commit(sms_intake.prepare([Request(biz=biz.pk, to=["13800000000"], text="hello")]))
mysql = "mysql://u:p@127.0.0.1:%d/crm"
crms = [
    Crm.objects.create(name="contacts", adapter="http",
        settings={{"url": "http://127.0.0.1:%d/" % ports["http_crm"]}}),
    Crm.objects.create(name="customers", adapter="sql",
        settings={{"table": "customer"}}, credentials={{"url": mysql % ports["sql_crm"]}})]
for crm in crms:
    Policy.objects.create(source=Source.hive(), crm=crm, interval_seconds=1, mapping="name = name")
source = Source.objects.create(
    name="shop", table="lead", time_column="UpdateTime", version_column="version",
    value_columns=["name"], database=mysql % ports["source"])
Policy.objects.create(source=source, crm=crms[0], interval_seconds=1, mapping="name = name")
add_many([NewLead(biz.pk, "a", name="Ann")])
"""
STATE = """
import json
from crmsync.models import Item, Record
from django.test import Client
from gateway.lifecycle import keys
from gateway.connections import sms_redis
from msgplatform.core.daemons import heartbeats
from notify.models import ReceiveMsg
rows = ReceiveMsg.objects.values_list("status", "send_times")
print(json.dumps({
    "running": sorted({beat.role for beat in heartbeats.alive()}),
    "deliveries": sorted(map(list, set(rows))), "count": len(rows),
    "texts": sms_redis().llen(keys.pending(1, 1)) + sms_redis().llen(keys.pending(1, 0)),
    "tries": Item.objects.exclude(attempt=0).count()}))
"""
DOCTOR = """
from msgplatform.operation import doctor
print([f.what for f in doctor.examine() if "OUTBOUND is off" in f.what])
"""
OVERVIEW = """
from django.contrib.auth import get_user_model
from django.test import Client
user = get_user_model().objects.create_superuser("admin", password="x")
client = Client(); client.force_login(user)
from django.conf import settings
settings.ALLOWED_HOSTS = ["*"]
page = client.get("/console/").content.decode()
print(page.count("Outbound is off"))
"""


class Listener:
    """Takes connections, answers nothing, and counts them."""

    def __init__(self, name: str, seen: Counter[str]) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self._name, self._seen = name, seen
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self._seen[self._name] += 1
            connection.close()


@pytest.fixture
def seen() -> Counter[str]:
    return Counter()


@pytest.fixture
def ports(seen: Counter[str]) -> Iterator[dict[str, int]]:
    names = ("consumer", "gateway", "http_crm", "sql_crm", "source")
    listeners = {name: Listener(name, seen) for name in names}
    yield {name: listener.port for name, listener in listeners.items()}
    for listener in listeners.values():
        listener.socket.close()


@pytest.fixture
def cluster(sms_redis: object) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="mp-flow-"))
    cluster = Cluster(folder, f"sqlite:///{folder / 'platform.db'}", programs=(WEB,))
    cluster.environment["OUTBOUND"] = "off"
    with cluster as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


def test_nothing_leaves_the_platform(
    cluster: Cluster, ports: dict[str, int], seen: Counter[str]
) -> None:
    cluster.console.run(SET_UP.format(ports=ports))
    for name in PROGRAMS:
        cluster.start(name)
    roles = {name.removeprefix("run_") for name in PROGRAMS}

    def is_split() -> bool:
        state = cluster.script(STATE)
        return roles <= set(state["running"]) and state["count"] == 20

    cluster.wait_until(is_split, "every program to run")
    time.sleep(QUIET_SECONDS)
    assert not seen
    assert not any(map(cluster.died, PROGRAMS))
    state = cluster.script(STATE)
    assert (state["deliveries"], state["texts"], state["tries"]) == ([[0, 0]], 1, 0)
    assert "OUTBOUND is off" in cluster.console.run(DOCTOR)
    assert int(cluster.console.run(OVERVIEW)) == 2, "in the head and on the overview"
    # On again: what waited goes out.
    for name in PROGRAMS:
        cluster.stop(name)
    cluster.environment["OUTBOUND"] = "on"
    for name in PROGRAMS:
        cluster.start(name)
    cluster.wait_until(lambda: seen.keys() == ports.keys(), "each listener to be reached")
