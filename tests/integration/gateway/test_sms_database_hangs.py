"""The database hangs: Submits go out and Reports are answered, whatever else came in.

A dead database refuses at once. One that hangs keeps whoever asks it waiting for half a minute.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from gateway import sgip
from gateway.inbox import arrivals
from gateway.lifecycle import keys, store
from gateway.models import SmsGateway
from gateway.receiver import bind_authentication, wrong_logins
from gateway.receiver.receiver import SmsReceiver
from gateway.sender.sender import SmsSender
from gateway.simulator.smg import Behaviour, ReportTime
from msgplatform.core.data import ids
from msgplatform.core.servers.private_server import free_port
from msgplatform.models import Alert
from tests.servers import Servers
from tests.support.hanging_servers import hanging
from tests.support.sms_net_support import (
    Raw,
    Smg,
    accept,
    gateway,
    lasting_reports,
    mt,
    turning,
    until,
)

__all__ = ["lasting_reports"]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("sms_redis", "work_redis", "lasting_reports"),
]
USUAL = 20.0  # seconds, on a busy machine; who asks the database waits for half a minute
SP = "10655123"


@pytest.fixture(autouse=True)
def no_ids() -> Iterator[None]:
    """A process that has made no id yet."""
    ids.release()
    yield
    ids.release()


@contextlib.contextmanager
def database_hangs(servers: Servers) -> Iterator[None]:
    """On SQLite, which is a file and cannot hang, it goes on."""
    connections.close_all()
    with hanging(servers.mariadb()) if connection.vendor == "mysql" else contextlib.nullcontext():
        yield


def report_on(one: Smg, over: Smg) -> Callable[[int], bool]:
    """The gateway `over` reports on the first text that `one` took. Gives a function that is true
    when that got this Result."""
    name, user, *_ = one.lines()[0]
    node, ts, seqno = map(int, name.split(":"))
    outbox = over.simulator.outbox

    def send() -> None:
        outbox.put(sgip.Report((1, 2, 3), (node, ts, seqno), 0, user, 0, 0))
        outbox.pump()

    over.call(send)
    return lambda result: result in outbox.answers


class Sender:
    """A sender with two gateways, of which each has taken a text."""

    def __init__(self, worker: SmsSender, one: Smg, other: Smg, rows: list[SmsGateway]) -> None:
        self.arrivals, self.one, self.other, self.rows = worker.arrivals, one, other, rows

    def gap(self, number: int) -> float:
        """Seconds until a text reaches its gateway."""
        before, began = len(self.one.lines()), time.monotonic()
        accept(mt(number, [self.rows[0].pk]))
        until(lambda: len(self.one.lines()) > before)
        return time.monotonic() - began


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[Sender]:
    behaviour = Behaviour(on_submit_link=True, reports=ReportTime.NEVER)
    worker = SmsSender()
    with (
        Smg(tmp_path / "one.log", behaviour) as one,
        Smg(tmp_path / "other.log", behaviour) as other,
        turning(worker),
    ):
        rows = [gateway(one.port, "one"), gateway(other.port, "other")]
        accept(*(mt(number, [row.pk]) for number, row in enumerate(rows)))
        until(lambda: one.lines() and other.lines())
        yield Sender(worker, one, other, rows)


def test_a_text_after_an_mo(sender: Sender, servers: Servers, sms_redis: Any) -> None:
    with database_hangs(servers):
        sender.one.call(lambda: sender.one.simulator.deliver("8613800000009", SP, "TD"))
        until(lambda: sender.arrivals.open_count or sender.arrivals.done_count)
        gaps = [sender.gap(number) for number in range(2, 5)]
    assert max(gaps) < USUAL
    until(lambda: sms_redis.llen(keys.LIST_MO) == 1)


def test_a_text_after_a_foreign_report(sender: Sender, servers: Servers) -> None:
    with database_hangs(servers):
        is_answered = report_on(sender.one, over=sender.other)
        until(lambda: is_answered(0), seconds=USUAL)
        gaps = [sender.gap(number) for number in range(2, 5)]
    assert max(gaps) < USUAL
    until(lambda: Alert.objects.filter(kind="sms.report").exists())


def test_a_text_after_a_report_that_is_set_aside(
    sender: Sender, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(*_: object) -> None:
        raise ValueError("spoiled")

    with database_hangs(servers):
        with monkeypatch.context() as patch:
            patch.setattr(store, "report", spoiled)
            patch.setattr(arrivals, "ASIDE_SECONDS", 0.1)
            is_answered = report_on(sender.one, over=sender.other)
            until(lambda: is_answered(sgip.Result.BUSY), seconds=USUAL)
        gaps = [sender.gap(number) for number in range(2, 5)]
    assert max(gaps) < USUAL
    until(lambda: Alert.objects.filter(kind="sms.mo").exists())


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmsReceiver]:
    monkeypatch.setattr(bind_authentication, "_LOG_SECONDS", 0.1)
    monkeypatch.setattr(wrong_logins, "FIRST_DELAY", 0.0)
    gateway(free_port(), pk=7)
    receiver = SmsReceiver("127.0.0.1", 0)
    with turning(receiver):
        until(lambda: receiver.port)
        yield receiver


@contextlib.contextmanager
def bound(receiver: SmsReceiver) -> Iterator[Raw]:
    with Raw(receiver.port) as raw:
        assert raw.bind() == 0
        yield raw


def report_gap(raw: Raw) -> float:
    """Seconds until a Report is answered."""
    began = time.monotonic()
    report = sgip.Report(raw.sequence(), (3010099999, 1121131500, 1), 0, "8613800000001", 0, 0)
    assert raw.ask(report) == 0
    return time.monotonic() - began


def several_gaps(raw: Raw) -> list[float]:
    """For longer than the pauses of the receiver's timers."""
    gaps = []
    for _ in range(8):
        gaps.append(report_gap(raw))
        time.sleep(0.4)
    return gaps


def test_a_report_after_an_mo(receiver: SmsReceiver, servers: Servers, sms_redis: Any) -> None:
    with bound(receiver) as raw, bound(receiver) as other:
        assert report_gap(raw) < 30
        with database_hangs(servers):
            other.send(sgip.Deliver((3010000002, 1, 1), "8613800000009", SP, 0, 0, 0, b"TD"))
            gaps = several_gaps(raw)
        assert max(gaps) < USUAL
        assert other.receive().result == 0
    assert sms_redis.llen(keys.LIST_MO) == 1


def test_a_report_after_a_stranger_and_a_guesser(receiver: SmsReceiver, servers: Servers) -> None:
    with bound(receiver) as raw:
        assert report_gap(raw) < 30
        with database_hangs(servers):
            with Raw(receiver.port, source="127.0.0.2") as stranger:
                assert stranger.receive() is None
            for _ in range(wrong_logins.ALERT_AT):
                with Raw(receiver.port) as guesser:
                    assert guesser.bind(password="wrong") == 1
            gaps = several_gaps(raw)
        assert max(gaps) < USUAL
    until(lambda: Alert.objects.filter(kind__in=["sms.stranger", "sms.login"]).count() == 2)
