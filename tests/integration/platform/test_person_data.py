"""One person's data: found, exported and erased, and nobody else's."""

import json
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings
from redis.exceptions import ConnectionError as RedisConnectionError

from crmsync import copies, orders
from crmsync.models import Item, LandingPage, Lead, Operation, Record, RecoveryEntry
from crmsync.orders import Request
from gateway.checks import REPORT_HOURS
from gateway.forwarder.forwarder import Forwarder
from gateway.lifecycle import mo_store, store
from gateway.lifecycle.messages import Mo
from gateway.models import SgipMo, SgipMt, SmsGateway
from gateway.pump.pump import Pump
from msgplatform.company.person_data import erasure_list, erasures, people, runner
from msgplatform.company.person_data.models import Erasure
from msgplatform.company.person_data.people import all_stores
from msgplatform.company.person_data.runner import ErasureRunner
from msgplatform.core import alerts, personal
from msgplatform.core.daemons.snapshot import Snapshot
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import InvalidInput, NotNow, Unavailable
from msgplatform.core.person.identity import Person
from msgplatform.core.person.stores import PersonStore, Row, Slice
from msgplatform.core.personal import MARK
from msgplatform.core.secrets import encryption
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, AuditLog, Biz, MinuteCounter, SavedFilter
from notify.feed import person_data, users
from notify.feed.actions.actions import resend_events
from notify.feed.dispatcher import queue
from notify.feed.intake import posts, relations
from notify.feed.intake.posts import Post
from notify.feed.intake.relations import Change
from notify.feed.models import EventQueue, Feed, FeedBroadcast, FeedUser, Friend
from notify.feed.models.events import UpkeepEvent, add_upkeep
from notify.feed.monitor import conditions
from notify.models import (
    Attempt,
    BizMsg,
    EventType,
    ReceiveMsg,
)  # fmt: skip
from notify.models.subscriptions import DEFAULT_SCHEDULE
from tests.integration.crmsync import sync_support
from tests.integration.gateway import sms_messages
from tests.servers import Servers
from tests.support import (
    archive_support,
    feed_rows,
    lock_waits,
    notify_rows,
    sms_rows,
    table_rows,
)
from tests.support.api_server import Server
from tests.support.person_world import (
    ANN,
    BOB,
    FIELDS,
    Someone,
    holders,
    of_others,
    payload,
    redis_keys,
    tables,
)
from tests.support.sms_rows import Caller

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)
_State = Erasure.State
# Rows that the erasure itself writes.
_OWN_TABLES = {"person_erasure", "msgplatform_auditlog", "id_node", "msgplatform_idnode"}


@pytest.fixture(autouse=True)
def list_of_its_own(tmp_path: Path, settings: Settings) -> None:
    settings.STATE_DIR = tmp_path


def identifiers(someone: Someone) -> dict[str, list[str]]:
    return {"phones": [someone.spellings[2]], "emails": [someone.email.upper()],
            "users": [f"shop/{someone.uid}"]}  # fmt: skip


def run() -> None:
    """Until no erasure has anything to do now."""
    runner = ErasureRunner()
    while runner.turn():
        pass


def wait_no_more() -> None:
    Erasure.objects.update(lease_until=None)


def erase(someone: Someone, **options: Any) -> Erasure:
    row = erasures.start(identifiers(someone), "asked by mail", options.pop("ends", False), "eve")
    run()
    row.refresh_from_db()
    return row


# -- what each flow holds ------------------------------------------------------------------------
def sms_of(biz: Biz, someone: Someone) -> None:
    """A delivered text, an MO, and a text to somebody else that names the person; all archived."""
    for to, text in ((someone.spellings[1], f"您好 {someone.name}"),):
        sms_rows.send(biz, to=to, text=text, reference=someone.phone)
    mo = Mo(
        id=str(ids.new(0)), gateway=1, user_number=f"86{someone.phone}", sp_number="10655",
        text=f"I am {someone.name}", content=b"\x01", at=1_790_000_000.0,
    )  # fmt: skip
    mo_store.accept([(mo, (1, 2, int(mo.id) & 0xFFFF))])
    for seqnos in sms_rows.submit(SmsGateway.objects.get().pk).values():
        for seqno in seqnos:
            sms_rows.respond(seqno)
            sms_rows.report(seqno, number=f"86{someone.phone}")


def archive_sms() -> None:
    for worker in (Forwarder(), Pump()):
        while worker.turn():
            pass


def events_of(biz: Biz, someone: Someone) -> None:
    """A delivered event with the answer of its consumer, and an archived one."""
    row = notify_rows.BizReceive.objects.first() or notify_rows.subscription(biz)
    hot = notify_rows.publish(biz, payload=payload(someone))
    status = ReceiveMsg.Status.DELIVERED
    BizMsg.objects.filter(id__in=hot).update(state=BizMsg.State.DISTRIBUTED)
    for pk in hot:
        delivery = ReceiveMsg.objects.create(
            id=ids.new(0), msg_id=pk, biz=biz, biz_receive=row, status=status, next_at=sql.now(),
            created_at=sql.now(), updated_at=sql.now(),
        )  # fmt: skip
        Attempt.objects.create(
            id=ids.new(0), copy=delivery, claim="c", number=1, at=sql.now(), seconds=0.1,
            http_status=200, response_body=f"thank you, {someone.name}",
        )  # fmt: skip
    archive_support.message(row, status, payload=payload(someone), key=f"k-{someone.phone}",
                            answer=f"hello {someone.name}")  # fmt: skip


def feed_of(biz: Biz, someone: Someone) -> None:
    relations.change_many([
        Change(biz.pk, "befriend", someone.uid, "reader-1"),
        Change(biz.pk, "follow", "reader-2", someone.uid),
    ])  # fmt: skip
    feed_rows.visited(biz, "reader-1", "reader-2", someone.uid)
    posts.add(Post(biz.pk, someone.uid, f"this is {someone.name}", "friend"))
    posts.add(Post(biz.pk, "reader-1", "hello", "friend"))
    feed_rows.drain()


def lead_of(biz: Biz, someone: Someone) -> Lead:
    """A lead with a record at a CRM, what was sent, and what the CRM said."""
    policy = sync_support.Policy.objects.first() or sync_support.hive()
    page, _ = LandingPage.objects.get_or_create(biz=biz, title="spring", appkey="spring-1")
    lead = Lead.objects.create(
        id=ids.new(0), biz=biz, appkey=page.appkey, name=someone.name, phone=someone.spellings[3],
        uid=someone.uid, extra={"email": someone.email},
    )  # fmt: skip
    request = Request(str(lead.pk), 1, {"name": someone.name, "phone": someone.phone}, previous=0)
    operation = sync_support.new_operation(policy, [request])
    copies.keep(operation)
    record = Record.objects.create(
        id=ids.new(0), policy_id=policy.pk, key=str(lead.pk), version=1,
        operation_id=operation.pk, digest=orders.digest(request), state=Record.State.CONFIRMED,
        updated_at=sql.now(),
    )  # fmt: skip
    Item.objects.create(
        id=ids.new(0), operation_id=operation.pk, record_id=record.pk, crm_id=policy.crm_id,
        version=1, attempt=1, outcome="Rejected", at=sql.now(), message=f"{someone.name} is known",
    )  # fmt: skip
    RecoveryEntry.objects.create(
        policy_id=policy.pk, crm_id=policy.crm_id, operation_id=operation.pk, record_id=record.pk,
        error_class="rejected", reason=f"no {someone.name}", created_at=sql.now(),
        request=json.dumps({"name": someone.name}).encode(), state=RecoveryEntry.State.SOLVED,
    )  # fmt: skip
    return lead


