"""Random users, relations and posts, and timelines held against a naive world."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from msgplatform.core.data import sql
from notify.feed import merge, timeline
from notify.feed.cleaner import cleaner
from notify.feed.cleaner.timelines import Timelines
from notify.feed.dispatcher import upkeep
from notify.feed.dispatcher.pace import Pace
from notify.feed.dispatcher.receiver import Receiver
from notify.feed.dispatcher.upkeep import Upkeep
from notify.feed.intake import posts
from notify.feed.models import EventQueue, FeedUser
from tests.integration.feed.naive import Made, World
from tests.integration.feed.support import BIZ, change, post

PEOPLE = [f"user{n}" for n in range(8)]


ACTIONS = ["befriend", "follow", "unfriend", "unfollow", "block", "unblock"]


OFTEN = [6, 8, 2, 3, 1, 3]


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Bounds that a few users and posts reach."""
    settings.FEED_READ_FANOUT_ABOVE, settings.FEED_WRITE_FANOUT_BELOW = 5, 4
    settings.FEED_FANOUT_BATCH = 3
    settings.FEED_TIMELINE_LENGTH, settings.FEED_REBUILD_LENGTH = 5, 4
    for module, name, value in (
        (upkeep, "MAX_ENTRIES", 3), (upkeep, "AUTHORS", 2), (merge, "_MAX_BRANCHES", 3),
        (merge, "_MAX_ROWS", 20),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


class Generator:
    """Does random work, and notes it in a world of plain lists."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World()
        self.authors = PEOPLE
        self.steps: dict[Callable[[], None], int] = {
            self.relate: 20, self.post: 30, self.edit: 3, self.delete: 4, self.look: 20,
            self.mark_read: 4, self.dispatch: 25, self.deactivate: 3, self.clean: 3,
        }  # fmt: skip

    def step(self) -> None:
        (step,) = self.random.choices(list(self.steps), list(self.steps.values()))
        step()

    def relate(self) -> None:
        (action,) = self.random.choices(ACTIONS, OFTEN)
        one, other = self.random.sample(PEOPLE, 2)
        # The first ones have many recipients and cross the thresholds.
        if self.random.random() < 0.5:
            other = PEOPLE[one == PEOPLE[0]]
        change((one, action, other))
        self.world.change(one, action, other)

    def post(self) -> None:
        uid = self.random.choice(self.authors)
        topic, app_id = self.random.choice(["friend", "vip"]), self.random.choice(["", "a", "b"])
        data = f"text {len(self.world.posts)}"
        id = post(uid, topic, data, app_id=app_id)
        self.world.posts.append(Made(id, uid, topic, app_id, data))

    def edit(self) -> None:
        for made in self.some_post():
            assert posts.edit(BIZ, made.id, made.data + "!") is not made.deleted
            made.data += "" if made.deleted else "!"

    def delete(self) -> None:
        for made in self.some_post():
            posts.delete(BIZ, made.id)
            made.deleted = True

    def some_post(self) -> list[Made]:
        theirs = [made for made in self.world.posts if made.uid in self.authors]
        return self.random.choices(theirs, k=1) if theirs else []

    def look(self) -> None:
        check_open(self.world, self.random.choice(PEOPLE), visit=True)

    def mark_read(self) -> None:
        uid = self.random.choice(PEOPLE)
        for made in self.some_post():
            timeline.mark_read(BIZ, uid, made.id)
            self.world.mark_read(uid, made.id)

    def dispatch(self) -> None:
        topic = self.random.choice(["friend", "vip", "upkeep", "upkeep"])
        worker = Upkeep() if topic == "upkeep" else Receiver(topic)
        worker.turn(Pace(events=self.random.randint(1, 4)))

    def deactivate(self) -> None:
        rows = FeedUser.objects.filter(biz_id=BIZ, uid=self.random.choice(PEOPLE), active=True)
        rows.update(visit_date=LONG_AGO)
        cleaner.deactivate_readers(sql.now())

    def clean(self) -> None:
        timelines = Timelines(sql.now())
        while timelines.clean():
            pass


def whole(uid: str, limit: int, app_id: str = "", visit: bool = False) -> list[timeline.Post]:
    """All pages; those of some sizes are short, because they may look at few posts only."""
    found: list[timeline.Post] = []
    before = None
    with pytest.MonkeyPatch.context() as patch:
        if is_short := limit % 2 == 0:
            patch.setattr(timeline, "MAX_MERGED", 4 * limit)
        while True:
            page = timeline.read(BIZ, uid, before, limit, app_id, visit=visit)
            assert is_short or len(page.posts) == limit or page.next is None
            found += page.posts
            if page.next is None:
                return found
            assert before is None or page.next < before
            before = page.next


def plain(seen: list[timeline.Post]) -> list[tuple[int, str, str, str, str]]:
    return [(p.id, p.uid, p.topic, p.app_id, p.data) for p in seen]


def expected(world: World, uid: str, app_id: str = "") -> list[tuple[int, str, str, str, str]]:
    return [(p.id, p.uid, p.topic, p.app_id, p.data) for p in world.timeline(uid, app_id)]


def check_open(world: World, uid: str, *, visit: bool) -> None:
    """While events wait: only posts whose own event waits may be missing, and none of one's own."""
    waiting = set(
        EventQueue.objects.exclude(status=EventQueue.Status.HANDLED).values_list("qid", flat=True)
    )
    seen, all_of_it = plain(whole(uid, 3, visit=visit)), expected(world, uid)
    missing = [post for post in all_of_it if post not in seen]
    assert [post for post in all_of_it if post in seen] == seen
    assert uid not in {author for _id, author, *_ in missing}
    assert {id for id, *_ in missing} <= waiting
    count = timeline.count_unread(BIZ, uid).count
    assert world.unread(uid) - len(waiting) <= count <= world.unread(uid)


def check_drained(world: World, uid: str, sizes: list[int]) -> None:
    for size in sizes:
        assert plain(whole(uid, size)) == expected(world, uid), f"pages of {size} for {uid}"
    for app_id in ("a", "b"):
        for size in (2, 3):
            assert plain(whole(uid, size, app_id)) == expected(world, uid, app_id)
    assert timeline.count_unread(BIZ, uid) == timeline.Unread(world.unread(uid), False)
