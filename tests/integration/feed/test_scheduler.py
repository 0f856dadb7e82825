"""The scheduler's lease, its decisions, and what happens while Redis is unavailable."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.core import checks
from django.db import DatabaseError, connection, connections

from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.data import engines, ids, sql
from notify.feed import presence
from notify.feed.dispatcher import pacer as pacer_module
from notify.feed.dispatcher.pace import Meter, Pace, pace_of
from notify.feed.dispatcher.pacer import FIRST_SHARE, Pacer, Scheduler
from notify.feed.models import EventQueue, FeedPace
from notify.feed.monitor import backlog
from notify.feed.presence import PaceDecision
from tests.servers import Servers

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
ON_MARIADB = connection.vendor == "mysql"


@pytest.fixture(autouse=True)
def _empty(work_redis: object) -> None:
    """Redis knows nothing of another test's dispatchers."""


@pytest.fixture(autouse=True)
def _lasting_decision() -> Iterator[None]:
    """The last decision counts although this machine stood still for some seconds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pacer_module, "KEEP_SECONDS", 600.0)
        yield


def until(reached: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 180
    while not (found := reached()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)
    return found


@pytest.fixture
def dispatchers() -> Iterator[Callable[[], Pacer]]:
    started: list[Pacer] = []

    def start() -> Pacer:
        one = Pacer(Heartbeat("feed-dispatcher"))
        one.start()
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()
        one._loop._thread.join(60)


def decision(by: str, share: float = 0.25) -> PaceDecision:
    return PaceDecision(by=by, at=time.time(), share=share, events=25)


def event(status: int = EventQueue.Status.WAITING, topic: str = "friend") -> None:
    EventQueue.objects.create(
        qid=ids.new(1), biz_id=1, topic=topic, uid="ann", status=status, create_date=sql.now()
    )


def test_one_decides_and_all_follow(dispatchers: Callable[[], Pacer]) -> None:
    first = dispatchers()
    found = until(presence.read_decision, "a decision")
    second = dispatchers()
    until(lambda: presence.read_decision().at > found.at, "another decision")
    assert presence.read_decision().by == found.by
    until(lambda: presence.read_decision().share == 1.0, "full speed while nobody else works")
    until(lambda: first.current() == second.current() == Pace(), "both to follow")


def test_another_takes_over_and_goes_on_from_there(dispatchers: Callable[[], Pacer]) -> None:
    first = dispatchers()
    by = until(presence.read_decision, "a decision").by
    until(lambda: presence.read_decision().share > FIRST_SHARE + 0.1, "a higher share")
    dispatchers()
    first.stop()
    taken = until(lambda: (d := presence.read_decision()) and d.by != by and d, "the other one")
    assert taken.share > FIRST_SHARE


def test_who_lost_the_lease_changes_nothing(work_redis: Any) -> None:
    lease = presence.lease
    assert lease.hold("late")
    assert lease.hold("late")
    assert presence.publish_decision(decision("late"))
    assert not lease.hold("quick")
    work_redis.delete(lease.key)  # its time was over
    assert lease.hold("quick")
    assert presence.publish_decision(decision("quick", 0.5))
    assert not presence.publish_decision(decision("late", 1.0))
    lease.release("late")
    assert not lease.hold("late")
    assert presence.read_decision().share == 0.5
    assert 0 < work_redis.pttl(lease.key) <= 600_000
    assert 0 < work_redis.pttl("feed:pace-decision") <= 600_000
    lease.release("quick")
    assert lease.hold("late")


def test_a_decision_of_another_version_is_none(work_redis: Any) -> None:
    work_redis.set("feed:pace-decision", '{"speed": "fast"}')
    assert presence.read_decision() is None


def test_without_redis_the_last_decision_counts_for_a_while(
    dispatchers: Callable[[], Pacer], servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = dispatchers()
    until(lambda: one.current().share > FIRST_SHARE + 0.1, "a decision")
    servers.work.kill()
    try:
        time.sleep(1.2)  # it was due to consult Redis
        assert one.current().share > FIRST_SHARE + 0.1
        monkeypatch.setattr(pacer_module, "KEEP_SECONDS", 0.0)
        assert one.current() == pace_of(FIRST_SHARE)
        monkeypatch.undo()
    finally:
        servers.work.start()
    until(presence.read_decision, "a decision after Redis came back")
    until(lambda: one.current().share > FIRST_SHARE, "the dispatcher to hear of it")


def test_what_was_measured_is_kept_for_the_console(dispatchers: Callable[[], Pacer]) -> None:
    event()
    event(EventQueue.Status.SET_ASIDE)
    event(EventQueue.Status.IN_SLICES, "vip")
    dispatchers()
    row = until(FeedPace.objects.first, "a row")
    assert row.backlog == 2
    assert row.oldest >= 0
    assert 0 < row.share <= 1
    found = until(lambda: (d := presence.read_decision()) and d.latency and d, "a measured latency")
    assert found.baseline <= found.latency
    assert set(found.oldest) == {"friend", "vip"}


def test_an_idle_platform_keeps_nothing_of_its_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacer_module, "_RECORD_SECONDS", 0.0)
    scheduler = Scheduler("it", None)
    for _ in range(3):
        scheduler.record(scheduler.decide({}))
    assert FeedPace.objects.count() == 1  # the moment in which it became idle
    event()
    for _ in range(2):
        scheduler.record(scheduler.decide({}))
    assert FeedPace.objects.count() == 3


def test_a_late_queue_presses_harder(dispatchers: Callable[[], Pacer], settings: Any) -> None:
    settings.FEED_LATE_SECONDS = 0.001
    event()
    dispatchers()
    assert until(presence.read_decision, "a decision").min_share == 2 * settings.FEED_MIN_SHARE


def test_the_backlog_is_counted_up_to_a_bound() -> None:
    assert backlog.oldest(sql.now()) == {}
    for _ in range(4):
        event()
    event(topic="upkeep")
    assert backlog.counts(3)["friend", EventQueue.Status.WAITING] == 3
    assert backlog.counts()["friend", EventQueue.Status.WAITING] == 4
    assert set(backlog.oldest(sql.now())) == {"friend", "upkeep"}


@contextmanager
def long_statement() -> Iterator[int]:
    """Somebody's statement that runs meanwhile; the number of its connection. SQLite, which has no
    server, gives 0."""
    numbers: list[int] = []
    known = threading.Event()

    def work() -> None:
        with suppress(DatabaseError), connection.cursor() as cursor:
            numbers.append(engines.of().connection_id(connection))
            known.set()
            if ON_MARIADB:
                cursor.execute("SELECT SLEEP(600)")
        connections.close_all()

    def end() -> bool:
        if ON_MARIADB:
            with suppress(DatabaseError), connection.cursor() as cursor:  # it may have gone
                cursor.execute("KILL QUERY %s", [numbers[0]])
        thread.join(0.2)
        return not thread.is_alive()

    thread = threading.Thread(target=work)
    thread.start()
    assert known.wait(180)
    try:
        yield numbers[0]
    finally:
        until(end, "the statement to end")


def test_statements_of_others_are_told_from_own_ones() -> None:
    meter = Meter(clock=lambda: 0.0)  # all samples are of the last seconds
    with long_statement() as number:
        assert bool(number) == ON_MARIADB
        if ON_MARIADB:
            until(
                lambda: number in engines.of().running_connections(connection),
                "the statement to be seen",
            )
        for _ in range(20):
            meter.sample()
        theirs, own = meter.load(()), meter.load({number})
    assert theirs
    assert own
    assert round(theirs.statements - own.statements, 1) == (1.0 if ON_MARIADB else 0.0)
    assert theirs.latency > 0


def test_the_share_falls_while_others_work(dispatchers: Callable[[], Pacer], settings: Any) -> None:
    settings.FEED_TARGET_STATEMENTS = 0.5
    one = dispatchers()
    with long_statement():
        wanted = settings.FEED_MIN_SHARE if ON_MARIADB else 1.0
        until(lambda: one.current().share == wanted, f"a share of {wanted}")
    until(lambda: one.current().share == 1.0, "full speed again")


def test_a_new_connection_is_reported_at_once(dispatchers: Callable[[], Pacer]) -> None:
    one = dispatchers()
    for _ in range(2):
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        one.current()

        def reported() -> bool:
            found = presence.dispatchers.read().values()
            return engines.of().connection_id(connection) in {
                working.connection for working in found
            }

        until(reported, "its connection")


def test_a_connection_of_before_is_no_stranger_while_samples_hold_it() -> None:
    """Each is closed for its age once a minute."""
    scheduler = Scheduler("it", None)
    for number in (71, 72):
        for _ in range(20):
            scheduler._meter.add(0.001, [number])
        report = presence.DispatcherReport(number, True, True)
        assert scheduler.decide({"one": report}).statements == 0.0


def test_a_closed_connection_is_not_reported() -> None:
    one = Pacer(Heartbeat("feed-dispatcher"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    one.current()
    number = one._connection
    connection.close()
    one.current()
    assert one._connection == number
    assert (number != 0) == ON_MARIADB


def test_half_speed_is_no_more_than_people_allow(settings: Any) -> None:
    settings.FEED_SHARE_BY_HOUR = "0-24:0.2"
    one = Pacer(Heartbeat("feed-dispatcher"))
    one._decided_at = float("-inf")
    assert one.current() == pace_of(0.2)


def test_wrong_hours_are_refused_with_a_hint(settings: Any) -> None:
    settings.FEED_SHARE_BY_HOUR = "19-23:0.3,noon:1"
    found = {error.id: error for error in checks.run_checks()}
    assert "'noon:1'" in found["feed.E002"].msg
    assert "19-23:0.3" in str(found["feed.E002"].hint)
