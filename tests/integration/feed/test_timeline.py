"""A page of a timeline, and what is unread of it, for readers of every kind."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from notify.feed import timeline
from notify.feed.intake import posts
from notify.feed.models import EventQueue, FeedBroadcast, FeedUser, Friend
from notify.feed.models.users import NOTHING_WRITTEN
from tests.integration.feed.support import BIZ, change, drain, post, user, visited

pytestmark = pytest.mark.django_db(transaction=True)


def ids(uid: str, **wanted: Any) -> list[int]:
    return [post.id for post in timeline.read(BIZ, uid, visit=False, **wanted).posts]


def pages(uid: str, limit: int, **wanted: Any) -> list[list[int]]:
    found, before = [], None
    while True:
        page = timeline.read(BIZ, uid, before, limit, visit=False, **wanted)
        found.append([post.id for post in page.posts])
        if page.next is None:
            return found
        before = page.next


@pytest.fixture
def bob() -> str:
    """A friend of ann's who follows cid; a reader who came."""
    change(("ann", "befriend", "bob"), ("bob", "follow", "cid"))
    visited("bob")
    return "bob"


def test_a_page_is_what_was_written_newest_first(bob: str) -> None:
    ann, cid, own = post("ann", data="one"), post("cid", "vip"), post("bob")
    post("cid")  # for friends only
    post("eve", "vip")
    drain("friend", "vip")
    page = timeline.read(BIZ, bob)
    assert [post.id for post in page.posts] == [own, cid, ann]
    assert page.next is None
    last = page.posts[-1]
    assert (last.uid, last.topic, last.data, last.update_date) == ("ann", "friend", "one", None)
    assert last.create_date.utcoffset() is not None


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("floor", [0, 3, NOTHING_WRITTEN])
def test_pages_go_on_below_the_floor(bob: str, limit: int, floor: int) -> None:
    made = [post(("ann", "bob")[n % 2]) for n in range(6)]
    drain("friend")
    if floor == 3:
        floor = made[3]
    FeedUser.objects.filter(uid=bob).update(floor=floor)
    FeedBroadcast.objects.filter(fri_uid=bob, feed_id__lte=floor).delete()
    assert ids(bob, limit=20) == made[::-1]
    found = pages(bob, limit)
    assert [id for page in found for id in page] == made[::-1]
    assert all(len(page) == limit for page in found[:-1])
    assert found[-1]


def test_authors_who_are_merged_at_read_are_among_the_written(bob: str) -> None:
    first = post("ann")
    drain("friend")
    Friend.objects.filter(uid="cid", fri_uid=bob).update(delivery=Friend.Delivery.BOTH)
    second, third = post("cid", "vip"), post("ann")
    post("cid")
    drain("friend")  # the vip event waits
    assert ids(bob) == [third, second, first]
    drain("vip")
    assert ids(bob) == [third, second, first]
    assert pages(bob, 1) == [[third], [second], [first]]


def test_an_end_is_seen_at_once(bob: str) -> None:
    ann, vip, cid = post("ann"), post("ann", "vip"), post("cid", "vip")
    drain("friend", "vip")
    change(("bob", "follow", "ann"), ("bob", "unfriend", "ann"))
    assert ids(bob) == [cid, vip]
    posts.delete(BIZ, cid)
    assert ids(bob) == [vip]
    posts.edit(BIZ, vip, "edited")
    page = timeline.read(BIZ, bob)
    assert page.posts[0].data == "edited"
    assert page.posts[0].update_date is not None
    change(("ann", "block", "bob"))
    assert ids(bob) == []
    change(("ann", "unblock", "bob"), ("ann", "befriend", "bob"))
    assert ids(bob) == [vip, ann]


