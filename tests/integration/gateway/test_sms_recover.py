"""The database goes back to its backup, the SMS Redis does not: nothing that ended is lost."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from django.core.management import call_command
from django.db.models import Sum
from redis.exceptions import ResponseError

from gateway import recovery
from gateway.connections import sms_redis
from gateway.forwarder.forwarder import Forwarder
from gateway.lifecycle import archived_store, keys, mo_store, scripts, store
from gateway.lifecycle.messages import Finished, Mo
from gateway.models import SgipMo, SgipMt, SgipMtPart, SgipReport, SmsGateway
from gateway.pump.pump import Pump
from msgplatform.models import MinuteCounter
from notify.models import BizMsg, IdempotencyKey
from tests.support import sms_rows
from tests.support.sms_rows import Caller, report, respond, send, submit

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)


def delivered(shop: Caller, parts: int = 1) -> str:
    message = send(shop.biz, reference="order-7", idempotency_key="order-7")
    for seqno in submit(SmsGateway.objects.get().pk, parts)[message]:
        respond(seqno)
        report(seqno)
    return message


def incoming(number: int) -> None:
    mo = Mo(
        id=str(2**60 + number), gateway=1, user_number="8613800000000", sp_number="10655",
        text="退订", content=b"\x01", at=1_790_000_000.0,
    )  # fmt: skip
    assert mo_store.accept([(mo, (1, 2, number))]) == [True]


def publish() -> None:
    forwarder = Forwarder()
    while forwarder.turn():
        pass


def archive() -> None:
    pump = Pump()
    while pump.turn():
        pass


def go_back() -> None:
    """The database, to a backup that was made before all of this."""
    for model in (SgipMt, SgipMtPart, SgipReport, SgipMo, BizMsg, IdempotencyKey, MinuteCounter):
        model._default_manager.all().delete()


def state() -> dict[str, Any]:
    """What the database says of texts and MOs, but for when that was written."""
    return {
        "texts": list(
            SgipMt.objects.order_by("id").values_list("id", "final", "text", "reported_at")
        ),
        "parts": list(
            SgipMtPart.objects.order_by("mt_id", "part").values_list("mt_id", "part", "state")
        ),
        "reports": list(SgipReport.objects.order_by("mt_id", "part").values_list("mt_id", "state")),
        "mos": list(SgipMo.objects.order_by("id").values_list("id", "text", "content", "biz_id")),
        "events": sorted((row.event_type, bytes(row.payload)) for row in BizMsg.objects.all()),
        "counted": sorted(
            MinuteCounter.objects.filter(flow="sms").values_list("name").annotate(Sum("value"))
        ),
    }


def test_what_was_archived_since_the_backup_is_there_again(shop: Caller) -> None:
    message = delivered(shop, parts=2)
    incoming(1)
    publish()
    archive()
    assert not sms_redis().exists(keys.mt(int(message)))
    before = state()
    assert (len(before["texts"]), len(before["mos"]), len(before["events"])) == (1, 1, 2)
    go_back()
    assert shop.get(f"/api/v1/sms/{message}").status_code == 404
    call_command("sms_recover", "--dry-run")
    assert not SgipMt.objects.exists()
    total = recovery.recover()
    assert (total.texts, total.mos, total.waiting) == (1, 1, 0)
    assert state() == before
    assert shop.get(f"/api/v1/sms/{message}").json()["state"] == "delivered"
    again = recovery.recover()
    assert (again.texts, again.mos, state()) == (0, 0, before), "it can be repeated"


def test_an_event_that_was_published_and_not_archived_yet(shop: Caller) -> None:
    delivered(shop)
    incoming(1)
    publish()
    before = state()["events"]
    go_back()
    assert recovery.recover().waiting == 2
    assert state()["events"] == before
    archive()
    assert (SgipMt.objects.get().final, SgipMo.objects.count()) == ("delivered", 1)


def test_of_two_endings_the_higher_one_stays(shop: Caller) -> None:
    """A message that ended as unknown, and whose Report came after all."""
    message = send(shop.biz)
    (seqno,) = submit(SmsGateway.objects.get().pk, wait=1e-6)[message]
    respond(seqno)
    publish()  # overdue
    pump = Pump()
    report(seqno)
    publish()
    pump.turn()
    archive()
    go_back()
    recovery.recover()
    assert SgipMt.objects.get().final == "delivered"
    told = [json.loads(payload)["state"] for _, payload in state()["events"]]
    assert "delivered" in told


def test_the_report_of_a_later_part_with_the_same_ending(
    shop: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text failed by its first part, and was archived; then its second part was reported on."""
    message = send(shop.biz)
    first, second = submit(SmsGateway.objects.get().pk, parts=2)[message]
    for seqno in (first, second):
        respond(seqno)
    report(first, state=2, error=25)
    publish()
    forget = store.forget

    def report_before(messages: Iterable[Finished]) -> set[str]:
        monkeypatch.setattr(store, "forget", forget)
        report(second)
        return forget(messages)

    monkeypatch.setattr(store, "forget", report_before)
    archive()
    assert not sms_redis().exists(keys.mt(int(message)))
    before = state()
    assert before["reports"] == [(int(message), 2), (int(message), 0)]
    go_back()
    total = recovery.recover(dry_run=True)
    assert (total.texts, total.waiting) == (1, 0)
    total = recovery.recover()
    assert (total.texts, total.waiting) == (1, 0)
    assert state() == before
    assert recovery.recover().texts == 0
    assert state() == before, "it can be repeated"


