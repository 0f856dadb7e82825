"""Receiver: logins, Reports, MOs in one part and in many, and what gateways repeat or break."""

import contextlib
import itertools
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway import presence, sgip
from gateway.inbox import arrivals
from gateway.lifecycle import keys, mo_store, store
from gateway.lifecycle.messages import Member, Mo, NewSubmit
from gateway.receiver import wrong_logins
from gateway.receiver.bind_authentication import MAX_CONNECTIONS
from gateway.receiver.receiver import SmsReceiver
from gateway.signals import FORWARDER
from msgplatform.core.daemons.timer import Every
from msgplatform.core.daemons.wake_signal import WakeSignal
from msgplatform.models import Alert
from tests.servers import Servers
from tests.support.listening import Hearing, listen
from tests.support.sms_net_support import (
    WAIT,
    Raw,
    accept,
    ended,
    gateway,
    mt,
    running,
    turning,
    until,
)
from tests.waiting import freeze

__all__ = ["listen"]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("sms_redis", "work_redis"),
]
USER, SP = "8613012345678", "10655123"


@pytest.fixture
def receiver() -> Iterator[SmsReceiver]:
    gateway(1, pk=7)
    receiver = SmsReceiver("127.0.0.1", 0)
    with turning(receiver):
        until(lambda: receiver.port)
        yield receiver


@pytest.fixture
def raw(receiver: SmsReceiver) -> Iterator[Raw]:
    """A connection that is bound."""
    with Raw(receiver.port) as raw:
        assert raw.bind() == 0
        yield raw


def submitted(number: int, seqno: int) -> str:
    """A message whose Submit was written: node 3010099999, time 1121131500."""
    message = mt(number, [7])
    (name,) = accept(message)
    store.claim(7, "me", 10, 30)
    members = [Member(message.id, message.user_number)]
    new = NewSubmit(seqno, 1121131500, 3010099999, 1, 1, b"frame", members)
    assert store.submit(7, "me", [new], 60.0)
    return name


def report(raw: Raw, number: int, seqno: int, state: int = 0, error: int = 0) -> sgip.Report:
    user = f"86138{number:08d}"
    submit = (3010099999, 1121131500, seqno)
    return sgip.Report(raw.sequence(), submit, 0, user, state, error)


def deliver(sequence: sgip.SequenceNumber, content: bytes, coding: int = 8, udhi: int = 0) -> Any:
    return sgip.Deliver(sequence, USER, SP, 0, udhi, coding, content)


def long_mo(raw: Raw, text: str, reference: int = 5) -> list[sgip.Deliver]:
    parts = sgip.split(text, reference, sgip.SplitOptions(chinese=sgip.Coding.UCS2))
    assert parts.tp_udhi
    return [deliver(raw.sequence(), content, udhi=1) for content in parts.contents]


def mos(client: Any) -> list[Mo]:
    names = [name.decode() for name in client.lrange(keys.LIST_MO, 0, -1)]
    return mo_store.read(names)


class TestLogin:
    def test_name_password_and_type(
        self, receiver: SmsReceiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wrong_logins, "FIRST_DELAY", 0.0)
        for name, password, kind, result in (
            ("smg", "wrong", 2, 1),
            ("smg", "", 2, 1),
            ("", "secret", 2, 1),
            ("smg2", "secret", 2, 1),
            ("smg", "secret", 1, 4),
            ("smg", "secret", 11, 4),
        ):
            with Raw(receiver.port) as raw:
                assert raw.bind(name, password, kind) == result
                assert raw.receive() is None, "it is closed after a refused login"

    def test_a_second_login_is_refused_and_the_first_stays(self, raw: Raw) -> None:
        assert raw.bind() == 2
        assert raw.ask(report(raw, 1, 1)) == 0

    def test_commands_without_a_login(self, receiver: SmsReceiver, sms_redis: Any) -> None:
        with Raw(receiver.port) as raw:
            assert raw.ask(report(raw, 1, 1)) == 1
            assert raw.receive() is None
        assert not sms_redis.exists(keys.LIST_UNMATCHED)

    def test_connections_of_a_gateway_are_limited(self, receiver: SmsReceiver) -> None:
        with contextlib.ExitStack() as stack:
            results = [
                stack.enter_context(Raw(receiver.port)).bind() for _ in range(MAX_CONNECTIONS + 1)
            ]
        assert results == [0] * MAX_CONNECTIONS + [3]

    def test_a_port_of_another_platform_is_not_shared(self, sms_redis: Any) -> None:
        """Its own receivers share it, also beside one that hangs and has reported nothing since."""
        with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other_platform:
            receiver = SmsReceiver("127.0.0.1", other_platform.getsockname()[1])
            with running(receiver):
                receiver.turn()
                assert not receiver.port
                other_platform.close()
                receiver.turn()
                assert receiver.port
        gateway(1, pk=7)
        first = SmsReceiver("127.0.0.1", 0)
        with turning(first):
            until(lambda: presence.is_own_port(first.port))
            second = SmsReceiver("127.0.0.1", first.port)
            with turning(second):
                until(lambda: second.port == first.port)

    def test_a_full_redis_keeps_the_port(self, sms_redis: Any) -> None:
        gateway(1, pk=7)
        receiver = SmsReceiver("127.0.0.1", 0)
        with running(receiver):
            receiver.turn()
            sms_redis.delete(keys.listener(socket.gethostname(), receiver.port))
            sms_redis.config_set("maxmemory", 1)
            try:
                until(lambda: receiver.turn() and presence.is_own_port(receiver.port))
            finally:
                sms_redis.config_set("maxmemory", 0)

    def test_an_address_of_another_machine_is_told_with_its_variable(self) -> None:
        receiver = SmsReceiver("192.0.2.1", 8801)  # of no machine, RFC 5737
        with (
            running(receiver),
            pytest.raises(OSError, match=r"SMS_RECEIVER_HOST=192\.0\.2\.1, .* cannot be used: "),
        ):
            receiver.turn()

    def test_the_link_is_shown(self, raw: Raw) -> None:
        assert raw.ask(report(raw, 1, 1)) == 0
        until(lambda: [li.kind for li in presence.live()] == ["report"])


