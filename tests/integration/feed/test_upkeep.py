"""Timelines follow what became of relations and posts."""

from typing import Any

import pytest

from msgplatform.core.alerts import AlertEvent
from notify.feed import timeline
from notify.feed.dispatcher import upkeep as upkeep_module
from notify.feed.dispatcher.pace import Pace
from notify.feed.dispatcher.upkeep import Upkeep
from notify.feed.intake import posts
from notify.feed.models import EventQueue, FeedBroadcast, FeedUser, Friend
from notify.feed.models.users import NOTHING_WRITTEN
from tests.integration.feed.support import (
    BIZ,
    change,
    delivery,
    drain,
    entries,
    post,
    user,
    visited,
    written,
)

pytestmark = pytest.mark.django_db(transaction=True)

_BOTH, _PUSHED = Friend.Delivery.BOTH, Friend.Delivery.PUSHED
_STATUS = EventQueue.Status


def upkeep() -> list[int]:
    """Statuses of events of upkeep, in their order."""
    rows = EventQueue.objects.filter(topic="upkeep").order_by("qid")
    return list(rows.values_list("status", flat=True))


class TestBackfill:
    def test_a_new_friend_s_posts_are_written(self) -> None:
        change(("eve", "befriend", "bob"))
        visited("bob")
        old, vip = post("ann"), post("ann", "vip")
        drain("friend", "vip")
        change(("ann", "befriend", "bob"))
        late = post("ann")  # its event finds the relation
        assert written("bob") == []
        drain("upkeep")
        assert written("bob") == [late, vip, old]
        assert delivery("ann", "bob") == {"friend": _PUSHED}
        assert user("bob").floor == 0

    def test_a_follower_gets_what_is_for_followers(self) -> None:
        change(("eve", "befriend", "bob"))
        visited("bob")
        post("ann")
        vip = post("ann", "vip")
        change(("bob", "follow", "ann"))
        drain("upkeep")
        assert written("bob") == [vip]

    def test_a_timeline_is_written_again_up_to_its_length(self, settings: Any) -> None:
        settings.FEED_REBUILD_LENGTH = 3
        change(("ann", "befriend", "bob"), ("bob", "follow", "cid"))
        made = [post("ann"), post("cid", "vip"), post("bob"), post("ann"), post("cid", "vip")]
        timeline.read(BIZ, "bob")
        assert user("bob").floor == NOTHING_WRITTEN
        drain("upkeep")
        assert user("bob").floor == made[1]
        assert written("bob") == made[:1:-1]
        assert delivery("ann", "bob") == {"friend": _PUSHED}
        assert delivery("cid", "bob") == {"follow": _PUSHED}

    def test_a_short_timeline_is_written_whole(self) -> None:
        change(("ann", "befriend", "bob"))
        first = post("ann")
        timeline.read(BIZ, "bob")
        drain("upkeep")
        assert user("bob").floor == 0
        assert written("bob") == [first]

    def test_what_is_too_much_raises_the_floor(self, settings: Any) -> None:
        settings.FEED_TIMELINE_LENGTH = 2
        change(("eve", "befriend", "bob"))
        visited("bob")
        made = [post("ann") for _ in range(4)]
        change(("ann", "befriend", "bob"))
        drain("upkeep")
        assert user("bob").floor == made[1]
        assert written("bob") == made[:1:-1]
        page = timeline.read(BIZ, "bob")
        assert [post.id for post in page.posts] == made[::-1]

    def test_entries_that_the_cleaner_deletes_are_not_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change(("ann", "befriend", "bob"))
        made = [post("ann") for _ in range(3)]
        timeline.read(BIZ, "bob")
        drain("upkeep")
        assert user("bob").floor == 0  # there is nothing older
        monkeypatch.setattr(upkeep_module, "min_written_id", lambda: made[1])
        FeedUser.objects.update(active=False, floor=NOTHING_WRITTEN)
        FeedBroadcast.objects.all().delete()
        timeline.read(BIZ, "bob")
        drain("upkeep")
        assert (user("bob").floor, written("bob")) == (made[1], [made[2]])

    def test_authors_who_are_merged_stay_merged(self) -> None:
        change(("ann", "befriend", "bob"), ("bob", "follow", "cid"), ("bob", "follow", "dan"))
        FeedUser.objects.filter(uid="cid").update(merging=FeedUser.Merging.MERGED)
        FeedUser.objects.filter(uid="dan").update(merging=FeedUser.Merging.BECOMING)
        posts_of_all = [post(uid, "vip") for uid in ("ann", "cid", "dan")]
        timeline.read(BIZ, "bob")
        drain("upkeep")
        assert written("bob") == posts_of_all[:1]
        assert delivery("cid", "bob") == delivery("dan", "bob") == {"follow": _BOTH}

    def test_many_authors_are_several_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(upkeep_module, "AUTHORS", 2)
        change(*((f"ann{n}", "befriend", "bob") for n in range(5)))
        made = [post(f"ann{n}") for n in range(5)]
        timeline.read(BIZ, "bob")
        Upkeep().turn(Pace())
        assert Friend.objects.filter(fri_uid="bob", delivery=_BOTH).count() in (1, 3)
        drain("upkeep")
        assert written("bob") == made[::-1]
        assert upkeep() == [_STATUS.HANDLED]

    def test_several_of_one_reader_are_one_step(self) -> None:
        change(("eve", "befriend", "bob"))
        visited("bob")
        for n in range(3):
            post(f"ann{n}")
            change((f"ann{n}", "befriend", "bob"))
        assert Upkeep().turn(Pace()) == 3
        assert len(written("bob")) == 3
        assert upkeep() == [_STATUS.HANDLED] * 3

    def test_a_reader_who_went_is_left_alone(self) -> None:
        change(("ann", "befriend", "bob"))
        post("ann")
        timeline.read(BIZ, "bob")
        FeedUser.objects.filter(uid="bob").update(active=False)
        drain("upkeep")
        assert written("bob") == []
        assert upkeep() == [_STATUS.HANDLED]