def texts_of(someone: Someone) -> None:
    text = f"or {someone.email}"
    alerts.raise_alert("test.kind", f"Call {someone.phone}", text, key=f"test:{someone.phone[-4:]}")
    AuditLog.objects.create(actor="eve", action="searched", target=someone.phone,
                            detail={"filter": {"number": someone.spellings[3]}})  # fmt: skip


@pytest.fixture
def world(shop: Caller) -> Biz:
    EventType.objects.create(name="order.paid", personal_fields=FIELDS)
    for someone in (ANN, BOB):
        events_of(shop.biz, someone)
        sms_of(shop.biz, someone)
        feed_of(shop.biz, someone)
        lead_of(shop.biz, someone)
        texts_of(someone)
    archive_sms()
    archive_support.archive()
    BizMsg.objects.update(state=BizMsg.State.DISTRIBUTED)
    return shop.biz


def test_a_text_that_a_program_writes_meanwhile_is_not_lost() -> None:
    """Between the reading of its row and the UPDATE; it is erased from the new text afterwards."""
    texts_of(ANN)
    (alerts_store,) = [store for store in all_stores() if store.name == "alerts"]
    person = Person(emails=frozenset({ANN.email}))
    rows, newer_texts = alerts_store.find(person, "").rows, [f"write to {ANN.email}"]

    def write_meanwhile(execute: Any, statement: str, *arguments: Any) -> Any:
        if statement.startswith("UPDATE") and newer_texts:
            Alert.objects.update(text=newer_texts.pop())
        return execute(statement, *arguments)

    with connection.execute_wrapper(write_meanwhile):
        assert alerts_store.erase(person, rows) == 0
    assert Alert.objects.get().text == f"write to {ANN.email}"
    assert alerts_store.erase(person, rows) == 1
    assert Alert.objects.get().text == f"write to {MARK}"


# -- the whole -----------------------------------------------------------------------------------
def counts() -> list[Any]:
    return sorted(MinuteCounter.objects.values_list("flow", "name").annotate(Sum("value")))


def crms_confirm() -> None:
    """The poller reads the deleted leads, and the CRMs confirm."""
    deleted = [str(pk) for pk in Lead.objects.filter(is_delete=True).values_list("id", flat=True)]
    Record.objects.filter(key__in=deleted).update(deleted=True, state=Record.State.CONFIRMED)


def settle() -> None:
    """What waits for others goes on: CRMs confirm, the feed's events are handled."""
    crms_confirm()
    drain_feed()


def drain_feed() -> None:
    from notify.feed.dispatcher.pace import Pace
    from notify.feed.dispatcher.upkeep import Upkeep

    upkeep = Upkeep()
    while upkeep.turn(Pace()):
        pass


def test_nothing_of_the_person_is_left_and_everything_of_others(world: Biz) -> None:
    before_rows, before_keys, before_counts = tables(), redis_keys(), counts()
    found = holders(ANN, before_rows, before_keys)
    assert {name.partition(".")[2] for name in found} >= {
        "biz_msg", "biz_msg_cold", "attempt", "attempt_cold", "sgip_mt", "sgip_mt_part",
        "sgip_report", "sgip_mo", "feed", "friend", "feed_broadcast", "feed_user", "lead",
        "sync_operation", "sync_item", "recovery_log", "msgplatform_alert", "msgplatform_auditlog",
    }  # fmt: skip
    assert {name for name in found if name.startswith(("sms ", "work "))} >= {
        "sms {sms}:zset:archived",
    }
    her_posts = {
        str(pk).encode() for pk in Feed.objects.filter(uid=ANN.uid).values_list("id", flat=True)
    }
    row = erase(ANN)
    assert row.state == _State.WAITING, "CRMs must learn of it first"
    assert set(row.open) == {"crmsync.leads", "feed.posts", "feed.events", "feed.users"}
    settle()
    wait_no_more()
    run()
    row.refresh_from_db()
    assert row.state == _State.DONE, (row.open, row.error)
    after_rows, after_keys = tables(), redis_keys()
    assert holders(ANN, after_rows, after_keys) == set()
    for table, page in of_others(ANN, before_rows, _OWN_TABLES).items():
        # Counts, events, and the record that the test itself has confirmed.
        if not table.endswith(("feed_user", "eventqueue", "counter", "sync_record")):
            missing = [each for each in page if each not in after_rows[table]]
            missing = [each for each in missing if not her_posts & set(each)]
            assert not missing, table
    assert not FeedBroadcast.objects.filter(feed_id__in=[int(pk) for pk in her_posts]).exists()
    assert holders(BOB, before_rows, before_keys) - {"default.eventqueue"} <= holders(
        BOB, after_rows, after_keys
    )
    assert [each for each in counts() if each[0] != "feed"] == [
        each for each in before_counts if each[0] != "feed"
    ]
    assert row.erased["sms.sent"] == 1
    assert row.erased["notify.messages"] >= 1
    done = AuditLog.objects.get(action="erasure_done")
    assert done.detail["erased"] == row.erased
    assert len(row.hashes) >= 3


def test_a_lead_that_only_names_the_person_stays_with_its_record(shop: Caller) -> None:
    """Fields of others hold the person's number in a text, and the user id by chance."""
    lead = lead_of(shop.biz, BOB)
    extra = {"rooms": 3, "floor": "3", "message": f"my friend is {ANN.spellings[2]}"}
    Lead.objects.filter(pk=lead.pk).update(extra={**extra, "email": BOB.email})
    policy = sync_support.Policy.objects.get()
    fields = {"name": BOB.name, "note": extra["message"]}
    operation = sync_support.new_operation(policy, [Request(str(lead.pk), 2, fields)])
    copies.keep(operation)
    waiting = {"state": Record.State.WAITING, "operation_id": operation.pk, "version": 2}
    Record.objects.update(**waiting)
    hers = Lead.objects.create(id=ids.new(0), biz=shop.biz, appkey="spring-1", uid="3")
    named = {"phones": [ANN.phone], "users": ["shop/3"]}
    (kind,) = [each for each in all_stores() if each.name == "crmsync.operations"]
    (row,) = kind.find(people.person_of(named), "").rows
    assert row.data["requests"][0]["fields"] == {"note": extra["message"]}, "exported alone"
    erasures.start(named, "asked by mail", False, "eve")
    run()
    lead.refresh_from_db()
    assert (lead.is_delete, lead.name, lead.phone) == (False, BOB.name, BOB.spellings[3])
    assert lead.extra == {
        **extra, "message": f"my friend is {personal.MARK}", "email": BOB.email,
    }  # fmt: skip
    assert Lead.objects.get(pk=hers.pk).is_delete
    assert Record.objects.filter(**waiting).count() == 1, "still to be sent"
    operation.refresh_from_db()
    assert copies.read([operation.pk])[operation.pk].data == bytes(operation.data)
    [request] = orders.load(bytes(operation.data))
    assert (request.erased, request.fields) == (
        False, {"name": BOB.name, "note": f"my friend is {personal.MARK}"},
    )  # fmt: skip


