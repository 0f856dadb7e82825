"""SMS links as real processes: senders, a receiver and gateways, killed and ill-mannered.

What counts is the gateways' own logs: no (part, user) got Result 0 under two sequences.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from django.conf import LazySettings

from gateway.lifecycle import keys, mo_store, store
from gateway.lifecycle.messages import Mt
from msgplatform.core.connections import build
from msgplatform.core.embedded import RedisServer
from msgplatform.core.private_server import free_port
from tests.cluster import Cluster

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
MESSAGES = 20_000 if FULL else 2_000
KILLS_A_ROLE = 5 if FULL else 2
FAILPOINTS = {
    "sender-a": ("sms_sender_before_submit", "sms_sender_after_submit:2",
                 "sms_sender_before_respond"),
    "receiver": ("sms_receiver_after_report",),
}  # fmt: skip
MANNERS = ("dropping", "garbage", "throttling", "early-reports", "submit-link", "duplicating")
LONG = "长" * 150  # three parts
ROWS = """
from gateway.models import SmsGateway
for pk, (name, port) in enumerate({gateways!r}, 1):
    SmsGateway.objects.create(pk=pk, name=name, host="127.0.0.1", port=port, login_name="sp",
        login_password="secret", smg_login_name="smg", smg_login_password="secret",
        corp_id="99999", response_timeout=1.0, resends={resends}, connections=2)
