"""Two things at once: an ending that changes while it is published or archived, parts that come
back one after the other, a gateway or an account that is switched off or changed in between."""

import json
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway import presence, sgip
from gateway.connections import sms_redis
from gateway.directory import Directory, Gateway
from gateway.forwarder.forwarder import Forwarder
from gateway.lifecycle import keys, mo_store, store
from gateway.lifecycle.messages import Mo, NewSubmit, Response
from gateway.models import SgipMo, SgipMt, SgipMtPart, SgipReport, SmsAccount, SmsGateway
from gateway.pump import late_reports
from gateway.pump.pump import Pump
from gateway.sender.gateway_worker import GatewayWorker
from gateway.sender.link import Link
from gateway.sender.packing import Counters, make_packs, make_submits
from gateway.sender.pending_submits import PendingSubmit
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.errors import Unavailable
from msgplatform.core.rates.shared import SharedRateLimit
from msgplatform.models import Alert, MinuteCounter
from notify.models import BizMsg
from tests.support import sms_rows
from tests.support.sms_rows import TS, Caller, lasting_keys, report, respond, send, submit

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)
NUMBER = "8613800000000"


def events() -> list[dict[str, Any]]:
    return [json.loads(bytes(row.payload)) for row in BizMsg.objects.order_by("id")]


def states() -> list[str]:
    return [event["state"] for event in events()]


def gateway_id() -> int:
    return SmsGateway.objects.get().pk


def gateway() -> Gateway:
    """As a sender that starts now sees it."""
    directory = Directory()
    directory.refresh()
    return directory.known.gateways[gateway_id()]


def hasten(schedule: str) -> None:
    """What is to be tried again later is due."""
    ids: list[bytes] = sms_redis().zrange(schedule, 0, -1)  # type: ignore[assignment]
    if ids:
        sms_redis().zadd(schedule, dict.fromkeys(ids, 0))


def unknown(shop: Caller) -> tuple[str, int]:
    """A message whose Report did not come in time, and its seqno."""
    message = send(shop.biz)
    (seqno,) = submit(gateway_id(), wait=1e-6)[message]
    respond(seqno)
    assert store.end_overdue(10) == 1
    return message, seqno


class TestEndings:
    def test_what_turns_out_before_the_archive_is_published_too(
        self, shop: Caller, sms_redis: Any
    ) -> None:
        _, seqno = unknown(shop)
        Forwarder().turn()
        report(seqno)
        Pump().turn()  # before the forwarder comes to it
        Forwarder().turn()
        assert states() == ["unknown", "delivered"]
        Pump().turn()
        assert SgipMt.objects.get().final == "delivered"
        assert lasting_keys(sms_redis) == set(keys.COUNTS)

    def test_what_turns_out_while_it_is_published(self, shop: Caller) -> None:
        _, seqno = unknown(shop)
        ids = store.take(keys.LIST_REPORT, keys.REPORTING, 10, 60).entries
        read = {found.id: found.final for found in store.read(ids)}
        report(seqno)
        assert store.finish_published(read) == 0, "what was published is not its ending any more"
        Forwarder().turn()
        assert states() == ["delivered"]

    def test_two_endings_in_one_batch_are_archived_once(self, shop: Caller) -> None:
        _, seqno = unknown(shop)
        Forwarder().turn()
        report(seqno)
        Forwarder().turn()
        Pump().turn()
        Pump().turn()
        assert (SgipMt.objects.count(), SgipMtPart.objects.count()) == (1, 1)
        assert SgipReport.objects.count() == 1
        account = SmsAccount.objects.get().pk
        counted = MinuteCounter.objects.filter(flow="sms", subject=account).exclude(value=0)
        assert set(counted.values_list("name", "value")) == {("delivered", 1), ("segments", 1)}

    def test_without_reports_a_late_response_is_the_end(self, shop: Caller) -> None:
        SmsAccount.objects.update(report_flag=2)
        message = send(shop.biz)
        (seqno,) = submit(gateway_id())[message]
        sms = sms_redis()
        sms.zadd(keys.submit_due(gateway_id()), {f"{seqno}:{TS}": 0})
        assert store.repeat(gateway_id(), 0.0, 0, 10) == []
        respond(seqno)
        assert store.read([message])[0].final == "accepted"