def test_an_operation_that_only_redis_has_is_erased_too(shop: Caller) -> None:
    """An older database was restored, for example."""
    lead = lead_of(shop.biz, BOB)
    policy = sync_support.Policy.objects.get()
    fields = {"name": BOB.name, "note": f"my friend is {ANN.spellings[2]}"}
    operation = sync_support.new_operation(policy, [Request(str(lead.pk), 2, fields)])
    copies.keep(operation)
    operation_id = operation.pk
    operation.delete()
    erase(ANN)
    [request] = orders.load(copies.read([operation_id])[operation_id].data)
    assert request.fields == {"name": BOB.name, "note": f"my friend is {personal.MARK}"}


def test_an_entry_of_the_recovery_log_is_erased_without_its_operation(shop: Caller) -> None:
    """It is kept while it is open, and operations for CRM_KEEP_DAYS."""
    policy = sync_support.hive()
    for fields in (
        {"name": ANN.name, "phone": int(ANN.phone)},
        {"name": BOB.name, "phone": BOB.phone, "friends": [int(ANN.phone)]},
    ):
        RecoveryEntry.objects.create(
            policy_id=policy.pk, crm_id=policy.crm_id, operation_id=7, error_class="rejected",
            reason=f"no {fields['name']}", created_at=sql.now(),
            request=json.dumps({"key": "5", "version": 1, "fields": fields}).encode(),
        )  # fmt: skip
    assert erase(ANN).state == _State.DONE
    entry, other = RecoveryEntry.objects.order_by("id")
    assert (bytes(entry.request), entry.reason) == (b"", MARK)
    expected_fields = {"name": BOB.name, "phone": BOB.phone, "friends": [MARK]}
    assert json.loads(bytes(other.request))["fields"] == expected_fields
    assert other.reason == f"no {BOB.name}"


def test_a_deletion_that_a_crm_refused_keeps_the_erasure_open(shop: Caller) -> None:
    """And a deletion that is tried again has what it needs."""
    lead = lead_of(shop.biz, ANN)
    records = Record.objects.filter(key=str(lead.pk))
    records.update(state=Record.State.CONFIRMED, remote_id="501", sent_version=1)
    row = erase(ANN)
    assert row.state == _State.WAITING
    # The poller has read the deletion, and the CRM has refused it until no try was left.
    request = Request(str(lead.pk), 2, {}, deleted=True)
    operation = sync_support.new_operation(sync_support.Policy.objects.get(), [request])
    records.update(
        state=Record.State.DEAD, deleted=True, version=2, operation_id=operation.pk, next_at=None
    )
    wait_no_more()
    run()
    row.refresh_from_db()
    assert row.state == _State.WAITING, "the CRM has the person still"
    assert row.open == {"crmsync.leads": 1}
    (kept,) = orders.load(bytes(Operation.objects.get(pk=operation.pk).data))
    assert (kept.deleted, kept.erased) == (True, False)
    erasures.end_open(row.key, "eve")
    for _pass in range(4):
        wait_no_more()
        run()
    row.refresh_from_db()
    assert row.state == _State.DONE
    proof = AuditLog.objects.filter(action="erasure_done").latest("id").detail
    assert proof["unconfirmed"] == [sync_support.Crm.objects.get().name]


def test_a_lead_whose_uid_or_mobile_is_the_person(shop: Caller) -> None:
    lead = lead_of(shop.biz, BOB)
    for values in (
        {"uid": ANN.phone, "phone": ""}, {"uid": "u", "extra": {"Mobile-Phone": ANN.spellings[2]}},
        {"uid": "u", "extra": {"E-Mail": ANN.email}},
    ):  # fmt: skip
        Lead.objects.filter(pk=lead.pk).update(
            **{"name": ANN.name, "phone": "", "extra": {}, "is_delete": False, **values}
        )
        Record.objects.filter(key=str(lead.pk)).delete()
        erase(ANN)
        wait_no_more()
        run()
        lead.refresh_from_db()
        assert (lead.name, lead.is_delete) == ("", True), values
    Lead.objects.filter(pk=lead.pk).update(
        name=BOB.name, is_delete=False, extra={"recommended_by": ANN.phone}
    )
    erase(ANN)
    lead.refresh_from_db()
    assert (lead.name, lead.extra) == (BOB.name, {"recommended_by": personal.MARK})


def test_channels_and_examples_of_event_types(shop: Caller) -> None:
    """A shop that takes its customers for channels, and an example that was real once."""
    example = {"customer": ANN.spellings[3], "friend": BOB.phone}
    event_type = EventType.objects.create(name="order.paid", example=example)
    message_ids = notify_rows.publish(shop.biz, 3)
    channels = (ANN.phone, BOB.phone, ANN.phone)
    for pk, channel in zip(message_ids, channels, strict=True):
        BizMsg.objects.filter(pk=pk).update(channel=channel, state=BizMsg.State.DISTRIBUTED)
    # The last one's recipients are still chosen by it.
    BizMsg.objects.filter(pk=message_ids[2]).update(state=BizMsg.State.ACCEPTED)
    row = erase(ANN)
    left = dict(BizMsg.objects.values_list("id", "channel"))
    assert [left[pk] for pk in message_ids] == [personal.MARK, BOB.phone, ANN.phone]
    assert row.open == {"notify.channels": 1}
    event_type.refresh_from_db()
    assert event_type.example == {"customer": personal.MARK, "friend": BOB.phone}


