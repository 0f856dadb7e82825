"""Who may connect to the receiver, how often, and on which messages it may report."""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gateway import checks, sgip
from gateway.lifecycle import keys, store
from gateway.lifecycle.messages import Member, NewSubmit
from gateway.models import SgipMt, SgipReport, SmsGateway
from gateway.pump import late_reports, rows
from gateway.receiver import bind_authentication, wrong_logins
from gateway.receiver.receiver import SmsReceiver
from msgplatform import env
from msgplatform.models import Alert
from tests.support.sms_net_support import (
    Raw,
    accept,
    ended,
    gateway,
    mt,
    turning,
    until,
)

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("sms_redis", "work_redis"),
]
HOME, ELSEWHERE = "127.0.0.1", "127.0.0.2"
TS, NODE = 1121131500, 3010099999


@contextlib.contextmanager
def listening(is_patient: bool = True) -> Iterator[SmsReceiver]:
    """A receiver. A patient one closes nobody who has not logged in after some seconds, for which
    this machine may have stood still."""
    receiver = SmsReceiver("127.0.0.1", 0)
    with turning(receiver):
        until(lambda: receiver.port)
        if is_patient:
            assert receiver.server is not None
            receiver.server._limits = sgip.Limits(login_timeout=600.0)
        yield receiver


