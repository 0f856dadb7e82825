"""What the cleaner deletes, what it never deletes, and that no reader sees a difference."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from msgplatform.core.archive import partitions
from msgplatform.core.archive.partitions import partitions_of
from msgplatform.core.data import ids, sql
from msgplatform.models import Alert
from notify.feed import timeline
from notify.feed.cleaner import cleaner
from notify.feed.cleaner.cleaner import Cleaner
from notify.feed.flow import FLOW
from notify.feed.models import (
    EventQueue,
    Feed,
    FeedBroadcast,
    FeedIdempotency,
    FeedPace,
    FeedUser,
    Friend,
)
from notify.feed.models.users import NOTHING_WRITTEN
from notify.feed.retention import ENTRIES, EVENTS
from tests.integration.feed.support import (
    BIZ,
    change,
    delivery,
    drain,
    post,
    user,
    visited,
    written,
)
from tests.support.archive_support import old_id, without_months
from tests.support.children import child

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
ON_MARIADB = connection.vendor == "mysql"
Status = EventQueue.Status
LENGTH = 20  # of a timeline: the least that the environment may say
CLEAN = """
from notify.feed.cleaner.cleaner import Cleaner
cleaner = Cleaner()
while cleaner.turn():
    pass
say("done")
"""
LONG = 30


@pytest.fixture(autouse=True)
def _fresh(db: None, settings: Any, work_redis: object) -> Iterator[None]:
    """Days from a week ago on, months from a year ago on; short timelines."""
    settings.FEED_TIMELINE_LENGTH = LENGTH
    settings.FEED_CLEAN_SECONDS = 0.05
    for archive, days in ((EVENTS, 7), (ENTRIES, 365)):
        without_months(archive)
        partitions.prepare(archive, sql.now() - timedelta(days=days))
        partitions.prepare(archive, sql.now())
    yield
    for archive in (EVENTS, ENTRIES):
        without_months(archive)


def clean() -> None:
    one = Cleaner()
    while one.turn():
        pass
    one.stop()


def event(days: float, status: int = Status.HANDLED, topic: str = "friend") -> int:
    qid = old_id(days)
    EventQueue.objects.create(
        qid=qid, biz_id=BIZ, topic=topic, uid="ann", status=status,
        create_date=ids.datetime_of(qid),
    )  # fmt: skip
    return qid


def old_post(days: float, uid: str, *readers: str, topic: str = "friend") -> int:
    """A post and its entries, as they were written at that time."""
    pk = old_id(days)
    at = ids.datetime_of(pk)
    Feed.objects.create(
        id=pk, biz_id=BIZ, uid=uid, topic=topic, data=f"{days} days ago", create_date=at
    )
    for reader in (uid, *readers):
        FeedBroadcast.objects.create(
            biz_id=BIZ, fri_uid=reader, feed_id=pk, create_date=at, app_id="", src_type=""
        )
    return pk


def seen(uid: str) -> list[int]:
    """The whole timeline, page by page."""
    found: list[int] = []
    before = None
    while True:
        page = timeline.read(BIZ, uid, before, limit=3, visit=False)
        found += [post.id for post in page.posts]
        if page.next is None:
            return found
        before = page.next


def kept_events() -> set[int]:
    return set(EventQueue.objects.values_list("qid", flat=True))


def names(archive: Any) -> list[str]:
    return [part.name for part in partitions_of(archive.tables[0])]


def test_handled_events_go_and_no_others() -> None:
    now = sql.now()
    old = [event(4.0, topic=topic) for topic in EventQueue.Topic.values for _ in range(3)]
    open_ones = {
        event(days, status)
        for days in (3.0, 60.0)
        for status in (Status.WAITING, Status.IN_SLICES, Status.SET_ASIDE)
    }
    among_them = [event(3.0), event(60.0, topic="vip")]
    young = event(0.4), event(0.0)
    before = names(EVENTS)

    clean()

    assert kept_events() == {*open_ones, *young}
    assert not kept_events() & {*old, *among_them}
    if ON_MARIADB:
        dropped = set(before) - set(names(EVENTS))
        assert _day(now, 4.0) in dropped, "a day of handled events goes whole"
        assert _day(now, 3.0) not in dropped, "a day with an open one stays"
        assert _day(now, 0.0) in names(EVENTS)
    EventQueue.objects.update(status=Status.HANDLED)
    clean()
    assert kept_events() == set(young)
    if ON_MARIADB:
        assert _day(now, 3.0) not in names(EVENTS)


def _day(now: datetime, days: float) -> str:
    return f"p{now - timedelta(days=days):%Y%m%d}"


def test_days_are_made_ahead() -> None:
    now = sql.now()
    clean()
    if sql.now().date() != now.date():  # midnight, of all times
        now = sql.now()
        clean()
    assert [name for name in names(EVENTS) if name >= _day(now, 0.0)] == (
        [_day(now, 0.0), _day(now, -1.0), _day(now, -2.0), "pmax"] if ON_MARIADB else []
    )


def test_more_handled_events_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    from notify.feed.cleaner import cleaner

    monkeypatch.setattr(cleaner, "CHUNK", 3)
    stays = event(3.0, Status.SET_ASIDE)
    for _ in range(10):
        event(3.0)
    clean()
    assert kept_events() == {stays}


@pytest.fixture
def bob() -> str:
    """A friend of ann's who follows cid, with more in his timeline than is kept."""
    change(("ann", "befriend", "bob"), ("bob", "follow", "cid"))
    visited("bob", "ann")
    for number in range(LONG):
        post(("ann", "cid", "bob")[number % 3], "vip")
    drain()
    return "bob"


