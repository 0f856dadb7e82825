"""What another process has locked, perhaps for long because it is frozen, holds nothing else up."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.utils import OperationalError

from msgplatform.core.daemons import timer
from msgplatform.core.data import engines, transactions
from msgplatform.core.data.engines.contract import IDLE_TRANSACTION_SECONDS
from notify.feed import users
from notify.feed.dispatcher import fanout
from notify.feed.dispatcher.pace import Pace
from notify.feed.dispatcher.receiver import SKIPPED_SECONDS, Receiver
from notify.feed.dispatcher.upkeep import Upkeep
from notify.feed.models import EventQueue, FeedBroadcast
from tests.integration.feed.support import BIZ, change, drain, entries, post, visited

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

_STATUS = EventQueue.Status
ON_MARIADB = connection.vendor == "mysql"  # SQLite's one writer keeps everybody else waiting


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """Locks are waited for as by a dispatcher."""
    if not ON_MARIADB:
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SET innodb_lock_wait_timeout = 1")
        yield
        cursor.execute("SET innodb_lock_wait_timeout = DEFAULT")


@contextmanager
def frozen(statement: str, parameters: Sequence[Any]) -> Iterator[None]:
    """Another process is frozen in a transaction in which it has run this statement."""
    holds, over = threading.Event(), threading.Event()

    def hold() -> None:
        try:
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
        assert holds.wait(180)
        yield
    finally:
        over.set()
        thread.join(60)


def half_written(feed_id: int, reader: str) -> Sequence[object]:
    of_author = FeedBroadcast.objects.get(feed_id=feed_id)
    return BIZ, reader, feed_id, of_author.create_date.replace(tzinfo=None), "", ""


INSERT = (
    "INSERT INTO feed_broadcast (biz_id, fri_uid, feed_id, create_date, app_id, src_type)"
    " VALUES (%s, %s, %s, %s, %s, %s)"
)


def test_a_post_of_which_an_entry_is_locked_does_not_hold_up_the_others() -> None:
    if not ON_MARIADB:
        return
    change(("ann", "befriend", "bob"), ("cid", "befriend", "bob"))
    visited("bob")
    locked, others = post("ann"), [post("cid") for _ in range(3)]
    one = Receiver("friend")
    with frozen(INSERT, half_written(locked, "bob")):
        # A backfill that is frozen has written one of the posts for one reader.
        assert one.turn(Pace()) == 3
        assert [entries(each) for each in others] == [{"bob", "cid"}] * 3
        assert EventQueue.objects.get(pk=locked).status == _STATUS.WAITING
        assert one.turn(Pace()) == 0  # passed over, without waiting again
    drain()
    assert entries(locked) == {"ann", "bob"}


def test_a_skipped_post_is_tried_again_while_others_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not ON_MARIADB:
        return
    seconds = [0.0]
    monkeypatch.setattr(timer, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    change(("ann", "befriend", "bob"), ("cid", "befriend", "bob"))
    visited("bob")
    first, one = post("ann"), Receiver("friend")
    with frozen(INSERT, half_written(first, "bob")):
        assert one.turn(Pace()) == 0
    seconds[0] = SKIPPED_SECONDS - 1
    second = post("cid")
    with frozen(INSERT, half_written(second, "bob")):
        assert one.turn(Pace()) == 0
        seconds[0] = SKIPPED_SECONDS
        assert one.turn(Pace()) == 1
    assert entries(first) == {"ann", "bob"}


def test_a_slice_of_which_an_entry_is_locked_does_not_hold_up_others(settings: Any) -> None:
    if not ON_MARIADB:
        return
    settings.FEED_FANOUT_BATCH = 1
    fans = ["fan1", "fan2"]
    change(*((fan, "follow", star) for fan in fans for star in ("sun", "moon")))
    visited(*fans)
    locked, other = post("sun", "vip"), post("moon", "vip")
    one = Receiver("vip")
    with frozen(INSERT, half_written(locked, "fan1")):
        for _ in range(6):
            one.turn(Pace())
        assert entries(other) == {"moon", *fans}
        assert EventQueue.objects.get(pk=locked).status == _STATUS.IN_SLICES
    drain()
    assert entries(locked) == {"sun", *fans}


def test_the_event_in_slices_that_failed_is_set_aside_not_the_oldest(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.FEED_FANOUT_BATCH = 1
    fans = ["fan1", "fan2"]
    change(*((fan, "follow", star) for fan in fans for star in ("sun", "moon")))
    visited(*fans)
    good, bad = post("sun", "vip"), post("moon", "vip")
    EventQueue.objects.filter(pk__in=[good, bad]).update(status=_STATUS.IN_SLICES)
    push_slice = fanout.push_slice

    def failing(feed_id: int, *rest: Any) -> int:
        if feed_id == bad:
            raise ValueError("this one cannot be written")
        return push_slice(feed_id, *rest)

    monkeypatch.setattr(fanout, "push_slice", failing)
    if ON_MARIADB:  # another dispatcher works on the oldest one
        statement = "SELECT qid FROM eventqueue WHERE qid = %s FOR UPDATE"
        with frozen(statement, [good]):
            Receiver("vip").turn(Pace())
    else:
        drain("vip")
    status = dict(EventQueue.objects.filter(topic="vip").values_list("qid", "status"))
    assert status[bad] == _STATUS.SET_ASIDE
    assert status[good] != _STATUS.SET_ASIDE
    monkeypatch.undo()
    EventQueue.objects.filter(pk=bad).update(status=_STATUS.WAITING)
    drain()
    assert entries(good) == {"sun", *fans}
    assert entries(bad) == {"moon", *fans}


def test_other_errors_of_the_database_are_not_taken_for_a_lock() -> None:
    with pytest.raises(ValueError, match="wrong"), transactions.without_patience():
        raise ValueError("wrong")


def test_backfills_that_a_frozen_dispatcher_has_locked_do_not_hold_up_others() -> None:
    if not ON_MARIADB:
        return
    change(("ann", "befriend", "bob"), ("ann", "befriend", "cid"))
    visited("bob", "cid")
    for n in range(Pace().events + 1):  # more than are looked at in a turn
        change((f"author{n}", "befriend", "bob"))
    change(("dan", "befriend", "cid"))
    statement = "SELECT qid FROM eventqueue WHERE uid = %s FOR UPDATE"
    upkeep = Upkeep()
    with frozen(statement, ["bob"]):
        for _ in range(3):
            upkeep.turn(Pace())
        assert EventQueue.objects.get(topic="upkeep", uid="cid").status == _STATUS.HANDLED
    drain()
    assert not EventQueue.objects.exclude(status=_STATUS.HANDLED).exists()


def test_a_frozen_dispatcher_loses_its_locks() -> None:
    """Who changes relations of a reader in the middle of a backfill does not wait for ever."""
    if not ON_MARIADB:
        return
    change(("ann", "befriend", "bob"))
    holds, over = threading.Event(), threading.Event()

    def freeze() -> None:
        try:
            # As programs have it; tests' own connections are more patient.
            engines.of().allow_idle_transactions(connection, IDLE_TRANSACTION_SECONDS)
            with suppress(OperationalError), transaction.atomic():
                users.lock(BIZ, ["bob"])
                holds.set()
                over.wait(280)
        finally:
            connection.close()

    thread = threading.Thread(target=freeze)
    thread.start()
    try:
        assert holds.wait(180)
        with connection.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 60")
        assert change(("cid", "befriend", "bob")) == ["created"]
    finally:
        over.set()
        thread.join(60)
