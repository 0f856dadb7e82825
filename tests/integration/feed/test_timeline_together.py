"""Writers, readers, dispatchers and the cleaner at the same time: timelines are right meanwhile and
afterwards."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connection, connections

from notify.feed import timeline
from notify.feed.dispatcher.pace import Pace
from notify.feed.dispatcher.receiver import Receiver
from notify.feed.dispatcher.upkeep import Upkeep
from notify.feed.models import EventQueue, FeedBroadcast, FeedUser, Friend
from notify.feed.models.users import NOTHING_WRITTEN
from tests.integration.feed.naive import World
from tests.integration.feed.support import BIZ, change, drain, post, visited, written
from tests.integration.feed.timeline_world import (
    ACTIONS,
    OFTEN,
    PEOPLE,
    Generator,
    check_drained,
    check_open,
    small,
)

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("small"),
]

__all__ = ["small"]
SECONDS = 8.0  # at least
MAX_SECONDS = 180.0
TURNS = 5
WRITERS = 2


class Together:
    """Threads that work until the time is up and each has had its turns; the first error ends all
    of them."""

    def __init__(self, seconds: float) -> None:
        self.begun, self.seconds = time.monotonic(), seconds
        self.errors: list[BaseException] = []
        self.turns: dict[str, int] = {}
        self.threads: list[threading.Thread] = []

    def is_over(self) -> bool:
        passed = time.monotonic() - self.begun
        enough = min(self.turns.values()) >= TURNS
        return bool(self.errors) or passed > (self.seconds if enough else MAX_SECONDS)

    def start(self, name: str, turn: Callable[[], object]) -> None:
        self.turns[name] = 0

        def run() -> None:
            try:
                while not self.is_over():
                    turn()
                    self.turns[name] += 1
            except BaseException as error:
                self.errors.append(error)
            finally:
                connections.close_all()

        self.threads.append(threading.Thread(target=run, name=name))
        self.threads[-1].start()

    def join(self) -> None:
        for thread in self.threads:
            thread.join(MAX_SECONDS + 120)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]


class Writer(Generator):
    """Writes relations of its own pairs of users, and posts of its own, in a world that all share.

    `lock` is held while it writes, so that a reader who has all locks sees a world at rest."""

    def __init__(self, number: int, world: World) -> None:
        super().__init__(number)
        self.number, self.world = number, world
        self.authors = PEOPLE[number::WRITERS]
        self.lock = threading.Lock()
        self.steps = {self.relate: 10, self.post: 8, self.edit: 1, self.delete: 2}

    def turn(self) -> None:
        with self.lock:
            self.step()
        time.sleep(0.005)  # for the one who waits for the lock

    def relate(self) -> None:
        (action,) = self.random.choices(ACTIONS, OFTEN)
        one, other = self.random.sample(PEOPLE, 2)
        if self.random.random() < 0.5:
            other = PEOPLE[one == PEOPLE[0]]
        if (PEOPLE.index(one) + PEOPLE.index(other)) % WRITERS == self.number:
            change((one, action, other))
            self.world.change(one, action, other)


class Dispatcher:
    def __init__(self) -> None:
        self.workers: list[Upkeep | Receiver] = [Upkeep(), Receiver("friend"), Receiver("vip")]

    def turn(self) -> None:
        for worker in self.workers:
            worker.turn(Pace(events=3))


def test_all_at_once() -> None:
    world = World()
    writers = [Writer(number, world) for number in range(WRITERS)]
    cleaner, reader = Generator(7), Generator(8)

    def read() -> None:
        uid = reader.random.choice(PEOPLE)
        with ExitStack() as locks:
            for writer in writers:
                locks.enter_context(writer.lock)
            check_open(world, uid, visit=True)
        page = timeline.read(BIZ, uid, limit=50)
        ids = [post.id for post in page.posts]
        assert ids == sorted(set(ids), reverse=True)

    def clean() -> None:
        cleaner.random.choice([cleaner.deactivate, cleaner.clean])()
        time.sleep(0.05)

    together = Together(SECONDS)
    for writer in writers:
        together.start(f"writer {writer.number}", writer.turn)
    for number in range(2):
        together.start(f"dispatcher {number}", Dispatcher().turn)
    together.start("reader", read)
    together.start("cleaner", clean)
    together.join()
    print(together.turns, len(world.posts), "posts", deadlocks(), "deadlocks")
    assert all(turns >= TURNS for turns in together.turns.values())
    for uid in PEOPLE:
        check_open(world, uid, visit=False)
    drain()
    assert not EventQueue.objects.exclude(status=EventQueue.Status.HANDLED).exists()
    for uid in PEOPLE:
        check_drained(world, uid, [3, 100])


class Between:
    """Does some work just before the `number`-th statement of whatever runs."""

    def __init__(self, number: int, work: Callable[[], object]) -> None:
        self.number, self.work = number, work
        self.seen = 0

    def __call__(self, execute: Callable[..., Any], *statement: Any) -> Any:
        self.seen += 1
        if self.seen == self.number:
            self.work()
        return execute(*statement)


def trim() -> None:
    """What the cleaner does with a timeline that is too long."""
    floor = written("bob")[2]
    FeedUser.objects.filter(uid="bob").update(floor=floor)
    FeedBroadcast.objects.filter(fri_uid="bob", feed_id__lte=floor).delete()


def leave() -> None:
    """What the cleaner does with a reader who stays away."""
    FeedUser.objects.filter(uid="bob").update(active=False, floor=NOTHING_WRITTEN)
    Friend.objects.filter(fri_uid="bob").update(delivery=Friend.Delivery.MERGED)
    FeedBroadcast.objects.filter(fri_uid="bob").delete()


def nothing_is_written() -> None:
    """Bob is new: a rebuild waits."""
    leave()
    timeline.read(BIZ, "bob")


def ann_is_new() -> None:
    change(("ann", "unfriend", "bob"))
    drain("upkeep")
    change(("ann", "befriend", "bob"))


def ann_is_becoming_merged() -> None:
    change(*((f"fan{n}", "follow", "ann") for n in range(5)))


BESIDE = {
    "backfill": (ann_is_new, drain),
    "rebuild": (nothing_is_written, drain),
    "merge": (ann_is_becoming_merged, drain),
    "trim": (lambda: None, trim),
    "leave": (lambda: None, leave),
}


@pytest.mark.parametrize("number", range(1, 8))
@pytest.mark.parametrize("what", BESIDE)
def test_a_page_is_right_whatever_happens_between_its_statements(what: str, number: int) -> None:
    before, beside = BESIDE[what]
    change(("ann", "befriend", "bob"), ("bob", "follow", "cid"))
    visited("bob")
    made = [post(("ann", "cid")[n % 2], "vip") for n in range(6)]
    drain()
    before()
    with connection.execute_wrapper(Between(number, beside)):
        page = timeline.read(BIZ, "bob", visit=False)
    assert [post.id for post in page.posts] == made[::-1]


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("what", BESIDE)
def test_a_count_is_right_whatever_happens_between_its_statements(what: str, number: int) -> None:
    before, beside = BESIDE[what]
    change(("ann", "befriend", "bob"), ("bob", "follow", "cid"))
    visited("bob")
    for n in range(6):
        post(("ann", "cid")[n % 2], "vip")
    drain()
    before()
    with connection.execute_wrapper(Between(number, beside)):
        assert timeline.count_unread(BIZ, "bob").count == 6


def deadlocks() -> int:
    if connection.vendor != "mysql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")
        row = cursor.fetchone()
    return int(row[1]) if row else -1
