"""A backlog of ten million events is worked off as fast as one of ten thousand."""

import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.db.models import Sum
from django.utils import timezone

from bench.feed import people, posts
from bench.feed.fan_out import FRIENDS, dispatcher
from bench.harness import plans
from bench.harness.ground import Ground
from bench.harness.measure import Side
from bench.harness.processes import BenchFailed, Crew, Program
from msgplatform.core.data import ids
from msgplatform.models import MinuteCounter

NAME = "feed-backlog"
ORDER = 140
UNIT = "events/s"
SMALL = 10_000
ABOUT = (
    "One `run_feed_dispatcher` (`FEED_MIN_SHARE=1`) works off waiting posts to "
    f"{FRIENDS} friends each: a stretch of a backlog of 10,000,000 events, and a backlog of "
    f"{SMALL:,} in another database of the same server, in turns. The first stretch of the large "
    "one is at its beginning; before each other one a tenth of it is marked as handled by SQL, and "
    "what that leaves in the index is purged. "
    "Timelines are empty at the beginning of each stretch."
)
_POOL = 4 << 30  # holds the part of the tables that a stretch needs
_USERS = 20_000
# How long to wait for the server's purge, and with how many transactions in its history it is done.
_PURGED_SECONDS, _PURGED = 900.0, 1000


class Large(Side):
    """A backlog of 10,000,000."""

    poll_seconds = 0.05
    database = "large"
    skips = True

    def prepare(self) -> None:
        rows = _volumes(self.ground)[self.database]
        self.ground.use(self.database)
        with self.connect().cursor() as cursor:
            cursor.execute("TRUNCATE TABLE feed_broadcast")
            cursor.execute("DELETE FROM msgplatform_minutecounter WHERE flow = 'feed'")
            self.begin(cursor, rows)
            cursor.execute("SELECT MIN(qid) FROM eventqueue WHERE topic = 'friend' AND status = 0")
            self._first = cursor.fetchone()[0]

    def begin(self, cursor: Any, rows: int) -> None:
        """Go to another place of the backlog than the last stretch."""
        number = int(self.stretch.rpartition("-")[2])
        if self.skips and number:
            # The next tenth becomes handled, without entries; in a few statements, so that none
            # holds a large transaction open.
            cursor.execute("SELECT MIN(qid) FROM eventqueue WHERE topic = 'friend' AND status = 0")
            first, count = cursor.fetchone()[0], rows // 10
            step = max(1, count // 20)
            for done in range(0, count, step):
                start = first + done * posts.STEP
                cursor.execute(
                    "UPDATE eventqueue FORCE INDEX (PRIMARY) SET status = 1, "
                    "handle_date = UTC_TIMESTAMP(6) WHERE status = 0 "
                    f"AND qid >= {start} AND qid < {start + step * posts.STEP}"
                )
        _await_purge(cursor)

    def connect(self) -> Any:
        """A connection whose statements may take long."""
        return self.ground.server.connect(self.database)

    def programs(self) -> Sequence[Program]:
        return [dispatcher(self.ground)]

    def count(self) -> int:
        counted = MinuteCounter.objects.filter(flow="feed", name="handled_friend")
        return int(counted.aggregate(total=Sum("value"))["total"] or 0)

    def check(self, crew: Crew) -> None:
        with self.connect().cursor() as cursor:
            written = posts.check_written(cursor, FRIENDS, self._first)
        if written != self.count() * FRIENDS:
            raise BenchFailed(f"{self.name}: {written} entries of {self.count()} counted events")


class Small(Large):
    """A backlog of 10,000 events, made anew for each run."""

    name = "backlog-10k"
    database = "small"

    def begin(self, cursor: Any, rows: int) -> None:
        self.total = rows
        posts.empty(cursor)
        _fill_posts(cursor, rows, _users(self.ground))
        _await_purge(cursor)


class BesideReport(Large):
    """The large backlog while somebody reads in a transaction that is older than all that is
    handled, as a report or a backup does: the server can purge nothing."""

    name = "beside-a-report"
    skips = False

    def begin(self, cursor: Any, rows: int) -> None:
        super().begin(cursor, rows)
        self._report = self.connect()
        with self._report.cursor() as report:
            report.execute("SET SESSION tx_isolation = 'REPEATABLE-READ'")
            report.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            report.execute("SELECT 1 FROM feed LIMIT 1")

    def finish(self, crew: Crew) -> None:
        self._report.close()


def sides() -> list[type[Side]]:
    return [Large, Small, BesideReport]


def facts(ground: Ground) -> dict[str, Any]:
    """After all runs: the sizes, and the query plans into their file."""
    rows = _volumes(ground)
    recorded = {name: _record(ground, name) for name in rows}
    plans.write(ground.plans, _PLANS, recorded["small"], recorded["large"], *rows.values())
    return {"rows": {"ours": rows["large"], "backlog-10k": rows["small"]}}


_PLANS = """\
# Query plans of the dispatcher

Written by `manage.py bench feed-backlog`. A
batch of 100 posts to 200 friends each, and what is asked beside, with {small:,} and with {large:,}
events; every statement was explained just before, and the rows that it read were counted by the
server (the sum of `Handler_read_*`). The cost is flat where both numbers are alike, whatever the
plan's `rows` (an estimate) says.
"""


def _record(ground: Ground, name: str) -> plans.Recorder:
    from notify.feed.dispatcher.pace import Pace
    from notify.feed.dispatcher.receiver import Receiver
    from notify.feed.monitor import backlog

    ground.use(name)
    with ground.server.connect(name).cursor() as cursor:
        if name == "small":
            posts.empty(cursor)
            _fill_posts(cursor, _volumes(ground)[name], _users(ground))
        _await_purge(cursor)
    seen, receiver = plans.Recorder(), Receiver("friend")
    seen.step("A batch of posts, the first one", lambda: receiver.turn(Pace()))
    seen.step("A batch of posts, a later one", lambda: receiver.turn(Pace()))
    seen.step("A turn of a topic in which nothing waits", lambda: Receiver("vip").turn(Pace()))
    seen.step("The age of the oldest events", lambda: backlog.oldest(timezone.now()))
    return seen


@lru_cache(maxsize=1)
def _volumes(ground: Ground) -> dict[str, int]:
    """Fill both databases, once for all runs; the events of each by its name."""
    ground.set_pool(_POOL)
    made = {"small": min(SMALL, ground.rows[0]), "large": ground.rows[1]}
    for name, rows in made.items():
        begun = time.monotonic()
        with ground.make(name).connect(name).cursor() as cursor:
            people.fill(cursor, _users(ground), FRIENDS)
            _fill_posts(cursor, rows, _users(ground))
        print(f"{NAME} filled  {rows:,} events, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return made


def _users(ground: Ground) -> int:
    """The same number for both databases, because their timelines must be alike."""
    return max(2 * FRIENDS, min(_USERS, ground.rows[1] // 10))


def _fill_posts(cursor: Any, rows: int, users: int) -> None:
    first = ids.first_id_at(timezone.now() - timedelta(hours=1))
    posts.fill(cursor, first, rows, users)


def _await_purge(cursor: Any) -> None:
    """Wait until the server has removed what was changed and deleted from its indexes."""
    deadline = time.monotonic() + _PURGED_SECONDS
    while True:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'")
        if int(cursor.fetchone()[1]) < _PURGED:
            return
        if time.monotonic() > deadline:
            raise BenchFailed("the server does not purge what was changed")
        time.sleep(0.2)