class TestParts:
    def claim(self) -> list[Any]:
        return store.claim(gateway_id(), "me", 500, 30)

    def again(self, seqno: int, tries: int = 30) -> None:
        store.respond([Response(f"{seqno}:{TS}", 11, "again")], tries)

    def test_one_that_comes_back_while_the_other_is_queued(self, shop: Caller) -> None:
        message = send(shop.biz, text="长" * 100)
        first, second = submit(gateway_id(), parts=2)[message]
        self.again(first)
        self.claim()
        self.again(second)
        store.release(gateway_id(), "me", [message])
        (claimed,) = self.claim()
        assert claimed.part_numbers == (), "nothing of it stands: it is sent as a whole"
        new = make_submits(make_packs([claimed], gateway()), gateway(), Counters())
        assert len(store.submit(gateway_id(), "me", new, 60.0)) == 2
        assert self.claim() == [], "both parts would be sent once more"

    def test_one_that_comes_back_while_the_other_is_sent(self, shop: Caller) -> None:
        message = send(shop.biz, text="长" * 100)
        first, second = submit(gateway_id(), parts=2)[message]
        self.again(first)
        (claimed,) = self.claim()
        self.again(second)
        new = make_submits(make_packs([claimed], gateway()), gateway(), Counters())
        assert [item.part for item in store.submit(gateway_id(), "me", new, 60.0)] == [1]
        assert [item.part_numbers for item in self.claim()] == [(2,)]

    def test_all_parts_of_a_round_are_one_try(self, shop: Caller) -> None:
        message = send(shop.biz, text="长" * 600)
        for seqno in submit(gateway_id(), parts=9)[message]:
            self.again(seqno, tries=3)
        assert [claimed.tries for claimed in self.claim()] == [1]

    def sent(self, limit: int) -> list[NewSubmit]:
        """All that waits, in Submits, by a gateway with this ASCII limit."""
        SmsGateway.objects.update(ascii_limit=limit)
        new = make_submits(make_packs(self.claim(), gateway()), gateway(), Counters())
        assert store.submit(gateway_id(), "me", new, 60.0) == new
        return new

    def test_a_text_that_was_refused_is_cut_anew_when_the_limit_was_changed(
        self, shop: Caller
    ) -> None:
        message = send(shop.biz, text="x" * 150)
        for limit, parts in ((160, [1]), (140, [1, 2]), (160, [1]), (140, [1, 2])):
            new = self.sent(limit)
            assert [item.part for item in new] == parts
            for item in new:
                store.respond([Response(item.name, 11, "again")], 30)
            hasten(keys.scheduled(gateway_id()))
        for item in self.sent(140):
            store.respond([Response(item.name, 0, "accepted")], 30)
        (found,) = store.read([message])
        assert (found.parts, found.results) == (2, {1: 0, 2: 0})

    @pytest.mark.parametrize("limits", [(160, 140), (140, 160)])
    @pytest.mark.parametrize("length", [250, 300])
    def test_a_part_fits_those_that_stand_though_the_limit_was_changed(
        self, shop: Caller, limits: tuple[int, int], length: int
    ) -> None:
        text = "".join(f"{n:04} " for n in range(100))[:length]
        send(shop.biz, text=text)
        before, after = limits
        *standing, last = self.sent(before)
        store.respond([Response(last.name, 11, "again")], 30)
        hasten(keys.scheduled(gateway_id()))
        (retried,) = self.sent(after)
        commands = [sgip.decode(item.frame) for item in (*standing, retried)]
        parts = [sgip.part_of(c) for c in commands if isinstance(c, sgip.Submit)]
        assert {part.total for part in parts} == {len(parts)}
        assert sgip.text_of({part.number: part.payload for part in parts}, 0) == text

    def test_parts_that_were_cut_by_an_older_version_are_compared(self, shop: Caller) -> None:
        message = send(shop.biz, text="x" * 150)
        _first, second = submit(gateway_id(), parts=2)[message]
        self.again(second)
        SmsGateway.objects.update(ascii_limit=160)
        with pytest.raises(ValueError, match="into 2 parts, and is into 1 now"):
            make_packs(self.claim(), gateway())