def test_somebody_else_s_text_is_exported_as_the_sentence_that_mentions(shop: Caller) -> None:
    text = f"My PIN is 9911. Please call {ANN.spellings[2]}! My account is 998877"
    mo = Mo(
        id=str(ids.new(0)), gateway=1, user_number=f"86{BOB.phone}", sp_number="10655", text=text,
        content=b"\x01", at=1_790_000_000.0,
    )  # fmt: skip
    mo_store.accept([(mo, (1, 2, 3))])
    sms_rows.send(shop.biz, to=BOB.spellings[1], text=f"Your code is 9922. Ask {ANN.phone}")
    for _ in range(2):  # on its way, then archived
        exported = b"".join(people.export(people.person_of(identifiers(ANN)))).decode()
        assert ANN.phone in exported
        assert not any(secret in exported for secret in (BOB.phone, "9911", "9922", "998877"))
        archive_sms()
    document = json.loads(b"".join(people.export(people.person_of(identifiers(ANN)))))
    (mention,) = document["data"]["sms.mentions"]
    assert mention.keys() == {"id", "text", "received_at"}
    erase(ANN)
    received = SgipMo.objects.get()
    assert received.text == text.replace(ANN.spellings[2], MARK)
    assert bytes(received.content) == b"", "the text as it came goes with it"


@pytest.mark.parametrize(
    ("uid", "spelling"),
    [("müller", r"m\u00fcller"), ("corp/li.wei", r"corp\/li.wei"), (r"D\anna", r"D\\anna")],
)
def test_a_user_id_is_found_as_json_writes_it(shop: Caller, uid: str, spelling: str) -> None:
    EventType.objects.create(name="order.paid", personal_fields=["/user_id", "/name"])
    notify_rows.publish(shop.biz, payload=f'{{"user_id":"{spelling}","name":"Ann"}}'.encode())
    BizMsg.objects.update(state=BizMsg.State.DISTRIBUTED)
    users = {"users": [f"shop/{uid}"]}
    document = json.loads(b"".join(people.export(people.person_of(users))))
    (message,) = document["data"]["notify.messages"]
    assert json.loads(message["payload"])["user_id"] == uid
    erasures.start(users, "asked by mail", False, "eve")
    run()
    assert json.loads(bytes(BizMsg.objects.get().payload)) == {"user_id": MARK, "name": MARK}


def test_a_bulk_job_that_names_the_person_ends_first(shop: Caller) -> None:
    job = BulkJob.objects.create(
        flow="sms", filter={"number": ANN.phone}, state=BulkJob.State.PAUSED, created_by="eve"
    )
    row = erase(ANN)
    assert (row.state, row.open) == (_State.WAITING, {"jobs": 1})
    erasures.end_open(row.key, "eve")
    for _pass in range(2):
        wait_no_more()
        run()
    row.refresh_from_db()
    job.refresh_from_db()
    assert (row.state, job.state) == (_State.DONE, BulkJob.State.CANCELLED)
    assert job.filter == {"number": MARK}


def test_each_saved_filter_of_one_owner_loses_its_number(
    shop: Caller, django_user_model: Any
) -> None:
    """Names of filters are unique."""
    owner = django_user_model.objects.create(username="eve")
    for number in (ANN.phone, ANN.spellings[1], BOB.phone):
        SavedFilter.objects.create(
            owner=owner, flow="sms", page="search", name=number, query={"number": number}
        )
    states = [erase(someone).state for someone in (ANN, BOB)]
    assert states == [_State.DONE, _State.DONE]
    assert holders(ANN, tables(), {}) | holders(BOB, tables(), {}) == set()


# -- what is on its way --------------------------------------------------------------------------
def pending_event(biz: Biz) -> ReceiveMsg:
    """An event of Ann's that waits for its next attempt."""
    EventType.objects.create(name="order.paid", personal_fields=FIELDS)
    row = notify_rows.subscription(biz)
    (message,) = notify_rows.publish(biz, payload=payload(ANN))
    BizMsg.objects.update(state=BizMsg.State.DISTRIBUTED)
    return ReceiveMsg.objects.create(
        id=ids.new(0), msg_id=message, biz=biz, biz_receive=row, next_at=sql.now(),
        created_at=sql.now(), updated_at=sql.now(),
    )  # fmt: skip


def holds(someone: Someone) -> bool:
    return someone.phone.encode() in bytes(BizMsg.objects.get().payload)


def test_an_event_is_delivered_before_it_is_erased(shop: Caller) -> None:
    delivery = pending_event(shop.biz)
    row = erase(ANN)
    assert (row.state, row.open) == (_State.WAITING, {"notify.messages": 1})
    assert holds(ANN)
    ReceiveMsg.objects.filter(pk=delivery.pk).update(status=ReceiveMsg.Status.DELIVERED)
    wait_no_more()
    run()
    row.refresh_from_db()
    assert (row.state, row.open, row.erased) == (_State.DONE, {}, {"notify.messages": 1})
    assert not holds(ANN)


def test_on_request_it_is_skipped(shop: Caller) -> None:
    delivery = pending_event(shop.biz)
    row = erase(ANN)
    erasures.end_open(row.key, "eve")
    assert json.loads(erasure_list.path().read_text())["ends_open"] is True
    run()
    wait_no_more()
    run()
    row.refresh_from_db()
    delivery.refresh_from_db()
    assert (row.state, delivery.status) == (_State.DONE, ReceiveMsg.Status.SKIPPED)
    assert not holds(ANN)
    assert notify_rows.resend([delivery.pk]) == 0
    with pytest.raises(NotNow):
        erasures.end_open(row.key, "eve")


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_delivery_whose_lease_is_over_ends_too(shop: Caller, is_shared: bool) -> None:
    """Such as that of a listener which is gone: no maker looks at it."""
    delivery = pending_event(shop.biz)
    if is_shared:
        BizMsg.objects.update(event_type="sms.reports")
    lease_end = sql.now() + timedelta(minutes=2)
    queued = {"status": ReceiveMsg.Status.QUEUED, "claimed_by": "listen-1", "next_at": lease_end}
    ReceiveMsg.objects.update(**queued)
    row = erase(ANN, ends=True)
    assert (row.state, row.open) == (_State.WAITING, {"notify.messages": 1})
    ReceiveMsg.objects.update(next_at=sql.now() - timedelta(seconds=1))
    for _pass in range(2):
        wait_no_more()
        run()
    row.refresh_from_db()
    delivery.refresh_from_db()
    assert (row.state, holds(ANN)) == (_State.DONE, False)
    expected = ReceiveMsg.Status.PENDING if is_shared else ReceiveMsg.Status.SKIPPED
    assert delivery.status == expected


def test_a_resend_between_find_and_erase_is_delivered_first(shop: Caller) -> None:
    delivery = pending_event(shop.biz)
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.EXHAUSTED)
    (messages,) = [each for each in all_stores() if each.name == "notify.messages"]
    person = people.person_of(identifiers(ANN))
    found = messages.find(person, "").rows
    assert [row.is_open for row in found] == [False]
    assert notify_rows.resend([delivery.pk]) == 1
    assert messages.erase(person, found) == 0
    assert holds(ANN)