def test_a_long_timeline_is_trimmed_and_reads_the_same(bob: str) -> None:
    before, of_ann = seen(bob), written("ann")
    assert len(before) == len(written(bob)) == LONG
    clean()
    assert written(bob) == before[:LENGTH]
    assert user(bob).floor == before[LENGTH]
    assert seen(bob) == before
    assert written("ann") == of_ann[:LENGTH]


@pytest.mark.parametrize(("seconds", "length"), [(3600, LONG), (50_000, LENGTH), (86_400, LENGTH)])
def test_the_second_round_trims_when_it_is_a_day_later(
    bob: str, settings: Any, seconds: float, length: int
) -> None:
    settings.FEED_CLEAN_SECONDS = seconds
    one = Cleaner()
    one._rounds = 1
    while one.turn():
        pass
    one.stop()
    assert len(written(bob)) == length


def test_a_little_longer_is_not_worth_it(bob: str) -> None:
    FeedBroadcast.objects.filter(fri_uid=bob, feed_id__lte=written(bob)[24]).delete()
    left = written(bob)
    assert len(left) == 24
    clean()
    assert written(bob) == left


def test_a_cleaner_killed_before_it_deletes(bob: str) -> None:
    before = seen(bob)
    with child(CLEAN, **QUICK, MSGPLATFORM_FAILPOINT="feed_after_floor") as one:
        assert one.ended() == -9
    assert user(bob).floor == before[LENGTH]
    assert len(written(bob)) == LONG
    assert seen(bob) == before
    Cleaner()._lease.release(_holder())
    clean()
    assert written(bob) == before[:LENGTH]
    assert seen(bob) == before


QUICK = {"FEED_TIMELINE_LENGTH": str(LENGTH), "FEED_CLEAN_SECONDS": "0.05"}


def _holder() -> str:
    from msgplatform.core.connections import work_redis

    return work_redis().get("feed:cleaner").decode()


def test_who_stays_away_becomes_inactive(bob: str, settings: Any) -> None:
    before = seen(bob)
    now = sql.now()
    FeedUser.objects.filter(uid="ann").update(visit_date=now - timedelta(days=29))
    FeedUser.objects.filter(uid=bob).update(visit_date=now - timedelta(days=31))
    clean()
    assert (user(bob).active, user(bob).floor) == (False, NOTHING_WRITTEN)
    assert delivery("ann", bob) == {"friend": Friend.Delivery.MERGED}
    assert delivery("cid", bob) == {"follow": Friend.Delivery.MERGED}
    assert written(bob) == []
    assert user("ann").active
    assert delivery(bob, "ann") == {"friend": Friend.Delivery.PUSHED}
    assert seen(bob) == before
    new = post("ann")
    drain()
    assert new not in written(bob)
    assert seen(bob) == [new, *before]
    timeline.read(BIZ, bob)  # he is back
    drain()
    assert len(written(bob)) == LONG + 1
    assert seen(bob) == [new, *before]


def test_what_came_between_goes_too(bob: str) -> None:
    """A fan-out that had begun before its reader became inactive."""
    FeedUser.objects.filter(uid=bob).update(active=False, floor=NOTHING_WRITTEN)
    assert written(bob)
    clean()
    assert written(bob) == []


def test_a_reader_who_comes_back_meanwhile_keeps_his_entries(bob: str) -> None:
    from notify.feed.cleaner import timelines

    FeedUser.objects.filter(uid=bob).update(active=False, floor=NOTHING_WRITTEN)
    walk = timelines.Timelines(sql.now())
    stale = user(bob)
    FeedUser.objects.filter(uid=bob).update(active=True, floor=0)
    walk.trim(stale, timelines.Length(LONG, written(bob)[-1]))
    assert len(written(bob)) == LONG


def old_and_new() -> tuple[Sequence[int], Sequence[int]]:
    """Posts of ann's in bob's timeline that are older than what is kept, and younger ones."""
    change(("ann", "befriend", "bob"))
    visited("bob", "ann")
    old = [old_post(days, "ann", "bob") for days in (300.0, 200.0, 180.0)]
    new = [old_post(days, "ann", "bob") for days in (20.0, 10.0)]
    return old, new