def is_closed(raw: Raw) -> bool:
    """By the receiver, without a word."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        return raw.receive() is None
    return True


def result_of(receiver: SmsReceiver, source: str = HOME, **login: Any) -> int | None:
    """Of a login; None when it was closed before."""
    with Raw(receiver.port, source) as raw, contextlib.suppress(AttributeError, OSError):
        return raw.bind(**login)
    return None


@contextlib.contextmanager
def silent(port: int, sources: list[str]) -> Iterator[list[socket.socket]]:
    """Connections that say nothing."""
    opened: list[socket.socket] = []
    try:
        for source in sources:
            one = socket.socket()
            one.bind((source, 0))
            one.connect(("127.0.0.1", port))
            opened.append(one)
        yield opened
    finally:
        for one in opened:
            one.close()


class TestNetworks:
    @pytest.mark.parametrize(
        ("fields", "from_home", "from_elsewhere"),
        [
            ({}, 0, None),
            ({"host": "localhost"}, 0, None),
            ({"networks": [ELSEWHERE]}, None, 0),
            ({"networks": ["127.0.0.0/30"]}, 0, 0),
            ({"networks": ["10.0.0.0/8", "2001:db8::/32"]}, None, None),
            ({"host": "no-such-host.invalid"}, None, None),
        ],
    )
    def test_are_its_own_or_its_host(
        self, fields: dict[str, Any], from_home: int | None, from_elsewhere: int | None
    ) -> None:
        gateway(1, **fields)
        with listening() as receiver:
            assert result_of(receiver) == from_home
            assert result_of(receiver, ELSEWHERE) == from_elsewhere

    def test_a_name_that_is_not_answered_holds_up_no_other_gateway(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The port opens, and changes in the console count."""
        monkeypatch.setattr(wrong_logins, "FIRST_DELAY", 0.0)
        is_over, lookup = threading.Event(), socket.getaddrinfo
        answers: list[str] = []

        def slow_lookup(host: Any, *args: Any, **options: Any) -> Any:
            if str(host).endswith(".example"):
                is_over.wait(60)
                answers.append(host)
            return lookup(HOME if host == "slow.example" else host, *args, **options)

        monkeypatch.setattr(socket, "getaddrinfo", slow_lookup)
        for name in ("slow.example", "dead.example"):
            gateway(1, name, host=name, smg_login_name=name)
        row = gateway(2, "other", networks=[ELSEWHERE], smg_login_name="other")
        with listening() as receiver:
            assert result_of(receiver, ELSEWHERE, name="other") == 0
            row.smg_login_name = "corrected"
            row.save()
            until(lambda: result_of(receiver, ELSEWHERE, name="corrected") == 0)
            assert result_of(receiver, name="slow.example") is None
            assert not answers
            is_over.set()
            until(lambda: result_of(receiver, name="slow.example") == 0)

    def test_a_login_from_the_network_of_another_gateway_is_wrong(self) -> None:
        gateway(1, "one")
        gateway(2, "other", networks=[ELSEWHERE], smg_login_name="other")
        with listening() as receiver:
            assert result_of(receiver, name="other") == sgip.Result.LOGIN
            assert result_of(receiver, ELSEWHERE, name="other") == 0

    def test_of_two_with_one_login_it_is_the_one_that_connects_from_there(self) -> None:
        gateway(1, "one")
        other = gateway(2, "other", networks=[ELSEWHERE])
        with listening() as receiver, Raw(receiver.port, ELSEWHERE) as raw:
            assert raw.bind() == 0
            assert [state.gateway for state in receiver.authentication.states()] == [other.pk]

    @pytest.mark.parametrize(
        "change",
        [{"smg_login_name": "new"}, {"smg_login_password": "new"}, {"networks": ["10.0.0.0/8"]}],
    )
    def test_a_bound_connection_that_could_not_log_in_any_more_is_closed(
        self, change: dict[str, Any]
    ) -> None:
        row = gateway(1)
        gateway(2, "other", smg_login_name="other")
        with listening() as receiver, Raw(receiver.port) as raw, Raw(receiver.port) as other:
            assert [raw.bind(), other.bind("other")] == [0, 0]
            for harmless in ({"networks": [HOME], "priority": 7}, {"host": "other.invalid"}):
                SmsGateway.objects.filter(pk=row.pk).update(**harmless)
            until(lambda: receiver.directory.known.receiving[row.pk].row.host == "other.invalid")
            report = sgip.UserRpt(raw.sequence(), "10655001", "8613800000003", 1)
            assert raw.ask(report) == 0
            for name, value in change.items():
                setattr(row, name, value)
            row.save(update_fields=[*change])
            assert is_closed(raw)
            (state,) = receiver.authentication.states()
            assert state.gateway != row.pk

    def test_strangers_are_told_of_in_one_line(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(bind_authentication, "_LOG_SECONDS", 3600.0)
        gateway(1)
        with listening() as receiver:
            receiver.authentication.next_log.restart()
            for _ in range(200):
                with Raw(receiver.port, ELSEWHERE) as raw:
                    assert is_closed(raw)
            assert not [r for r in caplog.records if "refused" in str(r.msg)]
            receiver.authentication.next_log.at_once()
            until(lambda: Alert.objects.filter(kind="sms.stranger"))
        lines = [
            record.msg for record in caplog.records if "connections_refused" in str(record.msg)
        ]
        assert len(lines) == 1
        assert (lines[0]["stranger"], lines[0]["last_stranger"]) == (200, ELSEWHERE)

    def test_a_wrong_login_type_is_in_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        gateway(1)

        def lines() -> list[Any]:
            return [r.msg for r in caplog.records if "connections_refused" in str(r.msg)]

        with listening() as receiver:
            assert result_of(receiver, kind=1) == sgip.Result.LOGIN_TYPE
            until(lines)
        (line,) = lines()
        assert line["login_type"] == 1

    def test_a_stranger_that_becomes_a_gateway(self) -> None:
        with listening() as receiver:
            with Raw(receiver.port, ELSEWHERE) as raw:
                assert is_closed(raw)
            receiver.authentication.next_log.at_once()
            until(lambda: Alert.objects.exclude(open_key=None).filter(kind="sms.stranger"))
        # The receiver is started anew meanwhile.
        with listening() as receiver:
            gateway(1, networks=[ELSEWHERE])
            until(lambda: receiver.authentication.networks.gateways(ELSEWHERE))
            assert result_of(receiver, ELSEWHERE) == 0
            until(lambda: Alert.objects.filter(kind="sms.stranger", open_key=None))

    def test_a_stranger_that_becomes_a_gateway_at_another_receiver(self) -> None:
        gateway(1)
        with listening() as receiver, listening() as other:
            # It has looked for an alert, and found none.
            until(lambda: not other.authentication.next_look.is_due)
            with Raw(receiver.port, ELSEWHERE) as raw:
                assert is_closed(raw)
            receiver.authentication.next_log.at_once()
            until(lambda: Alert.objects.exclude(open_key=None).filter(kind="sms.stranger"))
            gateway(2, "elsewhere", networks=[ELSEWHERE])
            until(lambda: other.authentication.networks.gateways(ELSEWHERE))
            assert result_of(other, ELSEWHERE) == 0
            other.authentication.next_look.at_once()
            until(lambda: Alert.objects.filter(kind="sms.stranger", open_key=None))


class TestSilence:
    @pytest.mark.parametrize("dripping", [False, True])
    def test_who_does_not_log_in_is_closed_after_five_seconds(self, dripping: bool) -> None:
        gateway(1)
        frame = iter(sgip.Bind((1, 1, 1), 2, "smg", "secret").encode())
        with listening(is_patient=False) as receiver:
            began = time.monotonic()
            with Raw(receiver.port) as raw:
                raw.socket.settimeout(0.5 if dripping else 30)
                closed = False
                while not closed:
                    with contextlib.suppress(TimeoutError):
                        raw.send(bytes((next(frame),)) if dripping else b"")
                        closed = is_closed(raw)
                assert 4.5 < time.monotonic() - began < 60

    def test_a_thousand_silent_connections_keep_no_gateway_out(self) -> None:
        """They come from its own address."""
        gateway(1)
        with listening(is_patient=False) as receiver, silent(receiver.port, [HOME] * 1030):
            until(lambda: len(receiver.server.connections) <= bind_authentication.MAX_FROM_ADDRESS)
            assert result_of(receiver) == 0

    def test_room_is_kept_for_addresses_that_logged_in(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bind_authentication, "MAX_IN_ALL", 40)
        monkeypatch.setattr(bind_authentication, "RESERVED_PLACES", 10)
        gateway(1, networks=["127.0.0.0/8"])
        others = [f"127.0.1.{n}" for n in range(1, 41)]
        with listening() as receiver:
            assert result_of(receiver) == 0
            until(lambda: not receiver.server.connections)
            with silent(receiver.port, others):
                until(lambda: len(receiver.server.connections) == 30)
                assert result_of(receiver, "127.0.2.1") is None, "it has never logged in"
                assert result_of(receiver) == 0


class TestGuesses:
    def test_they_get_slower_and_slower(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """32 guesses a second, for four seconds: one is answered at 0, 0.5, 1.5 and 3.5."""
        now = 0.0
        monkeypatch.setattr(wrong_logins, "time", SimpleNamespace(monotonic=lambda: now))
        monkeypatch.setattr(bind_authentication, "_LOG_SECONDS", 3600.0)
        gateway(1)
        with listening() as receiver:
            answered: dict[float, int] = {}
            for number in range(128):
                now = number / 32
                if (result := result_of(receiver, password=f"guess-{number}")) is not None:
                    answered[now] = result
        assert answered == dict.fromkeys((0.0, 0.5, 1.5, 3.5), sgip.Result.LOGIN)
        lines = [record.msg for record in caplog.records if "refused" in str(record.msg)]
        assert len(lines) <= 4

    def test_connections_that_were_open_before_wait_too(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wrong_logins, "FIRST_DELAY", 60.0)
        gateway(1)
        with listening() as receiver, contextlib.ExitStack() as stack:
            raws = [stack.enter_context(Raw(receiver.port)) for _ in range(20)]
            until(lambda: len(receiver.server.connections) == 20)
            results = [raw.bind(password="guess") for raw in raws[:-1]] + [raws[-1].bind()]
        assert results == [sgip.Result.LOGIN] + [sgip.LOGIN_TOO_FREQUENT] * 19

    def test_ten_of_them_are_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wrong_logins, "FIRST_DELAY", 0.0)
        gateway(1)
        with listening() as receiver:
            assert result_of(receiver) == 0
            for _ in range(9):
                assert result_of(receiver, password="guess") == sgip.Result.LOGIN
            assert result_of(receiver) == 0
            assert not Alert.objects.filter(kind="sms.login").exists()
            assert result_of(receiver, password="guess") == sgip.Result.LOGIN
            until(lambda: Alert.objects.filter(kind="sms.login"))
        alert = Alert.objects.get()
        assert HOME in alert.subject
        assert "guess" not in alert.text

    def test_an_alert_that_could_not_be_stored_is_raised_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The database was unavailable at the tenth; the sixteenth is reported, too."""
        monkeypatch.setattr(wrong_logins, "FIRST_DELAY", 0.0)
        gateway(1)
        with listening() as receiver:
            for _ in range(10):
                assert result_of(receiver, password="guess") == sgip.Result.LOGIN
            until(lambda: Alert.objects.filter(kind="sms.login"))
            Alert.objects.all().delete()
            for _ in range(6):
                assert result_of(receiver, password="guess") == sgip.Result.LOGIN
            until(lambda: Alert.objects.filter(kind="sms.login"))
        assert "16 wrong logins" in Alert.objects.get().text

    def test_who_waited_gets_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wrong_logins, "FIRST_DELAY", 60.0)
        gateway(1)
        with listening() as receiver:
            assert result_of(receiver, password="guess") == sgip.Result.LOGIN
            assert result_of(receiver) is None
            receiver.authentication.wrong_logins._by_address[HOME].until = 0.0  # its time is over
            assert result_of(receiver) == 0

    def test_one_gateways_wrong_login_keeps_no_other_at_its_address_out(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wrong_logins, "FIRST_DELAY", 60.0)
        gateway(1, "one")
        gateway(2, "other", smg_login_name="other")
        with listening() as receiver:
            assert result_of(receiver) == 0
            assert result_of(receiver, name="other", password="old") == sgip.Result.LOGIN
            late = result_of(receiver, name="other", password="old")
            assert late == sgip.LOGIN_TOO_FREQUENT
            assert result_of(receiver) == 0


class TestReports:
    @pytest.fixture
    def pair(self) -> tuple[SmsGateway, SmsGateway]:
        return gateway(1, "one"), gateway(2, "other", smg_login_name="other")

    def submitted(self, to: SmsGateway) -> str:
        message = mt(1, [to.pk])
        (name,) = accept(message)
        store.claim(to.pk, "me", 10, 30)
        members = [Member(message.id, message.user_number)]
        new = NewSubmit(10, TS, NODE, 1, 1, b"frame", members)
        assert store.submit(to.pk, "me", [new], 60.0)
        return name

    def told_by(self, receiver: SmsReceiver, login: str, state: int = 0) -> None:
        node = 3010000000 + len(login)  # each gateway has sequences of its own
        with Raw(receiver.port) as raw:
            assert raw.bind(login) == 0
            user = mt(1, [1]).user_number
            sent = sgip.Report((node, TS, 1), (NODE, TS, 10), 0, user, state, 0)
            assert raw.ask(sent) == 0

    def test_count_from_the_gateway_of_the_submit(
        self, pair: tuple[SmsGateway, SmsGateway], sms_redis: Any
    ) -> None:
        name = self.submitted(pair[0])
        with listening() as receiver:
            self.told_by(receiver, "other", state=2)
            assert not ended([name])
            until(lambda: Alert.objects.filter(key=f"sms.report:{pair[1].pk}"))
            assert sms_redis.llen(keys.LIST_UNMATCHED) == 1, "it is kept for the archive"
            self.told_by(receiver, "smg")
        assert ended([name])[name].final == "delivered"

    def test_count_from_a_gateway_that_was_switched_off(
        self, pair: tuple[SmsGateway, SmsGateway]
    ) -> None:
        """A broken row that is switched off has no alert."""
        name = self.submitted(pair[1])
        SmsGateway.objects.filter(pk=pair[1].pk).update(enabled=False)
        gateway(3, "broken", area_code="10", enabled=False)
        with listening() as receiver:
            self.told_by(receiver, "other")
            assert ended([name])[name].final == "delivered"
            assert result_of(receiver) == 0, "a neighbour at the same address"
        assert not Alert.objects.exists()

    def test_count_from_the_one_of_two_with_one_login_that_is_on(self) -> None:
        """Its elder was switched off, and keeps nothing from it."""
        gateway(1, "elder", enabled=False)
        name = self.submitted(gateway(2, "younger"))
        with listening() as receiver:
            self.told_by(receiver, "smg")
        assert ended([name])[name].final == "delivered"

    def test_count_when_they_come_together_with_the_end(
        self, pair: tuple[SmsGateway, SmsGateway]
    ) -> None:
        """A gateway need not wait for the response before it says goodbye."""
        name = self.submitted(pair[0])
        with listening() as receiver, Raw(receiver.port) as raw:
            assert raw.bind() == 0
            sent = sgip.Report((NODE, TS, 1), (NODE, TS, 10), 0, mt(1, [1]).user_number, 0, 0)
            raw.send(sent, sgip.Unbind((NODE, TS, 2)))
            until(lambda: ended([name]))
        assert ended([name])[name].final == "delivered"

    def test_count_from_one_of_the_same_operator(self, pair: tuple[SmsGateway, SmsGateway]) -> None:
        SmsGateway.objects.update(operator="unicom")
        name = self.submitted(pair[0])
        with listening() as receiver:
            self.told_by(receiver, "other")
        assert ended([name])[name].final == "delivered"
        assert not Alert.objects.exists()

    def test_an_operator_is_no_other_operator(self, pair: tuple[SmsGateway, SmsGateway]) -> None:
        for row, operator in zip(pair, ("unicom", "mobile"), strict=True):
            SmsGateway.objects.filter(pk=row.pk).update(operator=operator)
        name = self.submitted(pair[0])
        with listening() as receiver:
            self.told_by(receiver, "other")
        assert not ended([name])

    @pytest.mark.parametrize(("login", "final"), [("smg", "delivered"), ("other", "unknown")])
    def test_late_ones_too(
        self,
        pair: tuple[SmsGateway, SmsGateway],
        sms_redis: Any,
        monkeypatch: pytest.MonkeyPatch,
        login: str,
        final: str,
    ) -> None:
        """The message was archived as unknown: Redis has forgotten who got it."""
        monkeypatch.setattr(late_reports, "PATIENCE_SECONDS", 0.0)
        name = self.submitted(pair[0])
        sms_redis.hset(keys.mt(int(name)), mapping={"final": "unknown", "published": "unknown"})
        found = store.read([name])
        rows.write_messages(found, lambda: True)
        assert store.forget(found) == {name}
        with listening() as receiver:
            self.told_by(receiver, login)
        assert late_reports.settle(10) == 1
        assert SgipMt.objects.get().final == final
        assert SgipReport.objects.get().mt_id == (int(name) if final == "delivered" else 0)


class TestChecks:
    def found(self) -> list[str | None]:
        return [message.id for message in checks.rows_check()]

    def test_networks(self) -> None:
        row = gateway(1)
        for networks, expected in (
            (["10.0.0.0/8"], []),
            (["0.0.0.0/0"], ["gateway.W211"]),
            (["10.0.0.1/8"], ["gateway.E210"]),
        ):
            SmsGateway.objects.filter(pk=row.pk).update(networks=networks)
            assert self.found() == expected
        # Its SMG may still connect; a row that nobody uses needs no correction.
        SmsGateway.objects.filter(pk=row.pk).update(enabled=False)
        assert self.found() == []
        SmsGateway.objects.filter(pk=row.pk).update(networks=["0.0.0.0/0"])
        assert self.found() == ["gateway.W211"]

    def test_gateways_of_one_operator_may_share_a_node(self) -> None:
        gateway(1, "one")
        gateway(2, "other", host="127.0.0.9", smg_login_name="other")
        assert self.found() == ["gateway.W206"]
        SmsGateway.objects.update(operator="unicom")
        assert self.found() == []

    def test_one_login_from_different_networks(self) -> None:
        gateway(1, "one")
        gateway(2, "other", networks=[ELSEWHERE])
        assert self.found() == []
        SmsGateway.objects.update(networks=[])
        assert self.found() == ["gateway.W207"]

    def test_compose_publishes_no_port_to_others(self) -> None:
        compose = yaml.safe_load((env.BASE_DIR / "deploy" / "compose.yaml").read_text())
        ports = [
            port for service in compose["services"].values() for port in service.get("ports", [])
        ]
        assert len(ports) == 2
        for port in ports:
            assert re.match(r"\$\{(WEB|SMS_RECEIVER)_PUBLISH:-127\.0\.0\.1\}:", port), port