def test_messages_with_thousands_of_deliveries_are_erased_one_by_one(shop: Caller) -> None:
    """A transaction locks the deliveries of its messages."""
    example = pending_event(shop.biz)
    ReceiveMsg.objects.all().delete()
    example.status = ReceiveMsg.Status.DELIVERED
    message_ids = [example.msg_id, *notify_rows.publish(shop.biz, payload=payload(ANN))]
    BizMsg.objects.update(state=BizMsg.State.DISTRIBUTED)
    delivery_ids = ids.reserve(2200).ids([0] * 2200)
    table_rows.insert_like(
        example, ("id", "msg_id", "biz_receive_id"),
        [(pk, message_ids[n % 2], n) for n, pk in enumerate(delivery_ids, 1)],
    )  # fmt: skip
    (messages,) = [each for each in all_stores() if each.name == "notify.messages"]
    person = people.person_of(identifiers(ANN))
    rows = messages.find(person, "").rows
    with CaptureQueriesContext(connection) as queries:
        assert messages.erase(person, rows) == 2
    assert [query["sql"] for query in queries].count("COMMIT") == 2


def test_a_text_that_no_gateway_has_is_ended_on_request(shop: Caller) -> None:
    message = sms_rows.send(shop.biz, to=ANN.phone)
    other = sms_rows.send(shop.biz, to=BOB.phone, text=f"ask {ANN.phone}")
    row = erase(ANN, ends=True)
    assert row.open == {"sms.open": 2}
    assert [m.final for m in store.read([message, other])] == ["expired", ""], "only hers"
    seqnos = sms_rows.submit(SmsGateway.objects.get().pk)
    assert list(seqnos) == [other]
    for seqno in seqnos[other]:
        sms_rows.respond(seqno)
        sms_rows.report(seqno, number=f"86{BOB.phone}")
    archive_sms()
    BizMsg.objects.update(state=BizMsg.State.DISTRIBUTED)
    wait_no_more()
    run()
    row.refresh_from_db()
    assert (row.state, holders(ANN, tables(), redis_keys())) == (_State.DONE, set())
    texts = dict(SgipMt.objects.values_list("user_number", "text"))
    assert texts == {personal.MARK: personal.MARK, f"86{BOB.phone}": f"ask {personal.MARK}"}


def test_texts_to_a_number_with_the_trunk_s_zero(shop: Caller) -> None:
    for number in ("010-12345678", "+86 010 12345678", "+86 10 12345678", "010-12345679"):
        sms_messages.archived(shop, to=number)
    BizMsg.objects.update(state=BizMsg.State.DISTRIBUTED)
    erasures.start({"phones": ["010 1234 5678"]}, "asked by mail", False, "eve")
    run()
    assert Erasure.objects.get().state == _State.DONE
    numbers = SgipMt.objects.order_by("id").values_list("user_number", flat=True)
    assert list(numbers) == [personal.MARK] * 3 + ["01012345679"]


def test_a_cancelled_erasure_goes_no_further(shop: Caller) -> None:
    pending_event(shop.biz)
    row = erase(ANN)
    erasures.cancel(row.key, "eve")
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.DELIVERED)
    wait_no_more()
    run()
    row.refresh_from_db()
    assert (row.state, row.identifiers, holds(ANN)) == (_State.CANCELLED, {}, True)
    assert json.loads(erasure_list.path().read_text()) == {"key": row.key, "cancelled": True}


@pytest.mark.parametrize("rows", [[Row("1", {}, leads=[7])], []], ids=["lead", "nothing"])
def test_a_cancel_wins_over_the_slice_that_is_under_way(
    shop: Caller, monkeypatch: pytest.MonkeyPatch, rows: list[Row]
) -> None:
    """Whether that finds a lead of the person and fails, or would be the last one."""

    def find(_person: Person, _cursor: str) -> Slice:
        erasures.cancel(Erasure.objects.get().key, "eve")
        return Slice(rows)

    def fail(_person: Person, _rows: Sequence[Row]) -> int:
        raise ValueError("broken")

    monkeypatch.setattr(runner, "all_stores", lambda: [PersonStore("broken", "", find, fail)])
    row = erase(ANN)
    assert (row.state, row.identifiers) == (_State.CANCELLED, {})
    assert not AuditLog.objects.filter(action="erasure_done").exists()


def test_an_end_that_was_not_stored_is_proved_once(shop: Caller) -> None:
    errors: list[str] = []

    def fail_once(execute: Any, statement: str, *rest: Any) -> Any:
        if statement.startswith("UPDATE") and "finished_at" in statement and not errors:
            errors.append(statement)
            raise OperationalError(1290, "read only")
        return execute(statement, *rest)

    with connection.execute_wrapper(fail_once), pytest.raises(Unavailable):
        erase(ANN)
    Erasure.objects.update(claimed_by="", lease_until=None)
    run()
    assert Erasure.objects.get().state == _State.DONE
    assert AuditLog.objects.filter(action="erasure_done").count() == 1


def test_sealed_payloads_are_erased_and_stay_sealed(shop: Caller) -> None:
    Biz.objects.update(encrypts_payloads=True)
    Snapshot.expire_all()
    pending_event(shop.biz)
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.DELIVERED)
    sealed = bytes(BizMsg.objects.get().payload)
    assert encryption.is_sealed(sealed)
    assert ANN.phone.encode() in encryption.unseal(sealed)
    assert erase(ANN).state == _State.DONE
    sealed = bytes(BizMsg.objects.get().payload)
    assert encryption.is_sealed(sealed)
    assert ANN.phone.encode() not in encryption.unseal(sealed)
    Snapshot.expire_all()


# -- the list outside of the database ------------------------------------------------------------
def test_a_database_that_lost_an_erasure_has_it_again(shop: Caller) -> None:
    pending_event(shop.biz)
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.DELIVERED)
    before = bytes(BizMsg.objects.get().payload)
    first = erase(ANN)
    assert not holds(ANN)
    assert ANN.phone not in erasure_list.path().read_text()
    BizMsg.objects.update(payload=before)  # the backup
    Erasure.objects.all().delete()
    run()
    row = Erasure.objects.get()
    assert (row.key, row.state, row.hashes) == (first.key, _State.DONE, first.hashes)
    assert (row.reason, row.created_by) == ("asked by mail", "eve")
    assert row.repeated_at
    assert not holds(ANN)
    BizMsg.objects.update(payload=before)  # of the archive or a Redis alone
    assert erasures.repeat_all("eve") == 1
    run()
    assert not holds(ANN)


def test_a_user_is_of_the_system_that_had_the_name(shop: Caller) -> None:
    """Also after a restore, by the list."""
    EventType.objects.create(name="order.paid", personal_fields=["/user_id"])
    erasures.start({"users": ["shop/1001"]}, "asked by mail", False, "eve")
    Biz.objects.filter(pk=shop.biz.pk).update(name="store")
    before = b'{"user_id":"1001"}'
    for biz in (shop.biz, Biz.objects.create(name="shop")):
        notify_rows.publish(biz, payload=before)
    for _restore in range(2):
        BizMsg.objects.update(payload=before, state=BizMsg.State.DISTRIBUTED)
        run()
        assert Erasure.objects.get().state == _State.DONE
        payloads = [bytes(row.payload) for row in BizMsg.objects.order_by("biz_id")]
        assert payloads == [before.replace(b"1001", MARK.encode()), before]
        Erasure.objects.all().delete()


