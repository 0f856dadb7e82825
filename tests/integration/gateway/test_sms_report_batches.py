"""Reports in batches: an account's endings as events `sms.reports`, each message once."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from gateway import checks, notifications, recovery
from gateway.connections import sms_redis
from gateway.forwarder import forwarder as forwarder_module
from gateway.forwarder.forwarder import Forwarder
from gateway.lifecycle import keys, store
from gateway.models import SgipMt, SmsAccount, SmsGateway
from gateway.pump.pump import Pump
from msgplatform.company.person_data import people
from msgplatform.company.person_data.people import all_stores
from msgplatform.core.data import ids, sql
from msgplatform.models import Biz
from notify.intake.intake import Event
from notify.models import BizMsg, IdempotencyKey, ReceiveMsg
from tests.support import notify_rows, sms_rows
from tests.support.sms_rows import Caller, account, report, respond, send, submit
from tests.waiting import pause

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _batches(shop: Caller) -> None:
    SmsAccount.objects.update(report_batches=True)


def ended(*messages: str, wait: float = 3600.0) -> dict[str, int]:
    """The seqnos of these, whose Submits were accepted."""
    seqnos = {id: seqno for id, (seqno,) in submit(SmsGateway.objects.get().pk, 1, wait).items()}
    for message in messages:
        respond(seqnos[message])
    return seqnos


def delivered(*messages: str) -> None:
    for seqno in ended(*messages).values():
        report(seqno)


def events() -> list[tuple[str, list[dict[str, Any]]]]:
    """The type and the Reports of each event."""
    rows = BizMsg.objects.order_by("id")
    return [(row.event_type, json.loads(bytes(row.payload))["reports"]) for row in rows]


def reported_ids() -> list[str]:
    return [entry["id"] for _type, reports in events() for entry in reports]


def archive() -> None:
    pump = Pump()
    while pump.turn():
        pass


def test_endings_share_an_event(shop: Caller, admin_client: Client) -> None:
    first, second, third = (send(shop.biz, reference=f"order-{n}") for n in range(3))
    seqnos = ended(first, second, third)
    report(seqnos[first])
    report(seqnos[second], state=2, error=25)
    report(seqnos[third])
    assert Forwarder().turn()
    ((event_type, reports),) = events()
    assert event_type == "sms.reports"
    assert {entry["id"]: (entry["state"], entry["error_code"]) for entry in reports} == {
        first: ("delivered", 0), second: ("failed", 25), third: ("delivered", 0),
    }  # fmt: skip
    assert {entry["reference"] for entry in reports} == {"order-0", "order-1", "order-2"}
    archive()
    event = BizMsg.objects.get()
    assert set(SgipMt.objects.values_list("event_id", flat=True)) == {event.pk}
    page = admin_client.get(reverse("console:message", args=["sms", second])).content.decode()
    assert "sms.reports: failed" in page
    assert reverse("console:message", args=["notify", event.pk]) in page


def test_each_system_has_its_own_and_who_takes_single_ones_gets_them(shop: Caller) -> None:
    others = Biz.objects.create(name="others"), Biz.objects.create(name="single")
    account(others[0], "others", report_batches=True)
    account(others[1], "single")
    sent = [send(biz) for biz in (shop.biz, shop.biz, *others[:1] * 2, others[1])]
    delivered(*sent)
    Forwarder().turn()
    assert sorted(BizMsg.objects.values_list("biz__name", "event_type")) == [
        ("others", "sms.reports"), ("shop", "sms.reports"), ("single", "sms.report"),
    ]  # fmt: skip


def test_an_ending_that_a_higher_one_may_replace_comes_alone_and_first(shop: Caller) -> None:
    late, other = send(shop.biz), send(shop.biz)
    seqnos = ended(late, other, wait=1e-6)
    report(seqnos[other])
    Forwarder().turn()
    assert sorted(
        (len(reports), entry["id"], entry["state"]) for _, reports in events() for entry in reports
    ) == sorted([(1, late, "unknown"), (1, other, "delivered")])
    report(seqnos[late])
    Forwarder().turn()
    assert [type_ for type_, _ in events()] == ["sms.reports"] * 3
    assert [r["state"] for _, some in events() for r in some if r["id"] == late] == [
        "unknown", "delivered",
    ]  # fmt: skip
    archive()
    assert set(SgipMt.objects.values_list("final", flat=True)) == {"delivered"}


def test_the_same_batch_again_is_the_same_event(
    shop: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forwarder is killed before the messages go on; the next one has the same."""
    sent = [send(shop.biz) for _ in range(3)]
    seqnos = ended(*sent)
    for message in reversed(sent):  # not in the order of their ids
        report(seqnos[message])
    dies(monkeypatch)
    assert len(events()) == 1
    later = send(shop.biz)
    delivered(later)
    next_forwarder()
    assert sorted(reported_ids()) == sorted([*sent, later])
    archive()
    first = BizMsg.objects.earliest("id")
    assert SgipMt.objects.filter(event_id=first.pk).count() == 3