@pytest.mark.parametrize("floor", [0, NOTHING_WRITTEN])
def test_a_page_of_one_application(bob: str, floor: int) -> None:
    wanted = {"app_id": "photos", "src_type": "note"}
    found = [post(uid, **wanted) for uid in ("ann", "bob", "ann")]
    post("ann", app_id="photos")
    post("bob", src_type="note")
    drain("friend")
    FeedUser.objects.filter(uid=bob).update(floor=floor)
    assert ids(bob, **wanted) == found[::-1]
    assert len(ids(bob, app_id="photos")) == 4
    assert pages(bob, 2, **wanted) == [found[:0:-1], found[:1]]


@pytest.mark.parametrize("floor", [0, NOTHING_WRITTEN])
def test_unread_posts_are_those_of_others_above_the_mark(bob: str, floor: int) -> None:
    made = [post(("ann", "bob")[n % 2]) for n in range(6)]
    drain("friend")
    FeedUser.objects.filter(uid=bob).update(floor=floor)
    assert timeline.count_unread(BIZ, bob) == timeline.Unread(3, False)
    timeline.mark_read(BIZ, bob, made[2])
    assert timeline.count_unread(BIZ, bob) == timeline.Unread(1, False)
    timeline.mark_read(BIZ, bob, made[0])  # never back
    assert timeline.count_unread(BIZ, bob).count == 1
    timeline.mark_read(BIZ, "new", made[5])
    change(("new", "befriend", "ann"))
    assert timeline.count_unread(BIZ, "new").count == 0


def test_the_first_page_of_somebody_new_is_a_visit() -> None:
    change(("ann", "befriend", "bob"))
    first = post("ann")
    timeline.read(BIZ, "bob", visit=False)
    timeline.read(BIZ, "bob", before=first)
    assert not user("bob").active
    assert [post.id for post in timeline.read(BIZ, "bob").posts] == [first]
    bob = user("bob")
    assert bob.active
    assert bob.visit_date
    assert bob.floor == NOTHING_WRITTEN
    assert Friend.objects.get(uid="ann", fri_uid="bob").delivery == Friend.Delivery.BOTH
    timeline.read(BIZ, "bob")
    event = EventQueue.objects.get(topic="upkeep")
    assert (event.kind, event.uid) == (EventQueue.Kind.BACKFILL, "bob")
    assert user("bob").visit_date == bob.visit_date


def test_a_visit_is_noted_once_an_hour_and_heals_relations(bob: str) -> None:
    timeline.read(BIZ, bob)
    noted = user(bob).visit_date
    assert noted is not None
    assert not EventQueue.objects.exists()
    Friend.objects.filter(uid="cid", fri_uid=bob).update(delivery=Friend.Delivery.BOTH)
    timeline.read(BIZ, bob)
    assert user(bob).visit_date == noted
    for merging, kinds in ((FeedUser.Merging.MERGED, []), (FeedUser.Merging.PUSHED, ["backfill"])):
        FeedUser.objects.filter(uid="cid").update(merging=merging)
        FeedUser.objects.filter(uid=bob).update(visit_date="2026-01-01T00:00Z")
        timeline.read(BIZ, bob)
        assert user(bob).visit_date > noted
        assert list(EventQueue.objects.values_list("kind", flat=True)) == kinds


def test_a_page_and_a_count_are_few_statements(bob: str) -> None:
    for _ in range(5):
        post("ann")
    drain("friend")
    timeline.read(BIZ, bob)
    with CaptureQueriesContext(connection) as queries:
        timeline.read(BIZ, bob, limit=3)
    assert len(queries) == 3
    with CaptureQueriesContext(connection) as queries:
        timeline.count_unread(BIZ, bob)
    assert len(queries) == 3


@pytest.mark.parametrize("floor", [0, NOTHING_WRITTEN])
def test_unread_posts_are_counted_up_to_a_bound(
    bob: str, floor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MAX_UNREAD", 4)
    FeedUser.objects.filter(uid=bob).update(floor=floor)
    for count, unread in ((4, timeline.Unread(4, False)), (1, timeline.Unread(4, True))):
        for _ in range(count):
            post("ann")
        drain("friend")
        assert timeline.count_unread(BIZ, bob) == unread