def test_an_erasure_waits_for_the_system_of_a_user(shop: Caller) -> None:
    """A restored database has given the id of one system to another, and lacks the other system."""
    crm = Biz.objects.create(name="crm")
    users = ["shop/1001", "crm/7"]
    row = erasures.start({"users": users}, "asked by mail", False, "eve")
    later = sql.now() + timedelta(seconds=1)
    Biz.objects.filter(pk=shop.biz.pk).update(name="store", created_at=later)
    crm.delete()
    run()
    row.refresh_from_db()
    assert (row.state, row.erased) == (_State.WAITING, {})
    assert "There is no business system crm." in row.error
    for name in ("crm", "shop"):
        Biz.objects.create(name=name)
    wait_no_more()
    run()
    row.refresh_from_db()
    assert (row.state, row.error) == (_State.DONE, "")


def test_another_machine_gets_the_file_too(
    shop: Caller, tmp_path: Path, settings: Settings
) -> None:
    erase(ANN)
    line = erasure_list.path().read_text()
    settings.STATE_DIR = tmp_path / "other"
    run()
    assert json.loads(erasure_list.path().read_text())["key"] == json.loads(line)["key"]
    assert erasure_list.path().stat().st_mode & 0o777 == 0o600


def test_a_cancelled_erasure_does_not_come_back(
    shop: Caller, tmp_path: Path, settings: Settings
) -> None:
    """Neither after a restore, nor by the file of another machine."""
    pending_event(shop.biz)
    row = erase(ANN)
    backup = Erasure.objects.values().get()
    settings.STATE_DIR = tmp_path / "other"
    run()
    erasures.cancel(row.key, "eve")
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.DELIVERED)
    settings.STATE_DIR = tmp_path
    run()
    tombstone = {"key": row.key, "cancelled": True}
    assert json.loads(erasure_list.path().read_text()) == tombstone
    Erasure.objects.all().delete()
    Erasure.objects.create(**{**backup, "lease_until": None})
    run()
    assert (Erasure.objects.get().state, Erasure.objects.get().identifiers) == (
        _State.CANCELLED, {},
    )  # fmt: skip
    assert AuditLog.objects.filter(action="erasure_cancelled").count() == 2
    Erasure.objects.all().delete()
    run()
    assert not Erasure.objects.exists()
    assert holds(ANN)
    assert json.loads(erasure_list.path().read_text()) == tombstone


def test_the_alert_about_a_list_ends_with_the_machine_that_has_it() -> None:
    """A container that is made anew has another name."""
    runner.raise_for_list(OSError(28, "No space left on device"))
    runner.report_alerts()
    assert Alert.objects.get(kind="platform.erasure").open_key, "it holds"
    Alert.objects.update(last_at=sql.now() - timedelta(minutes=11))
    runner.report_alerts()
    assert not Alert.objects.get(kind="platform.erasure").open_key


def test_another_machine_forgets_identifiers_too(
    shop: Caller, tmp_path: Path, settings: Settings
) -> None:
    erase(ANN)
    settings.STATE_DIR = tmp_path / "other"
    Erasure.objects.update(created_at=sql.now() - timedelta(days=401))
    run()
    settings.STATE_DIR = tmp_path
    run()
    assert erasure_list.path().read_text() == ""
    Erasure.objects.all().delete()
    run()
    assert not Erasure.objects.exists()


def test_a_web_server_keeps_its_own_list(
    shop: Caller, tmp_path: Path, settings: Settings, django_db_setup: None
) -> None:
    """No `run_bulk` runs on its machine: the table says that the identifiers are forgotten."""
    row = erase(ANN)
    Erasure.objects.filter(pk=row.pk).update(identifiers={}, state=_State.DONE)
    environment = {
        "STATE_DIR": str(settings.STATE_DIR), "DJANGO_SETTINGS_MODULE": "msgplatform.settings",
    }  # fmt: skip
    server = Server(tmp_path / "web.log", environment=environment)
    try:
        until = time.monotonic() + 60
        while erasure_list.path().read_text():
            assert time.monotonic() < until, "its file has them for ever"
            time.sleep(0.1)
    finally:
        server.stop()


@pytest.mark.parametrize("cut", [b'{"key": "cut o', '{"key": "客'.encode()[:-1]])
def test_a_damaged_line_is_left_out(shop: Caller, cut: bytes) -> None:
    erase(ANN)
    with erasure_list.path().open("ab") as file:
        file.write(cut)
    assert erasure_list.read_into_database() == 0
    Erasure.objects.all().delete()
    assert erasure_list.read_into_database() == 1


def test_a_reason_with_other_ends_of_lines_is_read_again(shop: Caller) -> None:
    reason = "letter of 3 May\u2028by post\u0085x"
    Erasure.objects.filter(pk=erase(ANN).pk).update(reason=reason)
    erasure_list.path().unlink()
    run()
    Erasure.objects.all().delete()
    assert erasure_list.read_into_database() == 1
    assert Erasure.objects.get().reason == reason


def test_a_new_key_encrypts_the_list_anew(shop: Caller, settings: Settings) -> None:
    erase(ANN)
    old = erasure_list.path().read_text()
    settings.ENCRYPTION_KEYS = (encryption.new_key(), *settings.ENCRYPTION_KEYS)
    run()
    line = json.loads(erasure_list.path().read_text())
    assert line["identifiers"] not in old
    assert encryption.state(line["identifiers"]) == encryption.State.CURRENT


def test_identifiers_are_forgotten_after_their_days(shop: Caller) -> None:
    row = erase(ANN)
    Erasure.objects.update(created_at=sql.now() - timedelta(days=401))
    run()
    row.refresh_from_db()
    assert (row.identifiers, len(row.hashes)) == ({}, 3)
    assert erasure_list.path().read_text() == ""
    run()
    assert Erasure.objects.count() == 1


def test_a_list_without_a_change_is_not_read_again(shop: Caller) -> None:
    row = erase(ANN)
    keeper = runner.ListKeeper()
    keeper.keep()
    with CaptureQueriesContext(connection) as statements:
        keeper.keep()
    assert not any("identifiers" in statement["sql"] for statement in statements)
    line = erasure_list.path().read_text()
    erasure_list.path().unlink()
    keeper.keep()
    assert json.loads(erasure_list.path().read_text())["key"] == json.loads(line)["key"]
    Erasure.objects.update(created_at=sql.now() - timedelta(days=401))
    keeper.keep()
    row.refresh_from_db()
    assert (row.identifiers, erasure_list.path().read_text()) == ({}, "")


def test_without_the_file_nothing_is_started(shop: Caller, settings: Settings) -> None:
    settings.STATE_DIR = Path("/proc/nowhere")
    with pytest.raises(OSError, match="proc"):
        erase(ANN)
    assert not Erasure.objects.exists()
    assert not AuditLog.objects.filter(action="person_erased").exists()