def test_a_message_that_stands_in_the_list_twice_is_published_once(shop: Caller) -> None:
    """Its Report came after it had ended as unknown, and before a forwarder looked."""
    late, other = send(shop.biz), send(shop.biz)
    seqnos = ended(late, other, wait=1e-6)
    report(seqnos[other])
    assert store.end_overdue(10) == 1
    report(seqnos[late])
    client: Any = sms_redis()
    assert client.lrange(keys.LIST_REPORT, 0, -1).count(late.encode()) == 2
    next_forwarder()
    assert sorted(reported_ids()) == sorted([late, other])
    assert client.exists(keys.LIST_REPORT, keys.REPORTING) == 0
    archive()
    assert set(SgipMt.objects.values_list("final", "event_id")) == {
        ("delivered", BizMsg.objects.get().pk)
    }


def test_a_batch_that_is_known_with_more_told_than_now_keeps_its_messages(
    shop: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account got another name in between: the event is there, with the name of then."""
    sent = [send(shop.biz) for _ in range(2)]
    delivered(*sent)
    dies(monkeypatch)
    SmsAccount.objects.update(name="renamed")
    next_forwarder()
    assert sorted(reported_ids()) == sorted(sent)
    archive()
    assert set(SgipMt.objects.values_list("event_id", flat=True)) == {BizMsg.objects.get().pk}


def dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that ends when its events are published, and a lease that is over at once."""
    with monkeypatch.context() as patch:
        patch.setattr(forwarder_module, "LEASE_SECONDS", 0.001)
        patch.setattr(store, "finish_published", _killed)
        patch.setattr(store, "is_leased", lambda *_: True)
        with pytest.raises(KeyboardInterrupt):
            Forwarder().turn()


def _killed(*_: Any) -> None:
    raise KeyboardInterrupt


def next_forwarder() -> None:
    forwarder, client = Forwarder(), sms_redis()
    begun = time.monotonic()
    while client.zcard(keys.REPORTING) or client.llen(keys.LIST_REPORT):
        assert time.monotonic() < begun + 180
        if not forwarder.turn():
            pause(begun, 0.01)


# -- what reads events ---------------------------------------------------------------------------
def test_a_person_is_erased_while_the_others_reports_wait(shop: Caller) -> None:
    hers, his = send(shop.biz, to="13800000001"), send(shop.biz, to="13800000002")
    delivered_to = {hers: "8613800000001", his: "8613800000002"}
    for message, seqno in ended(hers, his).items():
        report(seqno, number=delivered_to[message])
    Forwarder().turn()
    event = BizMsg.objects.get()
    BizMsg.objects.update(state=BizMsg.State.DISTRIBUTED)
    waiting = ReceiveMsg.objects.create(
        id=ids.new(0), msg_id=event.pk, biz=shop.biz,
        biz_receive=notify_rows.subscription(shop.biz), next_at=sql.now(),
        created_at=sql.now(), updated_at=sql.now(),
    )  # fmt: skip
    (messages,) = [each for each in all_stores() if each.name == "notify.messages"]
    person = people.person_of({"phones": ["13800000001"]})
    rows = messages.find(person, "").rows
    assert [row.is_open for row in rows] == [False], "nobody waits for it, nobody skips it"
    assert json.loads(rows[0].data["payload"])["reports"].count("[erased]") == 1, "exported alone"
    assert his not in rows[0].data["payload"]
    assert messages.erase(person, rows) == 1
    ((_, reports),) = events()
    numbers = {entry["id"]: entry["to"] for entry in reports}
    assert numbers[his] == "8613800000002"
    assert "13800000001" not in numbers[hers]
    waiting.refresh_from_db()
    assert waiting.status == ReceiveMsg.Status.PENDING
    assert messages.find(person, "").rows == []


def test_an_event_that_a_sender_has_is_erased_afterwards_and_never_skipped(shop: Caller) -> None:
    hers, his = send(shop.biz, to="13800000001"), send(shop.biz, to="13800000002")
    for message, seqno in ended(hers, his).items():
        report(seqno, number=f"861380000000{1 if message == hers else 2}")
    Forwarder().turn()
    BizMsg.objects.update(state=BizMsg.State.DISTRIBUTED)
    waiting, sending = (
        ReceiveMsg.objects.create(
            id=ids.new(0), msg_id=BizMsg.objects.get().pk, biz=shop.biz, status=status,
            biz_receive=notify_rows.subscription(shop.biz, name), updated_at=sql.now(),
            created_at=sql.now(), next_at=sql.now() + timedelta(minutes=2),
        )
        for name, status in (("one", ReceiveMsg.Status.PENDING), ("two", ReceiveMsg.Status.QUEUED))
    )  # fmt: skip
    (messages,) = [each for each in all_stores() if each.name == "notify.messages"]
    person = people.person_of({"phones": ["13800000001"]})
    rows = messages.find(person, "").rows
    assert [row.is_open for row in rows] == [True]
    messages.end(person, rows)
    assert messages.erase(person, rows) == 0
    waiting.refresh_from_db()
    assert waiting.status == ReceiveMsg.Status.PENDING
    ReceiveMsg.objects.filter(pk=sending.pk).update(status=ReceiveMsg.Status.DELIVERED)
    rows = messages.find(person, "").rows
    assert [row.is_open for row in rows] == [False]
    assert messages.erase(person, rows) == 1


def test_after_a_restore_what_is_gone_is_published_and_what_stayed_is_not(shop: Caller) -> None:
    sent = [send(shop.biz) for _ in range(2)]
    delivered(*sent)
    Forwarder().turn()
    recovery.recover()
    assert len(events()) == 1, "they wait for the archive, and their event is there"
    archive()
    SgipMt.objects.all().delete()
    recovery.recover()
    assert (len(events()), SgipMt.objects.count()) == (1, 2)
    keys_before = set(IdempotencyKey.objects.values_list("key", flat=True))
    SgipMt.objects.all().delete()
    BizMsg.objects.all().delete()
    IdempotencyKey.objects.all().delete()
    recovery.recover()
    assert sorted(reported_ids()) == sorted(sent)
    assert set(IdempotencyKey.objects.values_list("key", flat=True)) == keys_before
    assert [row.event_id for row in SgipMt.objects.all()] == [BizMsg.objects.get().pk] * 2


def test_after_a_restore_what_waits_for_the_archive_gets_its_new_event(
    shop: Caller, admin_client: Client
) -> None:
    sent = [send(shop.biz) for _ in range(2)]
    delivered(*sent)
    Forwarder().turn()
    lost_event = BizMsg.objects.get().pk
    BizMsg.objects.all().delete()
    IdempotencyKey.objects.all().delete()
    assert recovery.recover().waiting == 2
    event = BizMsg.objects.get().pk
    assert event != lost_event
    archive()
    assert [row.event_id for row in SgipMt.objects.all()] == [event] * 2
    page = admin_client.get(reverse("console:message", args=["sms", sent[0]])).content.decode()
    assert reverse("console:message", args=["notify", event]) in page


def test_an_account_whose_reports_nobody_gets_is_told(shop: Caller, admin_client: Client) -> None:
    row = SmsAccount.objects.get()
    address = reverse("admin:gateway_smsaccount_change", args=[row.pk])

    def saved() -> str:
        """The page after the form is saved as it is."""
        form = admin_client.get(address).context["adminform"].form
        data = {name: form[name].value() for name in form.fields}
        data = {name: "" if value is None else value for name, value in data.items()}
        data = {name: value for name, value in data.items() if value is not False}
        return admin_client.post(address, data, follow=True).content.decode()

    text = "No subscription of shop takes sms.reports"
    assert text in saved()
    assert [each.id for each in checks.rows_check()] == ["gateway.W215"]
    subscription = notify_rows.subscription(shop.biz, event_types=["sms.report"])
    assert text in saved()
    subscription.event_types = ["sms.*"]
    subscription.save()
    assert text not in saved()
    assert checks.rows_check() == []


# -- payloads ------------------------------------------------------------------------------------
def singles(count: int, biz: int = 1) -> Iterator[tuple[str, Event]]:
    for number in range(1000, 1000 + count):
        text = b'{"reports":[{"id":"%d"}]}' % number
        yield str(number), Event(biz, "sms.reports", text, f"sms.report:{number}:delivered")


def test_an_event_has_two_hundred_at_most() -> None:
    batches = notifications.in_batches(dict(singles(401)))
    assert [len(ids) for _, ids in batches] == [200, 200, 1]
    reports = [
        entry["id"] for event, _ in batches for entry in json.loads(event.payload)["reports"]
    ]
    assert reports == [str(number) for number in range(1000, 1401)]
    assert batches[-1][0].idempotency_key == "sms.report:1400:delivered"
    assert len({event.idempotency_key for event, _ in batches}) == 3


def test_the_longest_reports_fit_into_an_event(shop: Caller) -> None:
    row = SgipMt(
        id=2**62, biz_id=shop.biz.pk, account_id=SmsAccount.objects.get().pk, user_number="8" * 21,
        reference='"' * 64, final="delivered", error_code=0, error="界" * 200, parts=99,
        accepted_at=sql.now(), submitted_at=sql.now(), reported_at=sql.now(),
    )  # fmt: skip
    event = notifications.late_report(row)
    assert event.event_type == "sms.reports"
    assert len(event.payload) * notifications.MAX_REPORTS < 256 * 1024