def test_old_entries_go_and_the_timeline_reads_the_same() -> None:
    old, new = old_and_new()
    before = names(ENTRIES)
    expected = [*reversed([*old, *new])]
    assert seen("bob") == written("bob") == expected
    clean()
    assert written("bob") == expected[:2]
    assert old[-1] <= user("bob").floor < new[0]
    assert seen("bob") == seen("ann") == expected
    if ON_MARIADB:
        assert len(before) - len(names(ENTRIES)) >= 5
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM feed_broadcast")
            assert cursor.fetchone()[0] == 4


def test_a_cleaner_killed_before_it_drops_a_month() -> None:
    old, new = old_and_new()
    expected = [*reversed([*old, *new])]
    failpoint = "feed_before_drop" if ON_MARIADB else "feed_after_floor"
    with child(CLEAN, **QUICK, MSGPLATFORM_FAILPOINT=failpoint) as one:
        assert one.ended() == -9
    assert written("bob") == expected
    assert seen("bob") == expected
    Cleaner()._lease.release(_holder())
    clean()
    assert written("bob") == expected[:2]
    assert seen("bob") == expected


def test_everything_is_kept_when_asked(settings: Any) -> None:
    settings.FEED_KEEP_ENTRY_DAYS = 0
    old_and_new()
    clean()
    assert len(written("bob")) == 5


def test_keys_and_decisions_go_after_a_week() -> None:
    def key(days: float) -> int:
        pk = old_id(days)
        FeedIdempotency.objects.create(
            id=pk, bucket=pk & 255, biz_id=BIZ, key=f"{days}", payload_hash="0",
            created_at=ids.datetime_of(pk),
        )  # fmt: skip
        FeedPace.objects.create(
            at=ids.datetime_of(pk), share=1, events=100, load=0, latency=1, baseline=1,
            statements=0, cpu=0, backlog=0, oldest=0,
        )  # fmt: skip
        return pk

    key(8)
    young = key(6)
    clean()
    assert [row.pk for row in FeedIdempotency.objects.all()] == [young]
    assert [row.at for row in FeedPace.objects.all()] == [ids.datetime_of(young)]


def open_alerts() -> list[str]:
    return list(Alert.objects.exclude(open_key=None).values_list("kind", flat=True))


def days_from_long_ago() -> None:
    without_months(EVENTS)
    partitions.prepare(EVENTS, sql.now() - timedelta(days=65))


def test_somebody_is_told_when_rows_cannot_go() -> None:
    days_from_long_ago()
    event(60.0, Status.SET_ASIDE)
    clean()
    assert open_alerts() == ["feed.events.retention"]
    samples = {sample.name: sample.value for sample in FLOW.health.metrics()}
    assert samples["feed_events_archive_overdue_seconds"] > 50 * 86_400
    assert samples["feed_keys_archive_overdue_seconds"] == 0
    EventQueue.objects.update(status=Status.HANDLED)
    clean()
    assert open_alerts() == []


def test_somebody_is_told_when_deleting_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_now: object) -> bool:
        raise ValueError("these cannot be deleted")

    days_from_long_ago()
    event(60.0)
    monkeypatch.setattr(cleaner, "delete_events", fail)
    one = Cleaner()
    with pytest.raises(ValueError, match="cannot be deleted"):
        one.turn()
    one.stop()
    assert open_alerts() == ["feed.events.retention"]
    assert "these cannot be deleted" in Alert.objects.get().text


def test_old_entries_of_an_author_without_relations_go(monkeypatch: pytest.MonkeyPatch) -> None:
    from notify.feed.cleaner import timelines

    monkeypatch.setattr(timelines, "CHUNK", 2)
    for uid in ("lea", "leo"):
        for days in (300.0, 200.0, 180.0):
            old_post(days, uid)
    new = old_post(10.0, "leo")
    clean()
    assert (written("lea"), written("leo")) == ([], [new])
    assert not FeedUser.objects.exists()


def test_one_cleaner_works_at_a_time(bob: str) -> None:
    first, second = Cleaner(), Cleaner()
    second.heartbeat.pid += 1
    assert first.turn()
    assert not second.turn()
    while first.turn():
        pass
    assert not second.turn()
    first.stop()
    assert second.turn()


def test_what_fails_keeps_the_others_from_nothing(
    bob: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_now: object) -> bool:
        raise ValueError("these cannot be deleted")

    monkeypatch.setattr(cleaner, "delete_events", fail)
    one = Cleaner()
    with pytest.raises(ValueError, match="cannot be deleted"):
        one.turn()
    while one.turn():
        pass
    assert len(written(bob)) == LENGTH