class TestReports:
    def test_final_waiting_repeated_and_unknown(self, raw: Raw, sms_redis: Any) -> None:
        name = submitted(1, 10)
        assert raw.ask(report(raw, 1, 10, state=1)) == 0
        assert not ended([name]), "state 1 is never final"
        assert raw.ask(report(raw, 1, 10)) == 0
        assert raw.ask(report(raw, 1, 10, state=2, error=25)) == 0
        assert ended([name])[name].final == "delivered", "the first final one counts"
        assert raw.ask(report(raw, 1, 99)) == 0
        assert sms_redis.llen(keys.LIST_UNMATCHED) == 1

    def test_a_failed_one_without_86(self, raw: Raw) -> None:
        name = submitted(2, 11)
        sent = report(raw, 2, 11, state=2, error=29)
        short = sgip.Report(sent.sequence, sent.submit_sequence, 0, sent.user_number[2:], 2, 29)
        assert raw.ask(short) == 0
        assert (ended([name])[name].final, ended([name])[name].error) == ("failed", "29")

    def test_many_in_one_write_are_all_answered(self, raw: Raw) -> None:
        names = [submitted(n, n) for n in range(1, 301)]
        raw.send(*(report(raw, n, n) for n in range(1, 301)))
        assert {raw.receive().result for _ in range(300)} == {0}
        assert len(ended(names)) == 300

    def test_none_is_answered_before_redis_has_it(self, raw: Raw, servers: Servers) -> None:
        """Redis stands still: no response. It goes on: the response, and the Report is there."""
        name = submitted(3, 12)
        assert servers.sms.pid
        freeze(servers.sms.pid)
        try:
            raw.send(report(raw, 3, 12))
            raw.socket.settimeout(1.0)
            with pytest.raises(TimeoutError):
                raw.receive()
        finally:
            os.kill(servers.sms.pid, signal.SIGCONT)
        raw.socket.settimeout(WAIT)
        assert raw.receive().result == 0
        assert ended([name])[name].final == "delivered"

    def test_draining_waits_for_redis(self, sms_redis: Any, settings: Any) -> None:
        """Without a whole core, and what came is answered when Redis is back."""
        gateway(1, pk=7)
        receiver, url = SmsReceiver("127.0.0.1", 0), settings.SMS_REDIS_URL
        with running(receiver):
            until(lambda: receiver.port, receiver)
            with Raw(receiver.port) as raw:
                assert raw.bind() == 0
                raw.send(report(raw, 1, 1))
                until(lambda: receiver.arrivals.open_count)
                settings.SMS_REDIS_URL = "unix:///nowhere/sms.sock"
                used = time.thread_time()
                receiver.drain(time.monotonic() + 2)
                assert time.thread_time() - used < 1
                assert receiver.arrivals.open_count == 1
                settings.SMS_REDIS_URL = url
                receiver.drain(time.monotonic() + WAIT)
                assert raw.receive().result == 0


