"""Forwarder and pump: every ending is published and archived once, whatever dies in between."""

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from gateway.connections import sms_redis
from gateway.forwarder.forwarder import Forwarder
from gateway.lifecycle import keys, mo_store, store
from gateway.lifecycle.messages import Mo, Mt, ReportIn, Response
from gateway.messages import incoming
from gateway.models import (
    SgipMo,
    SgipMt,
    SgipMtPart,
    SgipReport,
    SgipUserRpt,
    SmsAccount,
    SmsGateway,
)
from gateway.monitor import counters
from gateway.pump import late_reports, rows as archive
from gateway.pump.pump import Pump
from msgplatform.core.data import ids, sql
from msgplatform.models import Alert, DayCounter, MinuteCounter
from notify.models import BizMsg
from tests.support import sms_rows
from tests.support.children import child, run
from tests.support.lock_waits import until_somebody_waits
from tests.support.sms_rows import (
    NODE,
    TS,
    Caller,
    account,
    lasting_keys,
    report,
    respond,
    send,
    submit,
)
from tests.waiting import pause

shop = sms_rows.shop
pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
KILLED = -9
NUMBER = "8613800000000"
ONE_TURN = """
from {module} import {name}
from {package} import {module_name}
{module_name}.LEASE_SECONDS = 0.05
wait()
{name}().turn()
"""


def gateway_id() -> int:
    return SmsGateway.objects.get().pk


def ended(shop: Caller, parts: int = 1, wait: float = 3600.0) -> tuple[str, list[int]]:
    """A message whose Submits were accepted: its id and seqnos."""
    message = send(shop.biz, reference="order-7")
    seqnos = submit(gateway_id(), parts, wait)[message]
    for seqno in seqnos:
        respond(seqno)
    return message, seqnos


def published(event_type: str = "sms.report") -> list[dict[str, Any]]:
    rows = BizMsg.objects.filter(event_type=event_type).order_by("id")
    return [json.loads(bytes(row.payload)) for row in rows]


def counted() -> dict[tuple[int, str], int]:
    """Without segments, which tests of their own look at."""
    minutes = MinuteCounter.objects.filter(flow="sms").exclude(name=counters.SEGMENTS)
    rows = minutes.values_list("subject", "name", "value")
    totals: dict[tuple[int, str], int] = {}
    for subject, name, value in rows:
        totals[subject, name] = totals.get((subject, name), 0) + value
    return totals


def segments() -> dict[int, int]:
    """Subject → segments."""
    rows = MinuteCounter.objects.filter(flow="sms", name=counters.SEGMENTS)
    totals = rows.order_by().values("subject").annotate(total=Sum("value"))
    return dict(totals.values_list("subject", "total"))


def die(module: str, name: str, at: str) -> None:
    """One turn in a process that is killed at the failpoint."""
    package, _, file = module.rpartition(".")
    program = ONE_TURN.format(module=module, name=name, package=package, module_name=file)
    with child(program, MSGPLATFORM_FAILPOINT=at) as process:
        process.ready()
        process.go()
        assert process.ended() == KILLED


def subjects() -> list[int]:
    """What endings are counted of: the account, and the gateway as a negative number."""
    return [SmsAccount.objects.get(name="marketing").pk, -gateway_id()]


def ending_counts() -> dict[tuple[int, str], int]:
    return {key: value for key, value in counted().items() if value}


def until(turn: Callable[[], bool], done: Callable[[], bool]) -> None:
    """Turn until the killed process' lease is over and its work is done."""
    begun = time.monotonic()
    while not done():
        assert time.monotonic() < begun + 180
        if not turn():
            pause(begun, 0.01)


