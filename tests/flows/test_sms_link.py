"""Senders and a receiver as real processes, with gateways of bad manners, none of them killed.

What counts is the gateways' own logs: no (part, user) got Result 0 under two sequences.
`test_sms_crash.py` has the kills.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import LazySettings

from gateway.lifecycle import store
from gateway.lifecycle.messages import Mt
from tests.flows.sms_cluster import SmsCluster

MESSAGES = 200
MANNERS = ("dropping", "garbage", "throttling", "early-reports", "submit-link", "duplicating")
SILENT = "silent"
LONG = "长" * 150  # three parts
ROWS = """
from gateway.models import SmsGateway
for pk, (name, port) in enumerate({ports!r}.items(), 1):
    SmsGateway.objects.create(pk=pk, name=name, host="127.0.0.1", port=port, login_name="sp",
        login_password="secret", smg_login_name=name, smg_login_password="secret",
        corp_id="99999", connections=2)
# Who never answers is given up soon.
SmsGateway.objects.filter(name="silent").update(response_timeout=1.0, resends=1)
print(1)
"""


@pytest.fixture
def cluster(settings: LazySettings) -> Iterator[SmsCluster]:
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-sms-"))
    manners = {name: [f"--behaviour={name}"] for name in (*MANNERS, SILENT)}
    with SmsCluster(folder, f"sqlite:///{folder / 'platform.db'}", manners) as running:
        settings.SMS_REDIS_URL = running.sms_server.url
        yield running
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.usefixtures("sms_redis")
def test_gateways_without_manners(cluster: SmsCluster) -> None:
    """Links cut, bytes that are none, throttling, Reports early, twice, and on the wrong link."""
    cluster.script(ROWS.format(ports=cluster.ports))
    for name in (*cluster.ports, "sender-a", "receiver"):
        cluster.start(name)
    made = {name: messages(MESSAGES, pk) for pk, name in enumerate(cluster.ports, 1)}
    silent = made[SILENT] = made[SILENT][:20]
    for some in made.values():
        store.accept([store.Call(some, biz=1)], 86_400)
    for name in MANNERS:
        cluster.wait_until(
            lambda name=name: finals(made[name]) == {"delivered": MESSAGES}, f"{name} to end"
        )
        taken = cluster.books[name].accepted()
        assert taken.keys() == parts(made[name]), name
        assert all(len(sequences) == 1 for sequences in taken.values()), f"{name}: sent twice"
    cluster.wait_until(lambda: finals(silent) == {"unknown": 20}, "the silent one's end")
    taken = cluster.books[SILENT].accepted()
    assert all(len(sequences) == 1 for sequences in taken.values())


def messages(count: int, gateway: int) -> list[Mt]:
    """A tenth long, a third with a text of their own, the others with one of five texts."""
    return [
        Mt(
            id=str(2**60 + gateway * 10**7 + n), biz=1, account=1, gateways=[gateway],
            user_number=f"86{13000000000 + gateway * 10**7 + n}", sp_number="10655",
            text=LONG if n % 10 == 0 else f"own {n}" if n % 3 == 0 else f"same {n % 5}",
            corp_id="99999",
        )
        for n in range(count)
    ]  # fmt: skip


def parts(made: list[Mt]) -> set[tuple[str, str]]:
    """What a gateway must have taken, once each."""
    return {
        (message.user_number, f"{part}/{3 if message.text == LONG else 1}")
        for message in made
        for part in range(1, 4 if message.text == LONG else 2)
    }


def finals(made: list[Mt]) -> Counter[str]:
    return Counter(found.final for found in store.read([message.id for message in made]))
