"""One row that the database refuses, whatever the error: others go on, and an alert names the row.

On a server a trigger refuses the row with each number in turn. SQLite has one error for it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import OperationalError, connection, transaction
from django.db.models import Model

from bench.harness.mysql import SERVERS
from crmsync.models import Item, Record
from gateway.forwarder.forwarder import Forwarder
from gateway.models import SgipMt, SmsGateway
from gateway.pump.pump import Pump
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import bisect
from msgplatform.core.data import claims, engines, sql, transactions
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.queues import jobs
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, Biz
from notify import orders
from notify.feed.cleaner.cleaner import Cleaner
from notify.feed.dispatcher.pace import Pace
from notify.feed.dispatcher.receiver import Receiver
from notify.feed.models import EventQueue, FeedBroadcast, FeedPace, FeedUser
from notify.maker import ending
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import Attempt, BizMsg, ColdBizMsg, ReceiveMsg
from tests.integration.crmsync import sync_support
from tests.integration.crmsync.test_poller import Polled
from tests.integration.feed import support as feed
from tests.servers import DATABASE
from tests.support import archive_support, sms_rows
from tests.support.management import Manager
from tests.support.notify_rows import publish, subscription
from tests.support.sms_rows import Caller, report, respond, send, submit
from tests.waiting import pause

shop = sms_rows.shop
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

IS_SERVER = DATABASE in SERVERS
# What the error says → its number. The last four say that the server is to blame: it is not, as
# the other rows show.
NUMBERS = {
    "wrong text": 1366, "too long": 1406, "out of range": 1264, "trigger": 1644, "unknown": 1815,
    "storage engine": 1030, "no right": 1142, "read only": 1290, "disk full": 1114,
} if IS_SERVER else {"refused": 0}  # fmt: skip
# The row is tried again after these, and somebody is told when they do not end.
LOCKS = {"lock wait": 1205, "deadlock": 1213} if IS_SERVER else {}
each_number = pytest.mark.parametrize(
    "number", [*NUMBERS.values(), *LOCKS.values()], ids=[*NUMBERS, *LOCKS]
)
# One of each kind that a program may take in another way: of the row, of a trigger, of the server,
# of a lock. The marker meets every number, for all programs ask the same code what it means.
KINDS = {"wrong text", "trigger", "read only", "deadlock", "refused"}
each_kind = pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=name, marks=[pytest.mark.full] * (name not in KINDS))
        for name, number in (NUMBERS | LOCKS).items()
    ],
)


@pytest.fixture(autouse=True)
def no_refusals() -> Iterator[None]:
    memories = bisect.refusals, bisect.locked_items, claims.passing_until
    for memory in memories:
        memory.clear()
    yield
    for memory in memories:
        memory.clear()


@contextmanager
def refusing(
    model: type[Model], condition: str, number: int, statement: str = "INSERT"
) -> Iterator[None]:
    """No row for which the condition holds is inserted, or changed by another statement."""
    table = model._meta.db_table
    refusal = (
        f"FOR EACH ROW IF {condition} THEN SIGNAL SQLSTATE 'HY000' "
        f"SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'poison'; END IF"
        if number
        else f"WHEN {condition} BEGIN SELECT RAISE(ABORT, 'poison'); END"
    )
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TRIGGER poison_{table} BEFORE {statement} ON {table} {refusal}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER poison_{table}")


def work_until(turn: Callable[[], object], are_others_done: Callable[[], bool]) -> None:
    """Turns as a daemon's loop begins them; its pauses after TRIES errors are 5 s together, and 1 s
    after an error of a lock."""
    errors, begun = 0, time.monotonic()
    while not are_others_done():
        # A quiet machine takes some seconds.
        assert time.monotonic() < begun + 60, "the others wait"
        try:
            turn()
            pause(begun, 0.01)
        except UNAVAILABLE as error:
            if transactions.is_of_lock(error):
                time.sleep(1)
                continue
            errors += 1
            assert errors <= bisect.TRIES


def tolerant(turn: Callable[[], object]) -> None:
    """A turn whose other errors are logged, and followed by the next one."""
    try:
        turn()
    except UNAVAILABLE:
        raise
    except Exception as error:
        print(type(error).__name__, error)


def check_alert(kind: str, name: object) -> None:
    """An alert names the row."""
    assert is_named(kind, name)


def is_named(kind: str, name: object) -> bool:
    rows = Alert.objects.filter(kind=kind)
    return str(name) in " ".join(f"{row.open_key} {row.subject} {row.text}" for row in rows)


# -- Notify --------------------------------------------------------------------------------------
def deliveries(count: int) -> list[ReceiveMsg]:
    row = subscription(Biz.objects.create(name="orders"), schedule=[10, 1000])
    publish(row.biz, count)
    maker = Maker()
    while maker.turn():
        pass
    return list(ReceiveMsg.objects.filter(status=ReceiveMsg.Status.QUEUED).order_by("id"))


@each_number
def test_marker(number: int) -> None:
    queued = deliveries(20)
    results = [
        orders.Result(
            one.pk, one.biz_receive_id, one.claimed_by, 1, "delivered", http_status=200,
            response_body=f"answer {n}",
        )
        for n, one in enumerate(queued)
    ]  # fmt: skip
    jobs.put(orders.MARKER_QUEUE, [results], ttl=None)
    with refusing(Attempt, "NEW.response_body = 'answer 7'", number):
        marker = Marker()
        work_until(marker.turn, lambda: Attempt.objects.count() == 19)
        delivered = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.DELIVERED)
        # What was answered is known.
        work_until(marker.turn, lambda: delivered.count() == 20)
    check_alert("notify.poison", queued[7].pk)


@each_kind
def test_maker(number: int) -> None:
    """A message that cannot be split holds up neither its system nor another one."""
    rows = [subscription(Biz.objects.create(name=name), name) for name in ("orders", "bills")]
    ids = [publish(row.biz, 5) for row in rows]
    poison = ids[0][2]
    with refusing(ReceiveMsg, f"NEW.msg_id = {poison}", number):
        maker = Maker()
        work_until(maker.turn, lambda: ReceiveMsg.objects.count() == 9)
        work_until(maker.turn, lambda: is_named("notify.poison", poison))


def test_only_a_message_that_failed_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile an older one is committed, and another maker sets the same one aside."""
    row = subscription(Biz.objects.create(name="orders"))
    ids = publish(row.biz, 5)
    oldest, poison = BizMsg.objects.filter(pk=ids[0]), ids[2]
    oldest.update(state=BizMsg.State.DISTRIBUTED)
    set_aside = ending.set_unsplittable_aside

    def set_aside_twice(which: int, error: Exception) -> None:
        oldest.update(state=BizMsg.State.ACCEPTED)
        for _ in range(2):
            set_aside(which, error)

    monkeypatch.setattr(ending, "set_unsplittable_aside", set_aside_twice)
    with refusing(ReceiveMsg, f"NEW.msg_id = {poison}", next(iter(NUMBERS.values()))):
        work_until(Maker().turn, lambda: ReceiveMsg.objects.count() == 4)
    assert [alert.open_key for alert in Alert.objects.all()] == [f"notify.unsplittable:{poison}"]