def test_a_late_report_in_the_archive_stays_there(shop: Caller) -> None:
    """The archive knows more than the SMS Redis kept: nothing is to be recovered."""
    message = send(shop.biz)
    (seqno,) = submit(SmsGateway.objects.get().pk, wait=1e-6)[message]
    respond(seqno)
    publish()  # overdue
    archive()
    report(seqno)
    archive()  # from the list of Reports that found no key
    before = state()
    assert before["texts"][0][1] == "delivered"
    assert recovery.recover().texts == 0
    assert state() == before


def test_what_is_kept_is_bounded_by_hours_and_by_bytes(
    shop: Caller, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    batch = archived_store.Batch(mos=[Mo(id="1", user_number="1", sp_number="1")])

    def keep(number: int) -> None:
        mo = Mo(id=str(number), user_number="1", sp_number="1", text="x" * number)
        archived_store.keep(archived_store.Batch(mos=[mo]))

    keep(1)
    size = int(sms_redis().get(keys.ARCHIVED_BYTES) or 0)
    monkeypatch.setattr(archived_store, "MAX_BYTES", size * 3)
    for number in range(2, 50):
        keep(number)
    kept = [mo.id for batch in archived_store.batches() for mo in batch.mos]
    assert kept[-1] == "49"
    assert 1 <= len(kept) <= 3
    lengths = sum(len(member) for member in sms_redis().zrange(keys.ARCHIVED, 0, -1))
    assert int(sms_redis().get(keys.ARCHIVED_BYTES) or 0) == lengths <= size * 3
    client: Any = sms_redis()
    client.zadd(keys.ARCHIVED, dict.fromkeys(client.zrange(keys.ARCHIVED, 0, -1), 1))
    keep(50)
    assert [mo.id for batch in archived_store.batches() for mo in batch.mos] == ["50"]
    client.zadd(keys.ARCHIVED, dict.fromkeys(map(str, range(2500)), 1))  # the hours were fewer
    client.incrby(keys.ARCHIVED_BYTES, sum(len(str(number)) for number in range(2500)))
    for number, count in ((51, 1502), (52, 503)):  # a thousand of them in one script
        keep(number)
        assert client.zcard(keys.ARCHIVED) == count
    settings.SMS_KEEP_ARCHIVED_HOURS = 0
    archived_store.keep(batch)
    assert client.zcard(keys.ARCHIVED) == count


def test_pumps_that_remove_old_batches_meanwhile_leave_no_other_out(shop: Caller) -> None:
    for number in range(1, 6):
        mo = Mo(id=str(number), user_number="1", sp_number="1")
        archived_store.keep(archived_store.Batch(mos=[mo]))
    client: Any = sms_redis()
    kept = client.zrange(keys.ARCHIVED, 0, -1, withscores=True)
    client.zadd(keys.ARCHIVED, {kept[2][0]: kept[1][1]})  # two of one time

    def ids_of(batches: Iterable[archived_store.Batch]) -> list[str]:
        return sorted(mo.id for batch in batches for mo in batch.mos)

    walk = archived_store.batches()
    assert ids_of([next(walk)]) == ["1"]
    client.zremrangebyrank(keys.ARCHIVED, 0, 0)
    assert ids_of(walk) == ["2", "3", "4", "5"]
    sizes, after = list[int](), ""
    while after or not sizes:
        members, after = archived_store.page(after, 1)
        sizes.append(len(members))
    assert sizes == [2, 1, 1, 0]


def test_a_full_redis_is_emptied_all_the_same(shop: Caller) -> None:
    message = delivered(shop)
    publish()
    client: Any = sms_redis()
    client.config_set("maxmemory", 1)
    try:
        archive()
    finally:
        client.config_set("maxmemory", 0)
    assert SgipMt.objects.get().final == "delivered"
    assert not client.exists(keys.mt(int(message)))
    assert not client.exists(keys.ARCHIVED)


def test_so_is_one_before_redis_7_which_only_quotes_the_error_in_a_script(
    shop: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered(shop)
    publish()
    run = scripts.run

    def refuse(name: str, *arguments: Any) -> Any:
        if name == "keep":
            raise ResponseError(
                "Error running script (call to f_1f2e): @user_script:93: @user_script: 93: "
                "-OOM command not allowed when used memory > 'maxmemory'."
            )
        return run(name, *arguments)

    monkeypatch.setattr(scripts, "run", refuse)
    archive()
    assert SgipMt.objects.get().final == "delivered"
    assert not sms_redis().keys(f"{keys.PREFIX}mt:*")
