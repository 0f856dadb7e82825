"""Posts reach their recipients."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from notify.feed.dispatcher import fanout
from notify.feed.dispatcher.pace import Pace
from notify.feed.dispatcher.receiver import Receiver
from notify.feed.dispatcher.upkeep import Upkeep
from notify.feed.intake import posts, relations
from notify.feed.intake.posts import Post
from notify.feed.intake.relations import Change
from notify.feed.models import EventQueue, FeedBroadcast, FeedUser, Friend

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

BIZ = 7


def change(*changes: tuple[str, str, str]) -> list[str]:
    verdicts = relations.change_many([Change(BIZ, action, a, b) for a, action, b in changes])
    return [verdict.outcome for verdict in verdicts]


def visited(*uids: str) -> None:
    """These readers are active, and their relations written to."""
    FeedUser.objects.filter(biz_id=BIZ, uid__in=uids).update(active=True, floor=0)
    Friend.objects.filter(biz_id=BIZ, fri_uid__in=uids).update(delivery=Friend.Delivery.PUSHED)


def post(uid: str, topic: str = "friend", data: str = "hello") -> int:
    return posts.add(Post(BIZ, uid, data, topic)).id


def entries(feed_id: int) -> set[str]:
    return set(FeedBroadcast.objects.filter(feed_id=feed_id).values_list("fri_uid", flat=True))


def drain(*topics: str) -> None:
    for topic in topics or ("friend", "vip"):
        while Receiver(topic).turn(Pace()):
            pass


def statuses() -> Iterable[int]:
    return EventQueue.objects.exclude(topic="upkeep").values_list("status", flat=True)


def test_friends_get_a_friend_post_and_followers_too_a_vip_post() -> None:
    change(("ann", "befriend", "bob"), ("cid", "follow", "ann"), ("dan", "befriend", "ann"))
    visited("bob", "cid")
    friend, vip = post("ann"), post("ann", "vip")
    assert entries(friend) == {"ann"}  # the author sees it at once
    drain()
    assert entries(friend) == {"ann", "bob"}  # dan never came
    assert entries(vip) == {"ann", "bob", "cid"}
    assert set(statuses()) == {EventQueue.Status.HANDLED}


def test_an_author_with_many_recipients_is_handled_in_slices(settings: Any) -> None:
    settings.FEED_FANOUT_BATCH = 3
    fans = [f"fan{n}" for n in range(8)]
    change(*((fan, "follow", "star") for fan in fans), ("star", "befriend", "bob"))
    visited(*fans, "bob")
    feed_id = post("star", "vip")
    one = Receiver("vip")
    assert one.turn(Pace()) == 2  # set apart, and the first slice
    assert len(entries(feed_id)) == 1 + 3
    drain()
    assert entries(feed_id) == {"star", "bob", *fans}
    assert list(statuses()) == [EventQueue.Status.HANDLED]


def test_a_poison_event_is_set_aside_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    change(("ann", "befriend", "bob"))
    visited("bob")
    ids = [post("ann") for _ in range(5)]
    push = fanout.push

    def failing(topic: str, feed_ids: Sequence[int]) -> Any:
        if ids[2] in feed_ids:
            raise ValueError("this one cannot be written")
        return push(topic, feed_ids)

    monkeypatch.setattr(fanout, "push", failing)
    drain()
    assert [entries(i) == {"ann", "bob"} for i in ids] == [True, True, False, True, True]
    event = EventQueue.objects.get(pk=ids[2])
    assert event.status == EventQueue.Status.SET_ASIDE
    assert "cannot be written" in event.reason


def test_relations_are_counted_and_blocks_end_them(settings: Any) -> None:
    assert change(("ann", "befriend", "bob"), ("ann", "befriend", "bob")) == [
        "created",
        "duplicate",
    ]
    change(("bob", "follow", "ann"), ("cid", "follow", "ann"))
    ann = FeedUser.objects.get(biz_id=BIZ, uid="ann")
    assert (ann.friends, ann.followers) == (1, 2)
    assert change(("ann", "block", "bob"), ("bob", "follow", "ann")) == ["created", "rejected"]
    ann = FeedUser.objects.get(biz_id=BIZ, uid="ann")
    assert (ann.friends, ann.followers) == (0, 1)
    assert change(("ann", "unblock", "bob"), ("bob", "follow", "ann")) == ["created", "created"]


def test_an_author_becomes_merged_above_the_threshold_and_not_at_once_below(settings: Any) -> None:
    settings.FEED_READ_FANOUT_ABOVE, settings.FEED_WRITE_FANOUT_BELOW = 10, 8
    merging = FeedUser.Merging

    def state() -> int:
        return FeedUser.objects.get(biz_id=BIZ, uid="star").merging

    change(*((f"fan{n}", "follow", "star") for n in range(10)))
    assert state() == merging.PUSHED
    change(("fan10", "follow", "star"))
    assert state() == merging.BECOMING
    assert EventQueue.objects.get(topic="upkeep").kind == EventQueue.Kind.MERGE
    Upkeep().turn(Pace())
    assert state() == merging.MERGED
    change(*((f"fan{n}", "unfollow", "star") for n in range(3)))
    assert state() == merging.MERGED
    change(("fan3", "unfollow", "star"))
    assert state() == merging.PUSHED


def test_nobody_receives_posts_of_more_than_the_most(settings: Any) -> None:
    settings.FEED_MAX_AUTHORS = 10
    follows = [("bob", "follow", f"page{n}") for n in range(12)]
    assert change(*follows) == ["created"] * 10 + ["rejected"] * 2
    assert change(("bob", "follow", "page3"), ("ann", "befriend", "bob")) == [
        "duplicate",
        "rejected",
    ]
    assert change(("bob", "unfollow", "page3"), ("ann", "befriend", "bob")) == ["created"] * 2
    counts = {user.uid: user.authors for user in FeedUser.objects.filter(biz_id=BIZ)}
    assert (counts["bob"], counts["ann"], counts["page3"]) == (10, 1, 0)
    change(("ann", "block", "bob"))
    assert FeedUser.objects.get(biz_id=BIZ, uid="bob").authors == 9