@each_kind
def test_archiver(number: int, settings: Any) -> None:
    row = subscription(Biz.objects.create(name="orders"))
    ids = [archive_support.message(row, ReceiveMsg.Status.DELIVERED) for _ in range(6)]
    with refusing(ColdBizMsg, f"NEW.id = {ids[2]}", number):
        archiver = archive_support.Archiver()
        work_until(archiver.turn, lambda: ColdBizMsg.objects.count() == 5)
        work_until(archiver.turn, lambda: is_named("notify.archive", ids[2]))
        assert BizMsg.objects.filter(pk=ids[2]).exists()


# -- SMS -----------------------------------------------------------------------------------------
def ended_messages(shop: Caller, count: int) -> list[str]:
    message_ids = []
    for _ in range(count):
        message_ids.append(send(shop.biz))
        (seqno,) = submit(SmsGateway.objects.get().pk)[message_ids[-1]]
        respond(seqno)
        report(seqno)
    return message_ids


@each_kind
def test_forwarder(shop: Caller, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.forwarder.forwarder.LEASE_SECONDS", 0.05)
    ids = ended_messages(shop, 5)
    with refusing(BizMsg, f"CAST(NEW.payload AS CHAR) LIKE '%{ids[2]}%'", number):
        forwarder = Forwarder()
        work_until(forwarder.turn, lambda: BizMsg.objects.count() == 4)
        work_until(forwarder.turn, lambda: is_named("sms.event", ids[2]))


@each_kind
def test_pump(shop: Caller, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pump.pump.LEASE_SECONDS", 0.05)
    ids = ended_messages(shop, 5)
    Forwarder().turn()
    with refusing(SgipMt, f"NEW.id = {ids[2]}", number):
        pump = Pump()
        work_until(pump.turn, lambda: SgipMt.objects.count() == 4)
        work_until(pump.turn, lambda: is_named("sms.archive", ids[2]))


# -- Feed ----------------------------------------------------------------------------------------
@each_kind
def test_dispatcher(number: int) -> None:
    feed.change(("bob", "befriend", "ann"), ("cid", "befriend", "ann"))
    feed.drain()
    feed.visited("ann", "bob", "cid")
    good, poison, better = (feed.post(uid, "friend", uid) for uid in ("ann", "bob", "cid"))
    receiver = Receiver("friend")
    with refusing(FeedBroadcast, f"NEW.feed_id = {poison}", number):
        work_until(
            lambda: receiver.turn(Pace()),
            lambda: bool(feed.entries(good) and feed.entries(better)),
        )
        if number in LOCKS.values():
            return
        work_until(
            lambda: receiver.turn(Pace()),
            lambda: EventQueue.objects.filter(status=EventQueue.Status.SET_ASIDE).exists(),
        )
    row = EventQueue.objects.get(status=EventQueue.Status.SET_ASIDE)
    check_alert("feed.set_aside", row.qid)


@each_kind
def test_cleaner(number: int, settings: Any) -> None:
    """A reader whose row cannot be changed keeps neither others nor the next steps waiting."""
    settings.FEED_CLEAN_SECONDS = 0.05
    feed.change(("bob", "befriend", "ann"), ("cid", "befriend", "ann"))
    feed.drain()
    feed.visited("ann", "bob", "cid")
    FeedUser.objects.update(visit_date=sql.now() - timedelta(days=400))
    names = ("load", "latency", "baseline", "statements", "cpu", "backlog", "oldest")
    zeros = dict.fromkeys(names, 0)
    FeedPace.objects.create(at=sql.now() - timedelta(days=400), share=1, events=1, **zeros)
    cleaner = Cleaner()
    with refusing(FeedUser, "NEW.uid = 'bob'", number, "UPDATE"):
        work_until(
            cleaner.turn,
            lambda: (
                not FeedPace.objects.exists()
                and set(FeedUser.objects.filter(active=True).values_list("uid", flat=True))
                == {"bob"}
            ),
        )
    work_until(cleaner.turn, lambda: not FeedUser.objects.filter(active=True).exists())


# -- bulk jobs -----------------------------------------------------------------------------------
@each_kind
def test_bulk_runner(number: int) -> None:
    """Neither what it deletes, nor a job whose page fails, holds up another job."""
    rows = [subscription(Biz.objects.create(name=name), name) for name in ("orders", "bills")]
    message_ids = [archive_support.message(row, ReceiveMsg.Status.EXHAUSTED) for row in rows]
    first, second = (
        BulkJob.objects.create(
            flow="notify", action="resend", filter={"biz": row.biz.name}, created_by="x"
        )
        for row in rows
    )
    past = sql.now() - timedelta(days=1)
    for name in "abc":
        Session.objects.create(session_key=name, session_data="", expire_date=past)
    runner = BulkRunner()
    with (
        refusing(Session, "OLD.session_key = 'b'", number, "DELETE"),
        refusing(ReceiveMsg, f"OLD.msg_id = {message_ids[0]}", number, "UPDATE"),
    ):
        work_until(
            partial(tolerant, runner.turn),
            lambda: (
                set(Session.objects.values_list("session_key", flat=True)) == {"b"}
                and BulkJob.objects.filter(pk=second.pk, state=BulkJob.State.DONE).exists()
            ),
        )
        first.refresh_from_db()
        assert first.state != BulkJob.State.DONE
        assert first.error, "its page says why"


# -- CRM sync ------------------------------------------------------------------------------------
@each_kind
def test_poller(number: int) -> None:
    polled = Polled()
    leads = polled.leads(*[f"name {n}" for n in range(5)])
    condition = f"NEW.key = '{leads[2]}' AND NEW.state <> {int(Record.State.DEAD)}"
    with refusing(Record, condition, number):
        work_until(polled.turn, lambda: Record.objects.count() == 5)
    assert Record.objects.get(state=Record.State.DEAD).key == str(leads[2])


@each_kind
def test_handler(number: int, tmp_path: Any) -> None:
    customers = sync_support.Customers(tmp_path)
    policy = sync_support.policy(customers.crm())
    queued = sync_support.queued(policy, sync_support.requests(["a", "b", "c", "d"]))
    poison = queued.record("c")
    with refusing(Item, f"NEW.record_id = {poison.pk}", number), sync_support.running() as handler:
        others = Record.objects.exclude(pk=poison.pk)
        sync_support.turn_until(
            handler,
            lambda: others.filter(state=Record.State.CONFIRMED).count() == 3,
        )


# -- locks that somebody holds -------------------------------------------------------------------
@contextmanager
def holding(statement: str, parameters: Sequence[Any]) -> Iterator[None]:
    """A person's session has run this statement in a transaction, which stays open."""
    holds, over = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            engines.of().allow_idle_transactions(connection, 300)
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                holds.set()
                over.wait(280)
                transaction.set_rollback(True)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert holds.wait(60)
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def lock_waits() -> Iterator[list[int]]:
    """The lock wait timeout, in seconds, of each statement of this thread that ended by it. It is
    read from the session, because a clock counts more on a busy machine."""
    waits: list[int] = []

    def note(execute: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return execute(*arguments)
        except OperationalError as error:
            if error.args[0] == LOCKS["lock wait"]:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT @@innodb_lock_wait_timeout")
                    waits.extend(cursor.fetchone())
            raise

    with connection.execute_wrapper(note):
        yield waits


def test_marker_beside_a_lock() -> None:
    if not IS_SERVER:
        return
    queued = deliveries(200)
    results = [
        orders.Result(row.pk, row.biz_receive_id, row.claimed_by, 1, "delivered", http_status=200)
        for row in queued
    ]
    locked = results.pop(7)
    jobs.put(orders.MARKER_QUEUE, [[locked]], ttl=None)
    delivered = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.DELIVERED)
    marker = Marker()
    with holding("SELECT id FROM receive_msg WHERE id = %s FOR UPDATE", [locked.id]):
        marker.turn()  # alone, it waits behind what comes then
        jobs.put(orders.MARKER_QUEUE, [results[:100], results[100:]], ttl=None)
        with lock_waits() as waits:
            work_until(marker.turn, lambda: delivered.count() == 199)
        assert sum(waits) <= 10
        work_until(marker.turn, lambda: is_named("notify.poison", locked.id))
    work_until(marker.turn, lambda: delivered.count() == 200)
    assert Attempt.objects.count() == 200, "nothing is logged twice"


def test_maker_beside_a_lock() -> None:
    """A delivery that cannot be claimed stays; the others are queued."""
    if not IS_SERVER:
        return
    row = subscription(Biz.objects.create(name="orders"))
    publish(row.biz, 20)
    maker = Maker()
    maker.splitter.split()
    pending = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.PENDING)
    locked = pending.order_by("id")[7].pk
    with holding("SELECT id FROM receive_msg WHERE id = %s FOR UPDATE", [locked]):
        with lock_waits() as waits:
            work_until(maker.turn, lambda: pending.count() == 1)
            publish(row.biz, 20)
            work_until(maker.turn, lambda: not BizMsg.objects.filter(state=0).exists())
            work_until(maker.turn, lambda: pending.count() == 1)
        assert sum(waits) <= 5, "the lock is waited for once"
    work_until(maker.turn, lambda: not pending.exists())


def test_archiver_beside_a_lock() -> None:
    if not IS_SERVER:
        return
    row = subscription(Biz.objects.create(name="orders"))
    ids = [archive_support.message(row, ReceiveMsg.Status.DELIVERED) for _ in range(20)]
    archiver = archive_support.Archiver()
    with holding("SELECT id FROM biz_msg WHERE id = %s FOR UPDATE", [ids[2]]):
        with lock_waits() as waits:
            work_until(archiver.turn, lambda: ColdBizMsg.objects.count() == 19)
        assert sum(waits) <= 10
        work_until(archiver.turn, lambda: is_named("notify.archive", ids[2]))


def test_claim_beside_a_lock() -> None:
    if not IS_SERVER:
        return
    first, second = (BulkJob.objects.create(flow="notify").pk for _ in range(2))
    table = BulkJob._meta.db_table
    with holding(f"SELECT id FROM {table} WHERE id = %s FOR UPDATE", [first]):
        assert claims.claim(BulkJob.objects.order_by("id"), limit=1, lease=60).ids == [second]


# -- the doors -----------------------------------------------------------------------------------
def test_a_value_that_a_column_cannot_hold_is_the_callers_error() -> None:
    """Not "repeat later": it would be repeated for ever. SQLite takes every character."""
    manager = Manager("manage:systems")
    if not IS_SERVER:
        assert manager.send("PUT", "systems/shop", {"title": "😀 Laden"}).status_code == 201
        return
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE biz MODIFY title varchar(200) CHARACTER SET utf8mb3 NOT NULL")
    try:
        answer = manager.send("PUT", "systems/shop", {"title": "😀 Laden"})
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE biz MODIFY title varchar(200) NOT NULL")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == "title"
    assert "cannot hold" in answer.json()["detail"]


# -- a Redis that is up and refuses --------------------------------------------------------------
REFUSALS = {"min-replicas-to-write": ("1", "0"), "maxmemory": ("1", "0")}


@pytest.mark.parametrize("setting", REFUSALS)
@pytest.mark.parametrize("is_split", [False, True], ids=["dispatched", "split"])
def test_orders_that_redis_refused_go_out_when_it_takes_them(
    work_redis: Any, setting: str, is_split: bool
) -> None:
    """Not at the end of the lease of their deliveries, two minutes later."""
    refuse, take = REFUSALS[setting]
    maker, row = Maker(), subscription(Biz.objects.create(name="orders"))
    publish(row.biz, 5)
    if not is_split:
        maker.splitter.split()  # without capacity: the dispatcher queues them
    work_redis.config_set(setting, refuse)
    try:
        for _ in range(3):
            with suppress(RedisError):
                maker.turn()
        queued = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.QUEUED)
        assert not queued.exists(), "they wait for the end of their lease"
    finally:
        work_redis.config_set(setting, take)
    while maker.turn():
        pass
    assert ReceiveMsg.objects.filter(status=ReceiveMsg.Status.QUEUED).count() == 5
    depths = jobs.depths([f"notify-{row.biz_id}-{row.receive_id}"])
    assert sum(depths.values()) >= 1