class TestUnfollow:
    @pytest.fixture
    def made(self) -> list[int]:
        """Three posts in bob's timeline: ann's for friends, ann's for followers, cid's."""
        change(("ann", "befriend", "bob"), ("bob", "follow", "ann"), ("cid", "befriend", "bob"))
        visited("bob")
        made = [post("ann"), post("ann", "vip"), post("cid")]
        drain("friend", "vip")
        return made

    def test_what_is_left_of_the_relation_is_left(self, made: list[int]) -> None:
        change(("bob", "unfollow", "ann"))
        drain("upkeep")
        assert written("bob") == made[::-1]
        change(("bob", "follow", "ann"), ("bob", "unfriend", "ann"))
        drain("upkeep")
        assert written("bob") == [made[2], made[1]]
        change(("bob", "unfollow", "ann"))
        drain("upkeep")
        assert written("bob") == [made[2]]
        assert entries(made[0]) == {"ann"}

    def test_friends_again_before_it_is_handled(self, made: list[int]) -> None:
        change(("ann", "block", "bob"))
        change(("ann", "unblock", "bob"), ("ann", "befriend", "bob"))
        drain("upkeep")
        assert written("bob") == made[::-1]

    def test_a_long_timeline_is_several_steps(
        self, made: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(upkeep_module, "MAX_ENTRIES", 1)
        change(("ann", "block", "bob"))
        Upkeep().turn(Pace())
        assert upkeep() == [_STATUS.IN_SLICES]
        drain("upkeep")
        assert written("bob") == [made[2]]
        assert set(upkeep()) == {_STATUS.HANDLED}


class TestDelete:
    @pytest.mark.parametrize("size", [2, 5000])
    def test_entries_of_a_deleted_post_go(self, size: int, settings: Any) -> None:
        settings.FEED_FANOUT_BATCH = size
        fans = [f"fan{n}" for n in range(5)]
        change(*((fan, "follow", "ann") for fan in fans), ("ann", "befriend", "bob"))
        visited(*fans, "bob")
        gone, left = post("ann", "vip"), post("ann", "vip")
        drain("vip")
        EventQueue.objects.filter(topic="upkeep").delete()
        posts.delete(BIZ, gone)
        drain("upkeep")
        assert entries(gone) == set()
        assert entries(left) == {"ann", "bob", *fans}
        assert upkeep() == [_STATUS.HANDLED]


class TestMerge:
    @pytest.fixture
    def star(self, settings: Any) -> str:
        """An author with one recipient too many."""
        (
            settings.FEED_READ_FANOUT_ABOVE,
            settings.FEED_WRITE_FANOUT_BELOW,
            settings.FEED_FANOUT_BATCH,
        ) = 4, 3, 2
        fans = [f"fan{n}" for n in range(5)]
        change(*((fan, "follow", "star") for fan in fans))
        visited(*fans)
        return "star"

    def test_readers_merge_first_then_posts_are_not_written(self, star: str) -> None:
        Upkeep().turn(Pace())
        assert user(star).merging == FeedUser.Merging.BECOMING
        early = post(star, "vip")
        drain("vip")
        assert len(entries(early)) == 6
        drain("upkeep")
        assert user(star).merging == FeedUser.Merging.MERGED
        assert set(Friend.objects.filter(uid=star).values_list("delivery", flat=True)) == {_BOTH}
        late = post(star, "vip")
        drain("vip")
        assert entries(late) == {star}
        assert [p.id for p in timeline.read(BIZ, "fan1").posts] == [late, early]

    def test_a_deleted_post_that_was_not_written_is_not_looked_for_in_all_timelines(
        self, star: str
    ) -> None:
        early = post(star, "vip")
        drain("vip")
        drain("upkeep")
        late = post(star, "vip")
        drain("vip")
        assert (len(entries(early)), entries(late)) == (6, {star})
        posts.delete(BIZ, late)
        # The friends, of whom there are none, and the first two of five followers.
        assert [Upkeep().turn(Pace()) for _ in range(2)] == [2, 0]
        assert entries(late) == set()
        posts.delete(BIZ, early)
        drain("upkeep")
        assert entries(early) == set()
        assert set(upkeep()) == {_STATUS.HANDLED}

    def test_an_author_who_shrinks_meanwhile_is_pushed_at_the_end(self, star: str) -> None:
        Upkeep().turn(Pace())
        change(*((f"fan{n}", "unfollow", star) for n in (0, 1, 2)))
        assert user(star).merging == FeedUser.Merging.BECOMING
        change(*((f"fan{n}", "follow", star) for n in (0, 1, 2)))
        kind = EventQueue.Kind.MERGE
        assert EventQueue.objects.filter(kind=kind).count() == 1  # never two of one author
        change(*((f"fan{n}", "unfollow", star) for n in (0, 1, 2)))
        drain("upkeep")
        assert user(star).merging == FeedUser.Merging.PUSHED

    def test_one_who_shrinks_and_grows_while_the_event_is_set_aside(
        self, star: str, settings: Any
    ) -> None:
        settings.FEED_FANOUT_BATCH = 5
        Upkeep().turn(Pace())  # all fans merge, but the end is not reached
        event = EventQueue.objects.filter(kind=EventQueue.Kind.MERGE)
        event.update(status=_STATUS.SET_ASIDE)
        change(*((f"fan{n}", "unfollow", star) for n in (2, 3, 4)))
        change(("fan0", "follow", "somebody"))
        drain("upkeep")  # the backfill of fan0 must leave the star to the event
        change(*((f"fan{n}", "follow", star) for n in (2, 3, 4, 5)))
        event.update(status=_STATUS.WAITING)
        drain("upkeep")
        late = post(star, "vip")
        drain()
        assert user(star).merging == FeedUser.Merging.MERGED
        assert [p.id for p in timeline.read(BIZ, "fan0").posts] == [late]


def test_an_event_that_fails_is_set_aside_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[AlertEvent] = []
    monkeypatch.setattr("msgplatform.core.daemons.bisect.alerts.raise_event", raised.append)
    change(("ann", "befriend", "bob"), ("bob", "unfriend", "ann"))
    visited("bob")
    first = post("ann")
    change(("ann", "befriend", "bob"))
    change(("ann", "unfriend", "bob"))
    EventQueue.objects.filter(kind=EventQueue.Kind.UNFOLLOW).update(data="{}")
    posts.delete(BIZ, first)
    drain("upkeep")
    assert upkeep() == [_STATUS.HANDLED, _STATUS.SET_ASIDE, _STATUS.HANDLED]
    assert entries(first) == set()
    assert [alert.kind for alert in raised] == ["feed.set_aside"]