class TestMos:
    @pytest.mark.parametrize(
        ("coding", "content", "text"),
        [
            (0, b"hello", "hello"),
            (8, "你好".encode("utf-16-be"), "你好"),
            (15, "你好".encode("gbk"), "你好"),
            (4, b"\x01\xff", "01ff"),
            (0, b"user\x00example.com\x00\x00", "user@example.com"),  # @ of GSM 03.38
            (8, "你\0好".encode("utf-16-be"), "你\ufffd好"),
        ],
    )
    def test_one_is_taken_in_once(
        self, raw: Raw, sms_redis: Any, coding: int, content: bytes, text: str
    ) -> None:
        request = deliver(raw.sequence(), content, coding)
        assert [raw.ask(request), raw.ask(request)] == [0, 0]
        (mo,) = mos(sms_redis)
        assert (mo.user_number, mo.sp_number, mo.text, mo.content) == (USER, SP, text, content)
        assert (mo.parts, mo.missing, mo.kind) == (1, 0, "mo")

    def test_a_repeat_that_another_receiver_gets(self, raw: Raw, sms_redis: Any) -> None:
        request = deliver(raw.sequence(), b"once", 0)
        assert raw.ask(request) == 0
        other = SmsReceiver("127.0.0.1", 0)
        with turning(other):
            until(lambda: other.port)
            with Raw(other.port) as again:
                assert again.bind() == 0
                assert again.ask(request) == 0
                assert len(mos(sms_redis)) == 1
                # Under a used sequence: the receiver that has seen the first one refuses it.
                other_mo = deliver(request.sequence, b"other", 0)
                assert [again.ask(other_mo), raw.ask(other_mo)] == [9, 9]
        third = SmsReceiver("127.0.0.1", 0)  # which has seen neither
        with turning(third):
            until(lambda: third.port)
            with Raw(third.port) as later:
                assert later.bind() == 0
                assert later.ask(other_mo) == 0
        assert [mo.text for mo in mos(sms_redis)] == ["once", "other"]

    def test_two_gateways_with_one_node_number(self, receiver: SmsReceiver, sms_redis: Any) -> None:
        """Some write 0 or the SP's: the sequence of one is no repeat of the other's. Their
        operator may have given both one login, too."""
        gateway(1, "other", pk=8, networks=["127.0.0.8"])
        until(lambda: 8 in receiver.authentication.networks.gateways("127.0.0.8"))
        with Raw(receiver.port) as one, Raw(receiver.port, "127.0.0.8") as other:
            assert [one.bind(), other.bind()] == [0, 0]
            sequence = one.sequence()
            assert one.ask(deliver(sequence, b"one", 0)) == 0
            assert other.ask(deliver(sequence, b"other", 0)) == 0
        assert [mo.text for mo in mos(sms_redis)] == ["one", "other"]

    def test_parts_in_every_order_over_two_receivers(self, raw: Raw, sms_redis: Any) -> None:
        text = "天地玄黄" * 50
        other = SmsReceiver("127.0.0.1", 0)
        with turning(other):
            until(lambda: other.port)
            with Raw(other.port) as second:
                assert second.bind() == 0
                for number, order in enumerate(itertools.permutations(range(3))):
                    parts = long_mo(raw, text, reference=number)
                    for turn, place in enumerate(order):
                        assert (raw, second)[turn % 2].ask(parts[place]) == 0
        taken = mos(sms_redis)
        assert [mo.text for mo in taken] == [text] * 6
        assert {(mo.parts, mo.missing) for mo in taken} == {(3, 0)}
        assert not list(sms_redis.scan_iter(f"{keys.PREFIX}mo-part:*"))
        assert not sms_redis.exists(keys.MO_PARTS)

    def test_repeated_parts_before_and_after_the_end(self, raw: Raw, sms_redis: Any) -> None:
        parts = long_mo(raw, "永" * 150)
        other = SmsReceiver("127.0.0.1", 0)  # which has not seen their sequences
        with turning(other):
            until(lambda: other.port)
            with Raw(other.port) as again:
                assert again.bind() == 0
                for part in parts:
                    assert raw.ask(part) == 0
                    assert again.ask(part) == 0
                for part in parts:
                    assert again.ask(part) == 0
        assert [mo.text for mo in mos(sms_redis)] == ["永" * 150]
        assert not list(sms_redis.scan_iter(f"{keys.PREFIX}mo-part:*")), "a repeat began anew"

    def test_a_reference_used_again_cuts_the_older_short(self, raw: Raw, sms_redis: Any) -> None:
        older, newer = long_mo(raw, "旧" * 150), long_mo(raw, "新" * 150)
        assert raw.ask(older[0]) == 0
        for part in newer:
            assert raw.ask(part) == 0
        first, second = mos(sms_redis)
        assert (first.text, first.parts, first.missing) == ("旧" * 67, 3, 2)
        assert (second.text, second.missing) == ("新" * 150, 0)

    def test_parts_whose_others_never_come_are_taken_in(
        self, raw: Raw, receiver: SmsReceiver, sms_redis: Any
    ) -> None:
        parts = long_mo(raw, "残" * 150)
        assert [raw.ask(parts[0]), raw.ask(parts[2])] == [0, 0]
        (name,) = sms_redis.zrange(keys.MO_PARTS, 0, -1)
        assert 7100 < sms_redis.zscore(keys.MO_PARTS, name) - time.time() < 7300
        sms_redis.zadd(keys.MO_PARTS, {name: 1})
        until(lambda: mos(sms_redis))
        (mo,) = mos(sms_redis)
        assert (mo.text, mo.parts, mo.missing) == ("残" * (67 + 16), 3, 1)
        assert not sms_redis.exists(name)

    def test_one_that_cannot_be_taken_in_holds_up_nobody(
        self, raw: Raw, sms_redis: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its first part was spoiled in Redis: an alert is raised, and it is tried when it comes
        again."""
        monkeypatch.setattr(arrivals, "ASIDE_SECONDS", 2.0)
        first, second, last = long_mo(raw, "坏" * 150)
        assert [raw.ask(first), raw.ask(second)] == [0, 0]
        (name,) = sms_redis.zrange(keys.MO_PARTS, 0, -1)
        whole = sms_redis.hgetall(name)
        for field in whole:
            sms_redis.hset(name, field, "garbage")
        raw.send(last)
        until(lambda: Alert.objects.filter(kind="sms.mo"))
        good = deliver(raw.sequence(), b"good", 0)
        raw.send(good)
        answers = {answer.sequence: answer.result for answer in (raw.receive(), raw.receive())}
        assert answers == {good.sequence: 0, last.sequence: sgip.Result.BUSY}
        assert [mo.text for mo in mos(sms_redis)] == ["good"]
        sms_redis.hset(name, mapping=whole)
        assert raw.ask(last) == 0
        assert [mo.text for mo in mos(sms_redis)] == ["good", "坏" * 150]

    def test_a_user_report(self, raw: Raw, sms_redis: Any) -> None:
        request = sgip.UserRpt(raw.sequence(), SP, USER, 1)
        assert [raw.ask(request), raw.ask(request)] == [0, 0]
        (mo,) = mos(sms_redis)
        assert (mo.kind, mo.user_number, mo.user_condition) == ("userrpt", USER, 1)


class TestBroken:
    @pytest.mark.parametrize(
        "garbage",
        [b"\0\0\0\5hello", b"\xff" * 64, b"\0\0\0\x14\x7f\0\0\1" + bytes(12), bytes(64)],
    )
    def test_garbage_closes_this_connection_only(
        self, raw: Raw, receiver: SmsReceiver, garbage: bytes
    ) -> None:
        with Raw(receiver.port) as broken:
            assert broken.bind() == 0
            broken.send(garbage)
            while broken.receive() is not None:
                pass
        assert raw.ask(report(raw, 1, 1)) == 0

    def test_a_request_that_is_refused_is_in_the_log_now_and_then(
        self, receiver: SmsReceiver, raw: Raw, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its gateway does not send it again."""
        receiver.arrivals._next_log = Every(3600.0)
        first = deliver(raw.sequence(), b"first", 0)
        other = deliver(first.sequence, b"other", 0)
        assert [raw.ask(first), raw.ask(first), raw.ask(other), raw.ask(other)] == [0, 0, 9, 9]
        (line,) = [r.msg for r in caplog.records if "request_refused" in str(r.msg)]
        assert isinstance(line, dict)
        assert line["sequence"] == ":".join(map(str, first.sequence))
        assert (line["why"], line["count"]) == ("its sequence was used", 1)

    def test_a_command_for_a_gateway_is_refused_and_the_link_stays(self, raw: Raw) -> None:
        submit = sgip.Submit(raw.sequence(), SP, "0" * 21, (USER,), "99999", "TEST")
        assert raw.ask(submit) == 7
        assert raw.ask(report(raw, 1, 1)) == 0

    def test_a_frame_in_single_bytes(self, raw: Raw, sms_redis: Any) -> None:
        for byte in deliver(raw.sequence(), b"slowly", 0).encode():
            raw.send(bytes((byte,)))
        assert raw.receive().result == 0
        assert [mo.text for mo in mos(sms_redis)] == ["slowly"]


def test_a_report_wakes_the_forwarder(raw: Raw, listen: Callable[[WakeSignal], Hearing]) -> None:
    submitted(1, 11)
    hearing = listen(FORWARDER)
    assert raw.ask(report(raw, 1, 11)) == 0
    hearing.wait()