class TestMessages:
    def test_an_expiry_that_no_database_holds(self, shop: Caller, sms_redis: Any) -> None:
        """Intake took any in, once."""
        account = SmsAccount.objects.get()
        year_10000 = datetime(
            9999, 12, 31, 23, tzinfo=timezone.get_fixed_timezone(-480)
        ).timestamp()
        message = Mt(
            id=str(ids.new(0)), biz=shop.biz.pk, account=account.pk, user_number=NUMBER,
            text="x", sp_number="10655", corp_id="99999", gateways=[gateway_id()],
            expire_at=year_10000,
        )  # fmt: skip
        store.accept([store.Call([message], biz=shop.biz.pk)], 60)
        respond(submit(gateway_id())[message.id][0], result=5)
        Forwarder().turn()
        Pump().turn()
        row = SgipMt.objects.get(pk=int(message.id))
        assert row.expire_at is not None
        assert row.expire_at.year == 9999
        assert not Alert.objects.exists()
        assert not sms_redis.exists(keys.mt(int(message.id)))

    def test_published_then_archived(self, shop: Caller, sms_redis: Any) -> None:
        message, seqnos = ended(shop, parts=2)
        report(seqnos[0])
        assert Forwarder().turn() is False  # one part is missing
        report(seqnos[1])
        assert Forwarder().turn() is True
        (event,) = published()
        assert {name: event[name] for name in ("id", "reference", "to", "account", "state")} == {
            "id": message, "reference": "order-7", "to": NUMBER, "account": "marketing",
            "state": "delivered",
        }  # fmt: skip
        assert (event["parts"], event["error_code"], event["error"]) == (2, 0, "")
        assert event["accepted_at"] <= event["submitted_at"] <= event["reported_at"]
        assert not SgipMt.objects.exists()

        assert Pump().turn() is True
        row = SgipMt.objects.get()
        assert (str(row.pk), row.final, row.parts, row.text) == (message, "delivered", 2, "你好")
        assert (row.biz_id, row.gateway_id) == (shop.biz.pk, gateway_id())
        parts = SgipMtPart.objects.order_by("part").values_list("seqno", "ts", "node", "state")
        assert list(parts) == [(seqno, TS, NODE, 0) for seqno in seqnos]
        assert SgipReport.objects.filter(mt_id=row.pk).count() == 2
        assert lasting_keys(sms_redis) == set(keys.COUNTS)
        assert counted() == {(row.account_id, "delivered"): 1, (-gateway_id(), "delivered"): 1}
        assert (Forwarder().turn(), Pump().turn()) == (False, False)

    def test_a_failure_is_counted_by_its_code(self, shop: Caller) -> None:
        message, (seqno,) = ended(shop)
        report(seqno, state=2, error=25)
        refused = send(shop.biz)
        respond(submit(gateway_id())[refused][0], result=5)
        Forwarder().turn()
        Pump().turn()
        assert [(e["id"], e["state"], e["error_code"]) for e in published()] == [
            (message, "failed", 25), (refused, "failed", 5),
        ]  # fmt: skip
        gateway = -gateway_id()
        assert {k: v for k, v in counted().items() if k[0] == gateway} == {
            (gateway, "failed"): 2, (gateway, "error 25"): 1, (gateway, "error 5"): 1,
        }  # fmt: skip

    def test_segments_are_what_the_operator_bills(self, shop: Caller) -> None:
        """Every part of a text that went out, once; not what was refused or never sent."""
        _delivered, seqnos = ended(shop, parts=3)
        for seqno in seqnos:
            report(seqno)
        _failed, (seqno,) = ended(shop)
        report(seqno, state=2, error=25)
        refused = send(shop.biz)
        respond(submit(gateway_id())[refused][0], result=5)
        Forwarder().turn()
        Pump().turn()
        assert SgipMt.objects.count() == 3
        assert segments() == dict.fromkeys(subjects(), 4)

    def test_what_was_only_too_busy_for_it_is_not_billed(self, shop: Caller) -> None:
        """One part was accepted; the other waited to be sent again when the message ended."""
        message = send(shop.biz, text="长" * 100)
        first, second = submit(gateway_id(), parts=2, wait=1e-6)[message]
        respond(first)
        store.respond([Response(f"{second}:{TS}", 88, "again", 3600.0)], 30)
        lost = send(shop.biz)
        (seqno,) = submit(gateway_id(), wait=1e-6)[lost]
        store.respond([Response(f"{seqno}:{TS}", 88, "again", 3600.0)], 30)
        assert store.end_overdue(10) == 2
        Forwarder().turn()
        Pump().turn()
        finals = dict(SgipMt.objects.values_list("id", "final"))
        assert finals == {int(message): "unknown", int(lost): "failed"}
        assert sorted(SgipMtPart.objects.values_list("part", "result")) == [
            (1, 0),
            (1, 88),
            (2, 88),
        ]
        assert segments() == dict.fromkeys(subjects(), 1)

    def test_segments_are_counted_once(self, shop: Caller) -> None:
        """Of one that is archived again with its real ending, and a second time by a pump."""
        message, seqnos = ended(shop, parts=2, wait=1e-6)
        Forwarder().turn()
        found = store.read([message])
        archive.write_messages(found, lambda: True)
        assert segments() == dict.fromkeys(subjects(), 2)
        for seqno in seqnos:
            report(seqno)
        Forwarder().turn()
        archive.write_messages(store.read([message]), lambda: True)
        archive.write_messages(store.read([message]), lambda: True)
        assert SgipMt.objects.get().final == "delivered"
        assert segments() == dict.fromkeys(subjects(), 2)

    def test_a_forwarder_killed_after_publishing(self, shop: Caller) -> None:
        message, (seqno,) = ended(shop)
        report(seqno)
        die("gateway.forwarder.forwarder", "Forwarder", "forwarder_after_publish")
        assert len(published()) == 1
        until(Forwarder().turn, lambda: bool(sms_redis().llen(keys.LIST_FINISH)))
        assert [event["id"] for event in published()] == [message]

    def test_a_pump_killed_between_commit_and_forget(self, shop: Caller, sms_redis: Any) -> None:
        message, seqnos = ended(shop, parts=2)
        for seqno in seqnos:
            report(seqno)
        Forwarder().turn()
        die("gateway.pump.pump", "Pump", "pump_after_commit_before_forget")
        assert SgipMt.objects.count() == 1
        assert sms_redis.exists(keys.mt(int(message)))
        until(Pump().turn, lambda: not sms_redis.exists(keys.mt(int(message))))
        assert (SgipMt.objects.count(), SgipMtPart.objects.count()) == (1, 2)
        assert SgipReport.objects.count() == 2
        assert counted()[-gateway_id(), "delivered"] == 1
        assert lasting_keys(sms_redis) == set(keys.COUNTS)

    def test_one_that_cannot_be_written_holds_up_nobody(self, shop: Caller, sms_redis: Any) -> None:
        ids_of = []
        for _ in range(5):
            message, (seqno,) = ended(shop)
            report(seqno)
            ids_of.append(message)
        poison = keys.mt(int(ids_of[2]))
        # An account's number that no column holds.
        row = json.loads(sms_redis.hget(poison, "msg"))
        sms_redis.hset(poison, "msg", json.dumps({**row, "account": 10**30}))
        Forwarder().turn()
        Pump().turn()
        good = [int(pk) for pk in ids_of if pk != ids_of[2]]
        assert sorted(SgipMt.objects.values_list("pk", flat=True)) == good
        assert sms_redis.exists(poison)
        assert sms_redis.zscore(keys.FINISHING, ids_of[2]) is not None
        assert Alert.objects.get().kind == "sms.archive"

    def test_one_that_cannot_be_read_is_told_and_comes_again(
        self, shop: Caller, sms_redis: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gateway.forwarder.forwarder.LEASE_SECONDS", 0.05)
        ids_of = []
        for _ in range(5):
            message, (seqno,) = ended(shop)
            report(seqno)
            ids_of.append(message)
        broken = keys.mt(int(ids_of[2]))
        whole = sms_redis.hget(broken, "msg")
        sms_redis.hset(broken, "msg", b"{")
        Forwarder().turn()
        assert {row["id"] for row in published()} == {*ids_of} - {ids_of[2]}
        assert Alert.objects.get().key == f"sms.event:{ids_of[2]}"
        sms_redis.hset(broken, "msg", whole)
        until(Forwarder().turn, lambda: len(published()) == 5)
        assert [row["id"] for row in published()].count(ids_of[2]) == 1

    def test_a_report_between_commit_and_forget(self, shop: Caller, sms_redis: Any) -> None:
        """Unknown is in the archive already when the real ending comes: it is not lost."""
        message, (seqno,) = ended(shop, wait=1e-6)
        Forwarder().turn()
        die("gateway.pump.pump", "Pump", "pump_after_commit_before_forget")
        assert SgipMt.objects.get().final == "unknown"
        assert report(seqno) == "matched"
        pump, forwarder = Pump(), Forwarder()
        until(
            lambda: forwarder.turn() or pump.turn(),
            lambda: not sms_redis.exists(keys.mt(int(message))),
        )
        assert [event["state"] for event in published()] == ["unknown", "delivered"]
        assert SgipMt.objects.get().final == "delivered"
        assert ending_counts() == {(s, "delivered"): 1 for s in subjects()}

    @pytest.mark.parametrize("second", ["report", "refusal"])
    def test_the_next_part_between_commit_and_forget(
        self, shop: Caller, sms_redis: Any, monkeypatch: pytest.MonkeyPatch, second: str
    ) -> None:
        """The first part's failure ends the message; what comes of the second is archived too."""
        message = send(shop.biz)
        first, next_one = submit(gateway_id(), parts=2)[message]
        respond(first)
        assert report(first, state=2, error=7) == "matched"
        Forwarder().turn()
        write = archive.write_messages

        def writes(*given: Any) -> None:
            write(*given)
            if second == "report":
                report(next_one, state=2, error=8)
            else:
                respond(next_one, result=8)

        monkeypatch.setattr(archive, "write_messages", writes)
        assert Pump().turn()
        assert SgipReport.objects.count() == 1
        assert sms_redis.exists(keys.mt(int(message)))
        until(Pump().turn, lambda: not sms_redis.exists(keys.mt(int(message))))
        parts = SgipMtPart.objects.filter(part=2).values_list("state", "result")
        assert list(parts) == [(2, 0) if second == "report" else (None, 8)]
        assert SgipReport.objects.count() == (2 if second == "report" else 1)
        assert segments() == dict.fromkeys(subjects(), 2 if second == "report" else 1)
        assert len(published()) == 1
        assert lasting_keys(sms_redis) == set(keys.COUNTS)

    def test_two_pumps_that_write_the_same_at_once(
        self, shop: Caller, sms_redis: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The lease of one was over before its commit."""
        message, (seqno,) = ended(shop)
        report(seqno)
        found = store.read([message])
        with ThreadPoolExecutor(1) as pool:
            other: list[Future[None]] = []

            def write_again() -> None:
                archive.write_messages(found, lambda: True)
                connection.close()

            def counts(*given: Any) -> None:
                monkeypatch.setattr(counters, "count_messages", count)
                other.append(pool.submit(write_again))
                until_somebody_waits()
                count(*given)

            count = counters.count_messages
            monkeypatch.setattr(counters, "count_messages", counts)
            archive.write_messages(found, lambda: True)
            other[0].result(180)
        assert (SgipMt.objects.count(), SgipMtPart.objects.count()) == (1, 1)
        assert SgipReport.objects.count() == 1
        assert ending_counts() == {(subject, "delivered"): 1 for subject in subjects()}


class TestLateReports:
    def gone(self, shop: Caller, parts: int = 1) -> tuple[str, list[int]]:
        """A message archived as unknown."""
        message, seqnos = ended(shop, parts, wait=1e-6)
        Forwarder().turn()
        Pump().turn()
        assert SgipMt.objects.get(pk=int(message)).final == "unknown"
        return message, seqnos

    @pytest.mark.parametrize(("state", "error", "final"), [(0, 0, "delivered"), (2, 25, "failed")])
    def test_unknown_gets_its_real_ending(
        self, shop: Caller, sms_redis: Any, state: int, error: int, final: str
    ) -> None:
        message, (seqno,) = self.gone(shop)
        # The gateway leaves out or adds 86, in front of another number than a mobile one.
        short, long = "1064912345678", "861064912345678"
        submitted_as, reported_as = (short, long) if state else (long, short)
        SgipMtPart.objects.update(user_number=submitted_as)
        assert report(seqno, reported_as, state=state, error=error) == "unmatched"
        Pump().turn()
        assert SgipReport.objects.get().user_number == submitted_as
        row = SgipMt.objects.get()
        assert (row.final, row.error_code) == (final, error)
        assert row.reported_at is not None
        part = SgipMtPart.objects.get()
        assert (part.state, part.error_code) == (state, error)
        events = published()
        assert [event["state"] for event in events] == ["unknown", final]
        assert {(event["id"], event["to"]) for event in events} == {(message, NUMBER)}
        assert events[1]["account"] == "marketing"
        assert lasting_keys(sms_redis) == set(keys.COUNTS)
        names = [final, f"error {error}"] if error else [final]
        assert ending_counts() == {(s, name): 1 for s in subjects() for name in names}

    def test_statistics_of_a_day_that_is_over(self, shop: Caller) -> None:
        """Days are not computed again from their minutes for ever: the day itself is corrected."""
        _message, (seqno,) = self.gone(shop)
        earlier = sql.now() - timedelta(days=3)
        SgipMt.objects.update(archived_at=earlier)
        MinuteCounter.objects.update(minute=earlier.replace(second=0, microsecond=0))
        day = timezone.localtime(earlier, timezone.get_default_timezone()).date()
        for biz_id, subject, name in MinuteCounter.objects.values_list("biz_id", "subject", "name"):
            DayCounter.objects.create(
                day=day, flow="sms", biz_id=biz_id, subject=subject, name=name, value=1
            )
        report(seqno)
        Pump().turn()
        for model, when in ((MinuteCounter, "minute"), (DayCounter, "day")):
            endings = model.objects.exclude(value=0).exclude(name=counters.SEGMENTS)
            rows = endings.values_list(when, "name", "value")
            assert len(set(rows)) == 1, "of one time, and the same for account and gateway"
            assert {row[1:] for row in rows} == {("delivered", 1)}

    def test_all_parts_are_needed(self, shop: Caller) -> None:
        _message, seqnos = self.gone(shop, parts=2)
        report(seqnos[1])
        Pump().turn()
        assert SgipMt.objects.get().final == "unknown"
        report(seqnos[0])
        Pump().turn()
        assert SgipMt.objects.get().final == "delivered"
        assert [event["state"] for event in published()] == ["unknown", "delivered"]

    def test_one_that_is_final_stays(self, shop: Caller) -> None:
        _message, (seqno,) = self.gone(shop)
        report(seqno)
        Pump().turn()
        report(seqno, state=2, error=25)
        Pump().turn()
        assert SgipMt.objects.get().final == "delivered"
        assert len(published()) == 2
        # What the gateway reported is kept.
        assert SgipReport.objects.count() == 2

    def test_settled_twice_is_settled_once(self, shop: Caller, sms_redis: Any) -> None:
        """A pump that died before it dropped the Report finds it again."""
        _message, (seqno,) = self.gone(shop)
        item = ReportIn(seqno, TS, NODE, NUMBER, 0, 0, time.time())
        store.report([item])
        (entry,) = sms_redis.lrange(keys.LIST_UNMATCHED, 0, -1)
        Pump().turn()
        sms_redis.rpush(keys.LIST_UNMATCHED, entry)
        Pump().turn()
        assert SgipReport.objects.count() == 1
        assert [event["state"] for event in published()] == ["unknown", "delivered"]

    def test_a_stranger_waits_and_is_kept(
        self, shop: Caller, sms_redis: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert report(4711, NUMBER) == "unmatched"
        Pump().turn()
        assert SgipReport.objects.count() == 0  # a pump may be about to archive its message
        assert sms_redis.zcard(keys.UNMATCHED) == 1
        old = ReportIn(
            4712, TS, NODE, NUMBER, 2, 25, time.time() - late_reports.PATIENCE_SECONDS - 1
        )
        for _ in range(2):
            store.report([old])
            Pump().turn()
        row = SgipReport.objects.get()
        assert (row.mt_id, row.seqno, row.error_code) == (0, 4712, 25)
        assert "report_unmatched" in caplog.text
        assert NUMBER.removeprefix("86") not in caplog.text, "logs name no persons"


class TestMos:
    def mo(self, **fields: Any) -> Mo:
        given = {
            "id": str(ids.new(1)), "gateway": gateway_id(), "user_number": NUMBER,
            "sp_number": "1065501", "text": "TD", "content": b"TD", "at": time.time(),
        }  # fmt: skip
        made = Mo(**{**given, **fields})
        assert mo_store.accept([(made, (NODE, TS, int(made.id) & 0xFFFFFFF))])
        return made

    def test_the_owner_hears_of_it(self, shop: Caller, sms_redis: Any) -> None:
        mo = self.mo()
        Forwarder().turn()
        (event,) = published("sms.mo")
        assert event.pop("received_at").endswith("Z")
        assert event == {
            "id": mo.id, "from": NUMBER, "to": "1065501", "account": "marketing", "text": "TD",
            "parts": 1, "missing_parts": 0,
        }  # fmt: skip
        assert BizMsg.objects.get().biz_id == shop.biz.pk
        Pump().turn()
        row = SgipMo.objects.get()
        assert (row.biz_id, row.text, bytes(row.content)) == (shop.biz.pk, "TD", b"TD")
        left = lasting_keys(sms_redis)
        assert {name for name in left if "mo-seen" not in name} == {
            keys.MO_COUNT, keys.ARCHIVED, keys.ARCHIVED_BYTES,
        }  # fmt: skip

    def test_it_is_published_whatever_the_locale_of_the_machine(self, shop: Caller) -> None:
        mo = self.mo()
        code = "from gateway.forwarder.forwarder import Forwarder\nForwarder().turn()\nsay('done')"
        locale = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        assert run(code, **locale) == "done"
        assert [event["id"] for event in published("sms.mo")] == [mo.id]

    def test_one_that_cannot_be_worked_off_holds_up_nobody(
        self, shop: Caller, sms_redis: Any
    ) -> None:
        good, unreadable, unwritable = self.mo(), self.mo(), self.mo()
        sms_redis.hset(keys.mo(int(unreadable.id)), "msg", b"{")
        # A number that no column holds.
        row = json.loads(sms_redis.hget(keys.mo(int(unwritable.id)), "msg"))
        broken = json.dumps({**row, "gateway": 10**30})
        sms_redis.hset(keys.mo(int(unwritable.id)), "msg", broken)
        Forwarder().turn()
        Pump().turn()
        assert {row["id"] for row in published("sms.mo")} == {good.id, unwritable.id}
        assert [row.pk for row in SgipMo.objects.all()] == [int(good.id)]
        assert {alert.key for alert in Alert.objects.all()} == {
            f"sms.event:{unreadable.id}",
            f"sms.archive:{unwritable.id}",
        }
        assert sms_redis.zscore(keys.MO_REPORTING, unreadable.id) is not None
        assert sms_redis.zscore(keys.MO_FINISHING, unwritable.id) is not None

    def test_what_took_long_comes_last(self, shop: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        """A caller that follows the list has seen what others archived meanwhile."""
        slow, quick = self.mo(), self.mo()
        Forwarder().turn()
        real = sql.now
        began = real() - timedelta(seconds=2)
        moments = iter([began])
        monkeypatch.setattr(sql, "now", lambda: next(moments, None) or real())
        archive.write_mos(mo_store.read([slow.id]))
        monkeypatch.undo()
        assert SgipMo.objects.get().archived_at > began + timedelta(seconds=1)
        archive.write_mos(mo_store.read([quick.id]))
        order = SgipMo.objects.order_by("archived_at", "id").values_list("id", flat=True)
        assert list(order) == [int(slow.id), int(quick.id)]

    def test_what_comes_after_the_clock_went_back_comes_last(
        self, shop: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ahead, later, last = self.mo(), self.mo(), self.mo()
        Forwarder().turn()
        real = sql.now
        monkeypatch.setattr(sql, "now", lambda: real() + timedelta(hours=1))
        archive.write_mos(mo_store.read([ahead.id]))
        monkeypatch.undo()
        for mo in (last, later):  # not in the order of their ids
            archive.write_mos(mo_store.read([mo.id]))
        listed = incoming.since(shop.biz.pk, int(ahead.id)).order_by(*incoming.ORDER)
        assert [row.pk for row in listed] == [int(last.id), int(later.id)]
        counted = MinuteCounter.objects.filter(name="mo", subject__gt=0)
        assert sum(counted.values_list("value", flat=True)) == 3

    def test_the_longest_number_then_the_keyword(self, shop: Caller) -> None:
        stock, post = Caller("stock"), Caller("post")
        account(stock.biz, "stock", sp_number="1065501")
        account(post.biz, "post", sp_number="1065501", keywords=["\u200b", "POST"])
        self.mo(text="hello")
        self.mo(text="post 7")
        self.mo(text="ＰＯＳＴ 8")  # as a Chinese keyboard writes it
        self.mo(sp_number="10655999")
        Forwarder().turn()
        owners = {json.loads(bytes(m.payload))["text"]: m.biz_id for m in BizMsg.objects.all()}
        assert owners == {"hello": stock.biz.pk, "post 7": post.biz.pk, "ＰＯＳＴ 8": post.biz.pk,
                          "TD": shop.biz.pk}  # fmt: skip

    @pytest.mark.parametrize("number", ["1065501", "10655"])
    def test_texts_of_an_account_that_is_off_go_to_no_other_system(
        self, shop: Caller, settings: Any, number: str
    ) -> None:
        settings.SMS_DEFAULT_ACCOUNT = "marketing"
        bank = Caller("bank").biz
        account(bank, "bank", sp_number=number, keywords=["TD"])
        for model in (SmsAccount.objects.filter(biz=bank), type(bank).objects.filter(pk=bank.pk)):
            model.update(enabled=False)
            self.mo(sp_number=f"{number}01")
            Forwarder().turn()
            Pump().turn()
            SmsAccount.objects.update(enabled=True)
        assert {row.biz_id for row in SgipMo.objects.all()} == {bank.pk}
        assert [row.biz_id for row in BizMsg.objects.all()] == [bank.pk] * 2
        bank.refresh_from_db()
        account(bank, "bank-2", sp_number=number)  # which took the place of the first one
        type(bank).objects.update(enabled=True)
        SmsAccount.objects.filter(name="bank").update(enabled=False)
        self.mo(sp_number=f"{number}01")
        Forwarder().turn()
        assert published("sms.mo")[-1]["account"] == "bank-2"

    def test_one_without_an_owner_is_archived_only(self, shop: Caller, settings: Any) -> None:
        self.mo(sp_number="9999")
        Forwarder().turn()
        Pump().turn()
        assert (SgipMo.objects.get().biz_id, published("sms.mo")) == (0, [])
        settings.SMS_DEFAULT_ACCOUNT = "marketing"
        self.mo(sp_number="9999")
        Forwarder().turn()
        assert len(published("sms.mo")) == 1

    @pytest.mark.parametrize(
        ("module", "name", "at"),
        [("gateway.forwarder.forwarder", "Forwarder", "forwarder_after_mo_publish"),
         ("gateway.pump.pump", "Pump", "pump_after_mo_commit_before_forget")],
    )  # fmt: skip
    def test_killed_in_between(
        self, shop: Caller, sms_redis: Any, module: str, name: str, at: str
    ) -> None:
        mo = self.mo()
        forwarder, pump = Forwarder(), Pump()
        if name == "Pump":
            forwarder.turn()
        die(module, name, at)
        until(
            lambda: forwarder.turn() or pump.turn(),
            lambda: not sms_redis.exists(keys.mo(int(mo.id))),
        )
        assert len(published("sms.mo")) == 1
        assert SgipMo.objects.count() == 1
        account_id = SgipMo.objects.get().account_id
        assert counted() == {(account_id, "mo"): 1, (-gateway_id(), "mo"): 1}

    def test_who_takes_over_publishes_to_the_same_owner(self, shop: Caller, sms_redis: Any) -> None:
        """One that was killed after it published; the number is another system's by now."""
        mo = self.mo()
        die("gateway.forwarder.forwarder", "Forwarder", "forwarder_after_mo_publish")
        SmsAccount.objects.update(biz=Caller("other").biz)
        forwarder, pump = Forwarder(), Pump()
        until(
            lambda: forwarder.turn() or pump.turn(),
            lambda: not sms_redis.exists(keys.mo(int(mo.id))),
        )
        assert BizMsg.objects.get().biz_id == SgipMo.objects.get().biz_id == shop.biz.pk

    def test_a_forwarder_whose_lease_is_over_stores_no_owner(self, shop: Caller) -> None:
        mo = self.mo()
        take = (keys.LIST_MO, keys.MO_REPORTING, 10)
        lease = store.take(*take, 1e-6)
        until(lambda: False, lambda: bool(store.take(*take, 60.0).entries))
        assert not mo_store.rewrite([msgspec.structs.replace(mo, biz=7)], lease)
        assert mo_store.read([mo.id]) == [mo]

    def test_a_users_state_is_archived_and_published_to_nobody(self, shop: Caller) -> None:
        self.mo(kind="userrpt", user_condition=1, text="")
        Forwarder().turn()
        Pump().turn()
        row = SgipUserRpt.objects.get()
        assert (row.user_condition, row.user_number) == (1, NUMBER)
        assert (SgipMo.objects.count(), BizMsg.objects.count()) == (0, 0)
