"""Fan-out: from events to an entry in the timeline of every friend."""

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.db.models import Sum
from django.utils import timezone

from bench.feed import people, posts, stream_feeds
from bench.harness.ground import ROOT, Ground
from bench.harness.measure import Side
from bench.harness.processes import BenchFailed, Crew, Program
from bench.harness.programs.progress import Progress
from bench.references import environment
from msgplatform.core.connections import work_redis
from msgplatform.core.data import ids
from msgplatform.models import MinuteCounter

NAME = "feed"
ORDER = 110
UNIT = "entries/s"
FRIENDS = 200
BATCH = 100  # events, as many as a receiver takes
ABOUT = (
    f"Posts of random users with {FRIENDS} friends each into their friends' timelines: one "
    "`run_feed_dispatcher` process, with locking, status, counters, and what is there already "
    f"kept. The references take the same {BATCH} events a transaction, with nothing but the work. "
    "The dispatcher does not give way to other load on the machine (`FEED_MIN_SHARE=1`)."
)
_POOL = 4 << 30  # holds all tables: the disk is only written to
_EVENTS_A_SECOND = 3_000  # waiting, for each second of `--seconds`
_USERS_A_SECOND = 10_000
_MAX_USERS = 100_000
_STREAM_FRAMEWORK = ROOT / "bench" / "references" / "stream_framework"


def dispatcher(ground: Ground) -> Program:
    """Our daemon. It measures the load but gives way to nobody, because what else runs on the
    machine is not part of the bench."""
    return ground.daemon("run_feed_dispatcher", FEED_MIN_SHARE="1")


class FanOut(Side):
    """Our daemon."""

    poll_seconds = 0.05  # each poll is a statement

    def prepare(self) -> None:
        self.users = _people(self.ground, self.seconds)
        events = int(self.seconds * _EVENTS_A_SECOND) + 10 * BATCH
        self.total = events * FRIENDS
        # Posted a minute ago: every id that the platform makes now is larger.
        self.first_id = ids.first_id_at(timezone.now() - timedelta(seconds=60))
        with self.connect().cursor() as cursor:
            posts.empty(cursor)
            posts.fill(cursor, self.first_id, events, self.users)

    def connect(self) -> Any:
        """A connection whose statements may take long."""
        return self.ground.server.connect("bench")

    def programs(self) -> Sequence[Program]:
        return [dispatcher(self.ground)]

    def count(self) -> int:
        counted = MinuteCounter.objects.filter(flow="feed", name="entries_friend")
        return int(counted.aggregate(total=Sum("value"))["total"] or 0)

    def check(self, crew: Crew) -> None:
        with self.connect().cursor() as cursor:
            written = posts.check_written(cursor, FRIENDS)
        # The counter is written with the entries, so even a daemon that was killed agrees.
        if written != self.count():
            raise BenchFailed(f"{self.name}: {written} entries, {self.count()} were counted")


class InsertSelect(FanOut):
    """A bare `INSERT … SELECT` of the posts of 100 events joined with their friends, an UPDATE of
    the events' status, COMMIT: nothing is locked before, looked up, kept or counted."""

    name = "insert-select"
    module = "bench.references.feed_insert_select"

    def prepare(self) -> None:
        super().prepare()
        self._progress = Progress(self.ground.file(f"{self.name}.progress"))

    def programs(self) -> Sequence[Program]:
        return [
            self.ground.module(
                "writer", self.module, *("--progress", self._progress.file),
                *("--batch", BATCH, "--first", self.first_id, "--step", posts.STEP),
                *("--count", self.total // FRIENDS),
            )
        ]  # fmt: skip

    def count(self) -> int:
        return self._progress.count


class PythonLoop(InsertSelect):
    """The friends of each event read into Python and written by `executemany`, 100 events and
    their status in one transaction."""

    name = "python-loop"
    module = "bench.references.feed_python_loop"


class StreamFramework(Side):
    """stream-framework (GPL) in a Python of its own: an entry is a member of the friend's sorted
    set in Redis, written by `add_many` of its RedisFeed with a batch's posts of each friend
    together, in one process and without Celery. Redis keeps nothing on disk, friends come from
    memory, no event is read or marked and none is looked up, so it does less than ours. Its
    storage sends each feed's entries by themselves, whatever batch interface it is given."""

    name = "stream-framework"
    _python = Path()

    @classmethod
    def install(cls, ground: Ground) -> None:
        cls._python = cls.own_python()

    @classmethod
    def own_python(cls) -> Path:
        """Raises SideMissing."""
        files = ("requirements.txt", "source.txt")
        texts = [(_STREAM_FRAMEWORK / file).read_text() for file in files]
        return environment.python(cls.name, *texts)

    def prepare(self) -> None:
        self.users = _people(self.ground, self.seconds)
        work_redis().flushall()
        self._progress = Progress(self.ground.file(f"{self.name}.progress"))

    def programs(self) -> Sequence[Program]:
        argv = [
            *(str(self._python), "-m", "bench.references.stream_framework.fan_out"),
            *("--progress", str(self._progress.file), "--redis", str(self.ground.redis.socket)),
            *("--batch", str(BATCH), "--users", str(self.users), "--friends", str(FRIENDS)),
        ]
        return [Program("writer", argv, self.ground.environment)]

    def count(self) -> int:
        return self._progress.count

    def idle_seconds(self) -> float:
        return self._progress.idle_seconds

    def check(self, crew: Crew) -> None:
        posts_written, rest = divmod(self.count(), FRIENDS)
        if rest:
            raise BenchFailed(f"{self.name}: {rest} entries of a post that is not complete")
        stream_feeds.check_written(posts_written, self.users, FRIENDS)


@lru_cache(maxsize=1)
def _people(ground: Ground, seconds: float) -> int:
    """Make users and relations once for all runs; how many users there are."""
    ground.set_pool(_POOL)
    users = max(2 * FRIENDS, min(_MAX_USERS, int(seconds * _USERS_A_SECOND)))
    with ground.server.connect("bench").cursor() as cursor:
        people.fill(cursor, users, FRIENDS)
    return users


def sides() -> list[type[Side]]:
    return [FanOut, InsertSelect, PythonLoop, StreamFramework]
