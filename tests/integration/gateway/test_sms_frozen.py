"""A pump or a forwarder that stands still beyond its lease, and goes on when others have done its
work: no ending goes back to one of a lower rank, in the archive or in what is published."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway import person_data
from gateway.forwarder.forwarder import Forwarder
from gateway.lifecycle import archived_store, keys, mo_store, store
from gateway.lifecycle.messages import Mo
from gateway.models import SgipMo, SgipMt, SgipMtPart, SgipReport, SmsGateway
from gateway.pump import rows
from gateway.pump.pump import Pump
from msgplatform.company.person_data import people
from msgplatform.core.data import ids
from msgplatform.core.person.stores import all_slices
from msgplatform.core.personal import MARK
from msgplatform.models import Alert, MinuteCounter
from notify.models import BizMsg
from tests.support import sms_rows
from tests.support.children import Child, child
from tests.support.sms_rows import Caller, lasting_keys, report, respond, send, submit
from tests.waiting import pause

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)
ONE_TURN = """
from {package} import {module}
{module}.LEASE_SECONDS = 0.05
wait()
{module}.{name}().turn()
"""
PUMP, FORWARDER = ("gateway.pump", "pump", "Pump"), ("gateway.forwarder", "forwarder", "Forwarder")


@contextmanager
def frozen(program: tuple[str, str, str], at: str) -> Iterator[Child]:
    """One turn in a process that stands still at the failpoint; the lease is over soon."""
    package, module, name = program
    code = ONE_TURN.format(package=package, module=module, name=name)
    with child(code, MSGPLATFORM_FAILPOINT=f"{at}:1:STOP") as process:
        process.ready()
        process.go()
        process.frozen()
        yield process


def thaw(process: Child) -> None:
    process.thaw()
    assert process.ended() == 0
    assert not Alert.objects.exists()


def unknown(shop: Caller) -> tuple[str, int]:
    """A message whose Report did not come in time, and its seqno."""
    message = send(shop.biz)
    (seqno,) = submit(SmsGateway.objects.get().pk, wait=1e-6)[message]
    respond(seqno)
    assert store.end_overdue(10) == 1
    return message, seqno


def until(turn: Callable[[], bool], done: Callable[[], object]) -> None:
    begun = time.monotonic()
    while not done():
        assert time.monotonic() < begun + 180
        if not turn():
            pause(begun, 0.01)


def both() -> bool:
    return Forwarder().turn() or Pump().turn()


def is_gone(sms_redis: Any, message: str) -> bool:
    """Archived: Redis has forgotten it."""
    return not sms_redis.exists(keys.mt(int(message)))


def erase_person() -> None:
    """The last pass of an erasure: nothing of the person is on its way."""
    person = people.person_of({"phones": ["13800000000"]})
    for place in person_data.stores():
        for part in all_slices(place, person):
            place.erase(person, part.rows)


def states() -> list[str]:
    rows = BizMsg.objects.order_by("id")
    return [json.loads(bytes(row.payload))["state"] for row in rows]


def counted() -> dict[str, int]:
    """What the statistics of the gateway say."""
    subject = -SmsGateway.objects.get().pk
    counters = MinuteCounter.objects.filter(flow="sms", subject=subject).exclude(value=0)
    return dict(counters.values_list("name", "value"))


def assert_delivered() -> None:
    """The archive has the real ending, with its Report and its part, counted once."""
    assert SgipMt.objects.get().final == "delivered"
    assert SgipReport.objects.get().state == 0
    assert SgipMtPart.objects.get().state == 0
    assert counted() == {"delivered": 1, "segments": 1}


class TestPump:
    @pytest.mark.parametrize("late", [True, False])
    def test_it_writes_nothing_over_what_came_since(
        self, shop: Caller, sms_redis: Any, late: bool
    ) -> None:
        """The Report comes after another pump has archived `unknown`, or before."""
        message, seqno = unknown(shop)
        Forwarder().turn()
        with frozen(PUMP, "pump_after_read") as process:
            if late:
                until(Pump().turn, lambda: is_gone(sms_redis, message))
            assert report(seqno) == ("unmatched" if late else "matched")
            until(both, lambda: len(states()) == 2 and is_gone(sms_redis, message))
            thaw(process)
        assert_delivered()
        assert states() == ["unknown", "delivered"]
        until(Pump().turn, lambda: len(lasting_keys(sms_redis)) == len(keys.COUNTS))

    @pytest.mark.parametrize(
        "at", ["pump_after_commit_before_forget", "pump_after_mo_commit_before_forget"]
    )
    def test_it_keeps_no_copy_of_a_person_who_was_erased_since(
        self, shop: Caller, sms_redis: Any, at: str
    ) -> None:
        unknown(shop)
        mo = Mo(
            id=str(ids.new(0)), user_number="8613800000000", sp_number="10655", text="TD",
            at=time.time(),
        )  # fmt: skip
        assert mo_store.accept([(mo, (1, 2, 3))]) == [True]
        Forwarder().turn()
        with frozen(PUMP, at) as process:
            until(Pump().turn, lambda: not sms_redis.keys(f"{keys.PREFIX}m[to]:*"))
            erase_person()
            thaw(process)
        batches = list(archived_store.batches())
        numbers = [message.mt.user_number for batch in batches for message in batch.messages]
        numbers += [mo.user_number for batch in batches for mo in batch.mos]
        assert numbers == [MARK, MARK]
        assert SgipMt.objects.get().user_number == SgipMo.objects.get().user_number == MARK

    def test_a_lower_ending_replaces_nothing(self, shop: Caller) -> None:
        """Whatever let it come to write."""
        message, seqno = unknown(shop)
        read = store.read([message])
        report(seqno)
        rows.write_messages(store.read([message]), lambda: True)
        rows.write_messages(read, lambda: True)
        assert_delivered()

    def test_one_that_lost_its_lease_before_anybody_wrote(self, shop: Caller) -> None:
        """It leaves no row, and who took over finds none."""
        _, seqno = unknown(shop)
        Forwarder().turn()
        with frozen(PUMP, "pump_after_read") as process:
            report(seqno)
            Forwarder().turn()
            take = (keys.LIST_FINISH, keys.FINISHING, 10, 60)
            until(bool, lambda: store.take(*take).entries)
            thaw(process)
        assert not SgipMt.objects.exists()


class TestForwarder:
    @pytest.mark.parametrize(
        ("at", "published"),
        [
            ("forwarder_after_read", ["delivered"]),
            ("forwarder_after_announce", ["unknown", "delivered"]),
        ],
    )
    def test_it_tells_no_lower_ending_after_the_real_one(
        self, shop: Caller, sms_redis: Any, at: str, published: list[str]
    ) -> None:
        message, seqno = unknown(shop)
        with frozen(FORWARDER, at) as process:
            assert report(seqno) == "matched"
            until(Forwarder().turn, lambda: "delivered" in states())
            until(Pump().turn, lambda: is_gone(sms_redis, message))
            thaw(process)
        assert states() == published
        until(both, lambda: len(lasting_keys(sms_redis)) == len(keys.COUNTS))
        assert states() == published
        assert_delivered()

    def test_who_takes_over_tells_the_very_event(self, shop: Caller) -> None:
        """One that was killed after it announced: the account has another name by now."""
        unknown(shop)
        with frozen(FORWARDER, "forwarder_after_announce") as process:
            process.kill()
        shop.biz.smsaccount_set.update(name="renamed")
        until(Forwarder().turn, states)
        event = json.loads(bytes(BizMsg.objects.get().payload))
        assert (event["state"], event["account"]) == ("unknown", "marketing")

    def test_who_takes_over_knows_more(self, shop: Caller, sms_redis: Any) -> None:
        """One that was killed after it published; then another part's Report came."""
        message = send(shop.biz)
        first, second = submit(SmsGateway.objects.get().pk, parts=2)[message]
        report(first, state=2, error=25)
        with frozen(FORWARDER, "forwarder_after_publish") as process:
            assert report(second) == "matched"
            process.kill()
        until(both, lambda: is_gone(sms_redis, message))
        assert states() == ["failed"]
        assert not Alert.objects.exists()