def open_keys() -> set[str]:
    return {key for key in Alert.objects.values_list("open_key", flat=True) if key}


def test_somebody_hears_of_what_keeps_an_erasure(
    shop: Caller, settings: Settings, tmp_path: Path
) -> None:
    pending_event(shop.biz)
    row = erase(ANN)
    waits = f"platform.erasure:{row.key}"
    ErasureRunner().turn()
    assert open_keys() == set(), "it waits for a moment"
    retries = 1.2 * timedelta(seconds=sum(DEFAULT_SCHEDULE))  # with the most jitter
    max_wait = max(timedelta(hours=REPORT_HOURS), retries)
    Erasure.objects.update(created_at=sql.now() - max_wait)
    ErasureRunner().turn()
    assert open_keys() == set(), "messages on their way may take so long"
    Erasure.objects.update(created_at=sql.now() - timedelta(days=6))
    ErasureRunner().turn()
    assert open_keys() == {waits}
    assert "notify.messages 1" in Alert.objects.get().text
    settings.STATE_DIR = Path("/proc/nowhere")
    ErasureRunner().turn()
    (of_list,) = open_keys() - {waits}
    assert of_list.startswith("platform.erasure:list-")
    settings.STATE_DIR = tmp_path
    erasures.cancel(row.key, "eve")
    ErasureRunner().turn()
    assert open_keys() == set()