print(1)
"""


class SmsCluster(Cluster):
    """`smgs`: a simulated gateway each, by the name of its personality."""

    def __init__(self, folder: Path, smgs: tuple[str, ...], senders: tuple[str, ...]) -> None:
        super().__init__(folder, f"sqlite:///{folder / 'platform.db'}", ())
        self.sms_server = RedisServer(folder / "sms", folder / "sms.sock", appendonly=True)
        self.smgs = {name: free_port() for name in smgs}
        self.senders = senders
        self.receiver_port = free_port()
        self.environment |= {
            "SMS_REDIS_URL": self.sms_server.url,
            "SMS_RECEIVER_PORT": str(self.receiver_port),
        }

    def __enter__(self) -> SmsCluster:
        self.sms_server.start()
        self.sms = build(self.sms_server.url)
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.sms_server.kill()

    def run(self, resends: int = 3) -> None:
        """All processes, with a row for each gateway: the first has id 1."""
        self.script(ROWS.format(gateways=list(self.smgs.items()), resends=resends))
        for name in (*self.smgs, *self.senders, "receiver"):
            self.start(name)

    def _ready(self) -> bool:
        return True

    def _command(self, name: str) -> list[str]:
        manage = [sys.executable, "manage.py"]
        if name == "receiver":
            return [*manage, "run_sms_receiver"]
        if name in self.senders:
            return [*manage, "run_sms_sender"]
        return [
            *manage, "run_smg_simulator", "--personality", name, "--port", str(self.smgs[name]),
            "--sp-port", str(self.receiver_port), "--log", str(self.log_of(name)), "--report-again",
        ]  # fmt: skip

    def log_of(self, name: str) -> Path:
        return self.folder / f"{name}.accepted"

    def accepted(self, name: str) -> Counter[tuple[str, str]]:
        """(user, part) → under how many sequences it got Result 0."""
        log = self.log_of(name)
        lines = log.read_text("ascii").splitlines() if log.exists() else []
        taken = {tuple(line.split("\t")) for line in lines if line.endswith("\t0")}
        return Counter((user, part) for _sequence, user, part, _result in taken)


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-sms-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def messages(count: int, gateway: int, first: int = 0) -> list[Mt]:
    """A tenth long, a third with a text of their own, the others with one of five texts."""
    return [
        Mt(
            id=str(2**60 + gateway * 10**7 + n), biz=1, account=1, gateways=[gateway],
            user_number=f"86{13000000000 + gateway * 10**7 + n}", sp_number="10655",
            text=LONG if n % 10 == 0 else f"own {n}" if n % 3 == 0 else f"same {n % 5}",
            corp_id="99999",
        )
        for n in range(first, first + count)
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


def assert_nothing_open(client: Any) -> None:
    kept = [
        name.decode().removeprefix(keys.PREFIX)
        for kind in ("list:pending-*", "zset:claimed-*", "zset:submit-due-*", "zset:schedule-*")
        for name in client.scan_iter(match=keys.PREFIX + kind)
    ]
    assert not kept
    assert not client.exists(keys.SUBMITED, keys.RESPONSE_SUCC, keys.REPORT_DUE)


@pytest.mark.usefixtures("sms_redis")
def test_every_process_killed_and_each_part_accepted_once(
    folder: Path, settings: LazySettings
) -> None:
    with SmsCluster(folder, ("happy",), ("sender-a", "sender-b")) as cluster:
        settings.SMS_REDIS_URL = cluster.sms_server.url
        made = messages(MESSAGES, 1)
        cluster.run()
        fire = Fire(cluster)
        feeding = threading.Thread(target=feed, args=(fire, made), daemon=True)
        feeding.start()
        roles = ["happy", "sender-a", "sender-b", "receiver"] * KILLS_A_ROLE
        random.Random(20261121).shuffle(roles)
        for role in [*roles, "redis"]:
            fire.kill(role)
        for role, names in FAILPOINTS.items():
            for name in names:
                fire.die_at(role, name)
        feeding.join()
        cluster.wait_until(lambda: finals(made) == {"delivered": MESSAGES}, "all to end", 240)
        taken = cluster.accepted("happy")
        print("\n".join(fire.log))
        assert set(taken) == parts(made)
        assert set(taken.values()) == {1}, "accepted under two sequences"
        assert_nothing_open(cluster.sms)


class Fire:
    """Kills with work in flight, and says how much."""

    def __init__(self, cluster: SmsCluster) -> None:
        self.cluster = cluster
        self.log: list[str] = []
        self.fed = 0
        self.wanted = threading.Semaphore(0)

    def kill(self, role: str) -> None:
        self._await_progress()
        waiting = self.cluster.sms.scard(keys.SUBMITED)
        if role == "redis":
            self.cluster.sms_server.kill()
            self.cluster.sms_server.start()
        else:
            self.cluster.restart(role)
        self.log.append(f"kill {role}: {waiting} Submits without a response")

    def die_at(self, role: str, name: str) -> None:
        """Until the process died at this place, by itself; no other sender does its work."""
        for stopped in {role, "sender-b"}:
            self.cluster.kill(stopped)
        self.cluster.start(role, failpoint=name)
        self.wanted.release()
        self.cluster.wait_until(lambda: self.cluster.died(role), f"{role} to die at {name}")
        self.log.append(f"{role} died at {name}")
        for stopped in {role, "sender-b"}:
            self.cluster.start(stopped)

    def _await_progress(self) -> None:
        """Between two kills gateways accept something: each happens with work in flight."""
        before = len(self.cluster.accepted("happy"))
        self.wanted.release()
        self.cluster.wait_until(
            lambda: len(self.cluster.accepted("happy")) > before, "something to be accepted", 120
        )


def feed(fire: Fire, made: list[Mt]) -> None:
    """A share for each kill that is to come, so that none happens in silence."""
    events = 4 * KILLS_A_ROLE + 1 + sum(map(len, FAILPOINTS.values()))
    share = -(-len(made) // events)
    for first in range(0, len(made), share):
        fire.wanted.acquire()
        some = made[first : first + share]
        for at in range(0, len(some), 20):
            _accept(some[at : at + 20])


def _accept(some: list[Mt]) -> None:
    from msgplatform.core.connections import RedisError

    while True:
        try:
            store.accept([store.Call(some, biz=1)], 86_400)
        except RedisError:
            continue  # the same again, as a caller does with the same key
        return


@pytest.mark.usefixtures("sms_redis")
def test_gateways_without_manners(folder: Path, settings: LazySettings) -> None:
    """Links cut, bytes that are none, throttling, Reports early, twice, and on the wrong link."""
    with SmsCluster(folder, (*MANNERS, "silent"), ("sender-a",)) as cluster:
        settings.SMS_REDIS_URL = cluster.sms_server.url
        cluster.run(resends=1)
        made = {name: messages(200, pk) for pk, name in enumerate(cluster.smgs, 1)}
        silent = made["silent"] = made["silent"][:20]
        for some in made.values():
            store.accept([store.Call(some, biz=1)], 86_400)
        for name in MANNERS:
            cluster.wait_until(
                lambda name=name: finals(made[name]) == {"delivered": 200}, f"{name} to end", 120
            )
            taken = cluster.accepted(name)
            assert set(taken) == parts(made[name]), name
            assert set(taken.values()) == {1}, f"{name}: accepted under two sequences"
        cluster.wait_until(lambda: finals(silent) == {"unknown": 20}, "the silent one's end", 120)
        assert set(cluster.accepted("silent").values()) == {1}


@pytest.mark.usefixtures("sms_redis")
def test_a_receiver_that_dies_before_its_answer_takes_an_mo_once(
    folder: Path, settings: LazySettings
) -> None:
    with SmsCluster(folder, ("happy",), ()) as cluster:
        settings.SMS_REDIS_URL = cluster.sms_server.url
        cluster.script(ROWS.format(gateways=list(cluster.smgs.items()), resends=3))
        cluster.start("receiver", failpoint="sms_receiver_after_mo")
        mo = "8613012345678:10655:" + "一" * 150
        command = [*cluster._command("happy"), "--mo", mo, "--mo", "8613012345678:10655:short"]
        cluster._command = lambda name: command if name == "happy" else _receiver()  # type: ignore[method-assign]
        cluster.start("happy")
        cluster.wait_until(lambda: cluster.died("receiver"), "the receiver to die")
        cluster.start("receiver")
        cluster.wait_until(lambda: len(_texts(cluster.sms)) == 2, "both MOs")
        assert sorted(_texts(cluster.sms)) == sorted(["一" * 150, "short"])
        assert int(cluster.sms.get(keys.MO_COUNT)) == 2


def _receiver() -> list[str]:
    return [sys.executable, "manage.py", "run_sms_receiver"]


def _texts(client: Any) -> list[str]:
    names = [name.decode() for name in client.lrange(keys.LIST_MO, 0, -1)]
    return [mo.text for mo in mo_store.read(names)]