def test_a_pump_with_another_late_report(shop: Caller) -> None:
    """Two Reports that contradict each other: the first one written counts, and is published."""
    _, seqno = unknown(shop)
    Forwarder().turn()
    Pump().turn()
    assert report(seqno) == "unmatched"
    with frozen(PUMP, "pump_unmatched_before_write") as process:
        assert report(seqno, state=2, error=25) == "unmatched"
        Pump().turn()
        thaw(process)
    assert SgipMt.objects.get().final == "failed"
    assert SgipMtPart.objects.get().state == 2
    assert SgipReport.objects.count() == 2
    assert states() == ["unknown", "failed"]
    assert counted() == {"failed": 1, "error 25": 1, "segments": 1}


def test_a_pump_with_a_late_report_of_a_person_who_was_erased_since(
    shop: Caller, sms_redis: Any
) -> None:
    _, seqno = unknown(shop)
    Forwarder().turn()
    Pump().turn()
    report(seqno)
    with frozen(PUMP, "pump_unmatched_before_write") as process:
        sms_redis.zadd(keys.UNMATCHED, dict.fromkeys(sms_redis.zrange(keys.UNMATCHED, 0, -1), 0))
        Pump().turn()
        erase_person()
        thaw(process)
    assert SgipReport.objects.get().user_number == MARK
    assert SgipMt.objects.get().final == "delivered"


def test_a_pump_killed_between_a_late_report_and_its_event(shop: Caller, sms_redis: Any) -> None:
    _, seqno = unknown(shop)
    Forwarder().turn()
    Pump().turn()
    report(seqno)
    with frozen(PUMP, "pump_unmatched_before_publish") as process:
        process.kill()
    assert states() == ["unknown"]
    sms_redis.zadd(keys.UNMATCHED, dict.fromkeys(sms_redis.zrange(keys.UNMATCHED, 0, -1), 0))
    Pump().turn()
    assert states() == ["unknown", "delivered"]
    assert_delivered()