def test_an_erasure_says_what_holds_it_up_and_an_outage_is_no_failure(
    shop: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = erasures.start(identifiers(ANN), "asked by mail", False, "eve")
    errors: list[Exception] = [RedisConnectionError("no answer")]

    def fail() -> list[PersonStore]:
        raise errors[0]

    monkeypatch.setattr(runner, "all_stores", fail)
    with pytest.raises(RedisConnectionError):
        ErasureRunner().turn()
    row.refresh_from_db()
    assert (row.state, row.error) == (_State.RUNNING, "ConnectionError")
    ErasureRunner().turn()  # another one looks; the lease is not over
    assert open_keys() == set()
    errors[0] = ValueError("a fault")
    Erasure.objects.update(claimed_by="", lease_until=None)
    ErasureRunner().turn()
    ErasureRunner().turn()
    assert open_keys() == {f"platform.erasure:{row.key}"}
    assert "ValueError" in Alert.objects.get().text
    Erasure.objects.update(state=_State.RUNNING)  # as while it is tried again
    ErasureRunner().turn()
    assert open_keys() == {f"platform.erasure:{row.key}"}


def test_bulk_jobs_do_not_wait_for_an_archive_that_is_away(
    shop: Caller, servers: Servers, tmp_path: Path
) -> None:
    erasures.start(identifiers(ANN), "asked by mail", False, "eve")
    job = BulkJob.objects.create(flow="notify", action="resend", filter={}, created_by="eve")
    server = servers.mariadb() if connection.vendor == "mysql" else None
    with archive_support.cold_database(tmp_path, server):
        Erasure.objects.update(store="notify.archive")
        connections["cold"].close()
        connections["cold"].settings_dict["NAME"] = "/no/such/place"
        with pytest.raises(Unavailable):
            BulkRunner().turn()
        connections["cold"].close()
    job.refresh_from_db()
    assert (bool(job.cursor), job.error) == (True, ""), "its first page is done"


@pytest.mark.parametrize("reason", ["", "   ", "x" * 501, f"call {ANN.spellings[2]}"])
def test_a_reason_is_said_without_the_person(shop: Caller, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        erasures.start(identifiers(ANN), reason, False, "eve")
    assert refused.value.field == "reason"


def test_a_system_that_does_not_exist_is_refused(shop: Caller) -> None:
    with pytest.raises(InvalidInput) as refused:
        people.person_of({"users": ["nobody/1001"]})
    assert refused.value.field == "users"


def test_an_export_goes_on_while_no_row_is_the_person_s(
    shop: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy ends an answer that is silent for a minute: no piece waits for two slices."""
    cursors: list[str] = []

    def find(_person: Person, cursor: str) -> Slice:
        cursors.append(cursor)
        return Slice(() if len(cursors) < 4 else [Row("7", {"id": 7})], f"{len(cursors) % 4 or ''}")

    stores = [PersonStore("rare", "", find, lambda _person, _rows: 0)]
    monkeypatch.setattr(people, "all_stores", lambda: stores)
    pieces, slice_counts = list[bytes](), [0]
    for piece in people.export(people.person_of(identifiers(ANN))):
        pieces.append(piece)
        slice_counts.append(len(cursors))
    assert cursors == ["", "1", "2", "3"]
    assert max(after - before for before, after in pairwise(slice_counts)) == 1
    assert json.loads(b"".join(pieces))["data"] == {"rare": [{"id": 7}]}


def test_an_export_holds_everything_of_the_person_alone(world: Biz) -> None:
    companions = [{"name": BOB.name, "phone": BOB.phone}]
    notify_rows.publish(world, payload=payload(ANN, passengers=companions))
    document = json.loads(b"".join(people.export(people.person_of(identifiers(ANN)))))
    text = json.dumps(document, ensure_ascii=False)
    assert BOB.phone not in text
    assert BOB.name not in text
    data = document["data"]
    assert {name for name, rows in data.items() if rows} >= {
        "notify.messages", "notify.archive", "sms.sent", "sms.received", "sms.copies",
        "crmsync.leads", "crmsync.operations", "feed.posts", "feed.relations", "feed.timelines",
        "alerts", "audit",
    }  # fmt: skip
    assert data["crmsync.leads"][0]["name"] == ANN.name
    pk = SgipMt.objects.get(user_number=data["sms.sent"][0]["user_number"]).pk
    assert data["sms.sent"][0]["id"] == str(pk), "JavaScript rounds numbers beyond 2^53"
    assert f"thank you, {ANN.name}" in str(data["notify.messages"])


# -- Feed ----------------------------------------------------------------------------------------
def one_pass(name: str) -> int:
    """Go once through a store of Ann's data; how many rows it met."""
    (store,) = [each for each in all_stores() if each.name == name]
    person = people.person_of(identifiers(ANN))
    count, cursor, is_first = 0, "", True
    while cursor or is_first:
        part = store.find(person, cursor)
        store.erase(person, part.rows)
        count, cursor, is_first = count + len(part.rows), part.cursor, False
    return count


def test_one_pass_meets_every_relation_and_entry(
    shop: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(person_data, "PAGE", 2)
    others = [f"other-{n}" for n in range(7)]
    feed_rows.related(
        shop.biz,
        *((other, "follow", ANN.uid) for other in others),
        *((ANN.uid, "follow", other) for other in others),
        *((other, "follow", BOB.uid) for other in others),
    )
    feed_rows.visited(shop.biz, ANN.uid)
    for other in others:
        feed_rows.post(shop.biz, other, topic="vip")
    feed_rows.drain()
    assert (one_pass("feed.relations"), one_pass("feed.timelines")) == (14, 7)
    assert set(Friend.objects.values_list("uid", flat=True)) == {BOB.uid}
    assert not FeedBroadcast.objects.filter(fri_uid=ANN.uid).exists()


def test_user_ids_that_are_a_number_or_an_address_are_found_in_each_spelling(
    shop: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(person_data, "SLICE", 2)  # users of a page
    address, number = ANN.email.title(), ANN.spellings[3]
    feed_rows.related(
        shop.biz, (address, "befriend", "reader-1"), (f"+86{number}", "follow", "reader-1"),
        (BOB.email, "follow", "reader-1"),
    )  # fmt: skip
    feed_rows.visited(shop.biz, address, "reader-1")
    feed_rows.post(shop.biz, address)
    feed_rows.post(shop.biz, "reader-1")
    feed_rows.post(shop.biz, number)  # who has no row as a user
    feed_rows.drain()
    row = erase(ANN)
    settle()
    wait_no_more()
    run()
    row.refresh_from_db()
    assert row.state == _State.DONE, (row.open, row.error)
    person = people.person_of(identifiers(ANN))
    uids = {
        uid
        for rows, column in (
            (Feed.objects, "uid"), (FeedUser.objects, "uid"), (Friend.objects, "uid"),
            (Friend.objects, "fri_uid"), (FeedBroadcast.objects, "fri_uid"),
            (EventQueue.objects, "uid"),
        )
        for uid in rows.values_list(column, flat=True)
    }  # fmt: skip
    assert not {uid for uid in uids if person.is_identifier(uid)}
    assert {BOB.email, "reader-1"} <= uids


def test_a_post_in_json_stays_json(shop: Caller) -> None:
    data = f'{{"call":{ANN.phone},"price":99.10,"text":"or {ANN.email}"}}'
    post = feed_rows.post(shop.biz, BOB.uid, data)
    assert erase(ANN).state == _State.DONE
    assert Feed.objects.get(pk=post).data == (
        f'{{"call":"{MARK}","price":99.10,"text":"or {MARK}"}}'
    )


def test_a_named_user_of_a_later_page_is_exported_once(
    shop: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(person_data, "SLICE", 2)  # users of a page
    uids = ["zoe", ANN.phone, ANN.email]
    feed_rows.related(shop.biz, *((uid, "befriend", f"reader-{uid}") for uid in uids))
    feed_rows.visited(shop.biz, *uids)
    for uid in (*uids, "poet"):
        feed_rows.post(shop.biz, uid)
    feed_rows.drain()
    # "zoe" has a row in the last page of users, "poet" has only posted.
    named = {"phones": [ANN.phone], "emails": [ANN.email], "users": ["shop/zoe", "shop/poet"]}
    data = json.loads(b"".join(people.export(people.person_of(named))))["data"]
    assert sorted(row["uid"] for row in data["feed.users"]) == sorted(uids)
    assert len(data["feed.relations"]) == 6
    readers = sorted(row["fri_uid"] for row in data["feed.timelines"])
    assert readers == sorted([*uids, "poet"])


def unfollowed(biz: Biz, reader: str) -> int:
    """An event of upkeep about the timeline of a reader."""
    event = UpkeepEvent(biz.pk, "author", EventQueue.Kind.UNFOLLOW, {"reader": reader})
    add_upkeep([event], ids.reserve(1), sql.now())
    return int(EventQueue.objects.filter(topic="upkeep").latest("qid").pk)


def test_events_that_are_set_aside_end_and_those_of_others_can_be_replayed(shop: Caller) -> None:
    own = [feed_rows.set_aside(shop.biz, ANN.uid), unfollowed(shop.biz, ANN.spellings[3])]
    queue.set_aside(own[1], ValueError("no timeline"))
    of_others = feed_rows.post(shop.biz, BOB.uid)
    queue.set_aside(of_others, ValueError(f"beside {ANN.phone}"))
    waiting = unfollowed(shop.biz, f"u{ANN.phone}")
    text = feed_rows.event(waiting).data
    assert conditions.of_topics() == {"friend": 2, "upkeep": 1}
    row = erase(ANN)
    assert conditions.of_topics() == {"friend": 1}
    for event in map(feed_rows.event, own):
        assert (event.status, event.uid) == (EventQueue.Status.HANDLED, personal.MARK)
        assert event.handle_date
    assert feed_rows.event(waiting).data == text, "until it is handled"
    event = feed_rows.event(of_others)
    assert (event.status, event.uid) == (EventQueue.Status.SET_ASIDE, BOB.uid)
    assert event.reason == f"ValueError: beside {personal.MARK}"
    settle()
    wait_no_more()
    run()
    row.refresh_from_db()
    assert row.state == _State.DONE, (row.open, row.error)
    assert not feed_rows.event(waiting).data
    assert resend_events([*own, of_others]) == 1
    feed_rows.drain()
    assert conditions.of_topics() == {}
    assert feed_rows.event(of_others).status == EventQueue.Status.HANDLED


@pytest.mark.parametrize("number", ["8812345", "88123456", "881234567"])
def test_a_user_whose_id_is_a_short_number_is_somebody_else(shop: Caller, number: str) -> None:
    """Ids that systems count up have as many digits as a landline."""
    feed_rows.related(shop.biz, (number, "befriend", "reader-1"), ("reader-2", "follow", number))
    feed_rows.visited(shop.biz, number, "reader-1")
    for uid in (number, "reader-1"):
        feed_rows.post(shop.biz, uid)
    feed_rows.drain()
    queue.set_aside(unfollowed(shop.biz, number), ValueError("no timeline"))
    names = ("feed", "friend", "feed_broadcast", "feed_user", "eventqueue")
    before = {name: rows for name, rows in tables().items() if name.endswith(names)}
    erasures.start({"phones": [number]}, "asked by mail", False, "eve")
    run()
    assert Erasure.objects.get().state == _State.DONE
    after = tables()
    assert {name: after[name] for name in before} == before


def test_a_user_who_gets_a_relation_meanwhile_stays(shop: Caller) -> None:
    if connection.vendor != "mysql":  # SQLite has one writer
        return
    FeedUser.objects.create(biz_id=shop.biz.pk, uid=ANN.uid)

    def erase_users() -> None:
        try:
            one_pass("feed.users")
        finally:
            connection.close()

    thread = threading.Thread(target=erase_users)
    with transaction.atomic():
        users.lock(shop.biz.pk, [ANN.uid])
        Friend.objects.create(
            biz_id=shop.biz.pk, uid=ANN.uid, relation="follow", fri_uid=BOB.uid, delivery=0,
            create_date=sql.now(),
        )  # fmt: skip
        thread.start()
        lock_waits.until_somebody_waits()
    thread.join(120)
    assert FeedUser.objects.filter(uid=ANN.uid).exists()