def test_what_is_remembered_is_written_whatever_becomes_of_what_is_not(
    shop: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would wait until the same bytes are due."""
    ended = send(shop.biz, text="over")
    send(shop.biz, text="on its way")
    given: list[PendingSubmit] = []
    link = SimpleNamespace(give=given.extend, put=None)
    heartbeat = Heartbeat("sms_sender")
    worker = GatewayWorker(gateway(), cast(Link, link), "me", lambda *_: None, heartbeat)
    worker._claim(10)
    sms_redis().hset(keys.mt(int(ended)), "final", "unknown")

    def lost(*_: Any) -> int:
        raise RedisError("lost")

    monkeypatch.setattr(store, "release", lost)
    with pytest.raises(RedisError):
        worker._send(10)
    assert len(given) == 1


class TestSwitchedOff:
    def test_the_submits_of_a_gateway_end(self, shop: Caller) -> None:
        """Nobody repeats them, and no response will come."""
        message = send(shop.biz)
        (claimed,) = store.claim(gateway_id(), "me", 10, 30)
        store.submit(
            gateway_id(),
            "me",
            make_submits(make_packs([claimed], gateway()), gateway(), Counters()),
            60.0,
            1e-6,
        )
        assert store.end_overdue(10) == 1
        assert store.read([message])[0].final == "unknown"

    def test_the_events_of_an_account_keep_its_name(self, shop: Caller) -> None:
        unknown(shop)
        SmsAccount.objects.update(enabled=False)
        Forwarder().turn()
        assert [event["account"] for event in events()] == ["marketing"]


class TestLateReports:
    def archived(self, shop: Caller) -> tuple[str, int]:
        message, seqno = unknown(shop)
        Forwarder().turn()
        Pump().turn()
        return message, seqno

    def test_every_state_but_0_and_1_is_a_failure(self, shop: Caller) -> None:
        _, seqno = self.archived(shop)
        report(seqno, state=3, error=7)
        Pump().turn()
        assert SgipMt.objects.get().final == "failed"

    def test_one_of_an_earlier_try_counts(self, shop: Caller) -> None:
        message = send(shop.biz, text="长" * 100)
        first, second = submit(gateway_id(), parts=2)[message]
        store.respond([Response(f"{first}:{TS}", 11, "again")], 30)
        respond(second)
        (newer,) = submit(gateway_id(), wait=1e-6)[message]
        respond(newer)
        store.end_overdue(10)
        Forwarder().turn()
        Pump().turn()
        for seqno in (first, second):
            report(seqno)
            Pump().turn()
        assert SgipMt.objects.get().final == "delivered"

    def test_one_that_cannot_be_settled_holds_up_nobody(self, shop: Caller, sms_redis: Any) -> None:
        _, seqno = self.archived(shop)
        sms_redis.rpush(keys.LIST_UNMATCHED, "no Report at all")
        report(seqno)
        assert late_reports.settle(10) == 1
        assert "no Report at all" in Alert.objects.get(kind="sms.archive").text
        assert SgipMt.objects.get().final == "delivered"


class TestFull:
    @pytest.fixture
    def full(self, shop: Caller, sms_redis: Any) -> Iterator[Callable[[], None]]:
        """Makes Redis full."""

        def fill() -> None:
            sms_redis.config_set("maxmemory", sms_redis.info("memory")["used_memory"] // 2)

        yield fill
        sms_redis.config_set("maxmemory", 0)

    def test_what_makes_room_goes_on(
        self, shop: Caller, full: Callable[[], None], sms_redis: Any
    ) -> None:
        messages = [send(shop.biz, reference=str(number)) for number in range(3)]
        seqnos = submit(gateway_id())
        send(shop.biz, reference="pending")
        respond(seqnos[messages[0]][0])
        full()
        with pytest.raises(Unavailable, match="OOM"):
            send(shop.biz)
        presence.report("me", [presence.LinkState(gateway_id(), "submit", "", 0.0)])
        speed = SharedRateLimit(lambda: sms_redis, keys.speed(gateway_id()))
        assert speed.take(10.0, 1)[0] == 1
        assert len(store.next_seqnos(2)) == 2
        (pending,) = submit(gateway_id()).values()
        for (seqno,) in (*seqnos.values(), pending):
            respond(seqno)
            assert report(seqno) == "matched"
        Forwarder().turn()
        Pump().turn()
        assert [row.final for row in SgipMt.objects.all()] == ["delivered"] * 4
        assert not sms_redis.keys(f"{keys.PREFIX}mt:*")

    def test_mos_are_published(self, shop: Caller, full: Callable[[], None]) -> None:
        mo = Mo(id=str(2**60), user_number=NUMBER, sp_number="10655", text="TD", at=time.time())
        assert mo_store.accept([(mo, (1, 1, 1))]) == [True]
        full()
        Forwarder().turn()
        Pump().turn()
        assert [event["text"] for event in events()] == ["TD"]
        assert SgipMo.objects.get().biz_id == shop.biz.pk
