"""What the console says of a post and a timeline agrees with what the reader sees."""

import pytest

from notify.feed import timeline
from notify.feed.intake import posts
from notify.feed.messages.explanations import Reason, explain
from notify.feed.models import EventQueue, FeedBroadcast, FeedUser, Friend
from tests.integration.feed.support import BIZ, change, drain, post, visited

pytestmark = pytest.mark.django_db(transaction=True)


def reasons(uid: str, post_id: int) -> list[Reason]:
    """Of an answer that is checked against the timeline itself."""
    answer = explain(BIZ, uid, post_id)
    page = timeline.read(BIZ, uid, visit=False)
    assert answer.is_visible is (post_id in [post.id for post in page.posts])
    assert all(str(reason.label) for reason in answer.reasons)
    return list(answer.reasons)


def test_what_two_users_are_to_each_other() -> None:
    change(("ann", "befriend", "bob"), ("cid", "follow", "ann"), ("dan", "block", "ann"))
    friends, all_of_them = post("ann"), post("ann", "vip")
    assert reasons("bob", friends) == [Reason.FRIEND, Reason.INACTIVE]
    assert reasons("cid", friends) == [Reason.FRIENDS_ONLY]
    assert reasons("cid", all_of_them) == [Reason.FOLLOWER, Reason.INACTIVE]
    assert reasons("eve", all_of_them) == [Reason.NO_RELATION]
    assert reasons("dan", all_of_them) == [Reason.HAS_BLOCKED]
    assert reasons("ann", post("dan")) == [Reason.IS_BLOCKED]
    change(("ann", "block", "dan"))
    assert reasons("dan", all_of_them) == [Reason.BOTH_BLOCKED]
    assert reasons("ann", friends) == [Reason.OWN, Reason.INACTIVE]
    posts.delete(BIZ, friends)
    assert reasons("bob", friends) == [Reason.DELETED]
    assert reasons("bob", 17) == [Reason.UNKNOWN]
    assert explain(8, "bob", all_of_them).reasons == [Reason.UNKNOWN]


def test_how_a_post_comes_there() -> None:
    change(("ann", "befriend", "bob"))
    visited("bob")
    first = post("ann")
    events = EventQueue.objects.filter(qid=first)
    for status, reason in (
        (EventQueue.Status.WAITING, Reason.WAITING),
        (EventQueue.Status.IN_SLICES, Reason.IN_SLICES),
        (EventQueue.Status.SET_ASIDE, Reason.SET_ASIDE),
        (EventQueue.Status.HANDLED, Reason.MISSING),
    ):
        events.update(status=status)
        assert reasons("bob", first) == [Reason.FRIEND, reason]
    events.delete()
    assert reasons("bob", first) == [Reason.FRIEND, Reason.MISSING]
    Friend.objects.filter(uid="ann", fri_uid="bob").update(delivery=Friend.Delivery.BOTH)
    assert reasons("bob", first) == [Reason.FRIEND, Reason.NEW]
    FeedUser.objects.filter(uid="ann").update(merging=FeedUser.Merging.MERGED)
    assert reasons("bob", first) == [Reason.FRIEND, Reason.MERGED]
    FeedUser.objects.filter(uid="bob").update(floor=first)
    assert reasons("bob", first) == [Reason.FRIEND, Reason.BELOW]


def test_a_written_post() -> None:
    change(("ann", "befriend", "bob"))
    visited("bob")
    first = post("ann")
    drain("friend")
    assert FeedBroadcast.objects.filter(fri_uid="bob", feed_id=first).exists()
    assert reasons("bob", first) == [Reason.FRIEND, Reason.WRITTEN]
