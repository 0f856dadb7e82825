"""Pages and unread counts of timelines beside ten million entries, and beside a hundredth."""

import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.utils import timezone

from bench.feed import people, posts
from bench.harness import plans
from bench.harness.ground import Ground
from bench.harness.measure import Side
from bench.harness.processes import Crew, Program
from bench.harness.programs.progress import Progress
from msgplatform.core.data import ids

NAME = "feed-at-scale"
ORDER = 130
UNIT = "reads/s"
FRIENDS = 200
UNREAD = 50
ABOUT = (
    "One process reads the first page (20 posts) of timelines of random readers, or how many posts "
    f"they have not read ({UNREAD}), beside 10,000,000 entries and as many relations; the "
    "reference is the same beside 100,000 of each, in another database of the same server, in "
    "turns. A hundred readers come again and again; `any-reader` takes each time another one of "
    "all. MariaDB's buffer pool has 128 MiB, which holds all of the smaller database and a tenth "
    "or less of the larger one. The column *load generator* has the code under test, which runs in "
    "the process that reads."
)
REASONS = {
    "any-reader": ("What a reader who comes for the first time needs is read from the disk."),
}
_READERS = 100  # so few that their pages stay in the buffer pool
_POOL_FILLING, _POOL_MEASURING = 2 << 30, 128 << 20
_SMALLER = 100  # the larger database has so many times as many entries


class Page(Side):
    """The first page beside 10,000,000 entries."""

    poll_seconds = 0.02
    database, what, expected = "large", "page", 20
    readers = _READERS

    def prepare(self) -> None:
        self._users = _volumes(self.ground)[self.database]
        self.ground.use(self.database)
        self._progress = Progress(self.ground.file(f"{self.stretch}.progress"))

    def programs(self) -> Sequence[Program]:
        return [
            self.ground.module(
                "load", "bench.feed.reader", *("--progress", self._progress.file),
                *("--biz", people.biz(), "--users", self._users, "--what", self.what),
                *("--readers", min(self.readers, self._users), "--expected", self.expected),
                load=True,
            )
        ]  # fmt: skip

    def count(self) -> int:
        return self._progress.count

    def check(self, crew: Crew) -> None:
        """Nothing is left to check: the reader ends when an answer has another length."""


class SmallPage(Page):
    """The first page beside 100,000 entries."""

    name = "at-100k-entries"
    database = "small"


class Unread(Page):
    """The unread count beside 10,000,000 entries."""

    name = "unread"
    what, expected = "unread", UNREAD


class SmallUnread(Unread):
    """The unread count beside 100,000 entries."""

    name = "unread-at-100k-entries"
    database = "small"


class AnyReader(Page):
    """The first page, each time of any of all readers: what it needs is seldom in the buffer pool
    and is read from the disk."""

    name = "any-reader"
    readers = 1 << 40  # no bound: all users


# Only `at-100k-entries` does what `ours` does; unread counts are to be read beside each other.
OTHER_WORK = (Unread.name, SmallUnread.name, AnyReader.name)


def sides() -> list[type[Side]]:
    return [Page, SmallPage, Unread, SmallUnread, AnyReader]


def facts(ground: Ground) -> dict[str, Any]:
    """After all runs: the sizes, and the query plans into their file."""
    small, large = _rows(ground)
    recorded = {name: _record(ground, name) for name in ("small", "large")}
    plans.write(ground.plans, _PLANS, recorded["small"], recorded["large"], small, large)
    return {
        "rows": {"at-100k-entries": small, "ours": large},
        "buffer_pool_mb": _POOL_MEASURING >> 20,
    }


_PLANS = """\
# Query plans of timelines

Written by `manage.py bench feed-at-scale`. Pages
and unread counts were read beside {small:,} and {large:,} entries; every statement was explained
just before, and the rows that it read were counted by the server (the sum of `Handler_read_*`). The
cost is flat where both numbers are alike, whatever the plan's `rows` (an estimate) says.
"""


def _record(ground: Ground, name: str) -> plans.Recorder:
    from notify.feed import timeline

    users = _volumes(ground)[name]
    ground.use(name)
    biz, uid = people.biz(), f"user-{users // 2:08}"
    seen = plans.Recorder()
    first = seen.step("First page", lambda: timeline.read(biz, uid))
    seen.step("Next page", lambda: timeline.read(biz, uid, before=first.next))
    seen.step("Unread count", lambda: timeline.count_unread(biz, uid))
    return seen


def _rows(ground: Ground) -> tuple[int, int]:
    """Entries of the two databases."""
    users = [
        max(FRIENDS + 50, rows // FRIENDS) for rows in (ground.rows[1] // _SMALLER, ground.rows[1])
    ]
    return users[0] * FRIENDS, users[1] * FRIENDS


@lru_cache(maxsize=1)
def _volumes(ground: Ground) -> dict[str, int]:
    """Both databases, filled once for all runs; database → users. Then the buffer pool is made
    small."""
    ground.set_pool(_POOL_FILLING)
    made = {}
    for name, rows in zip(("small", "large"), _rows(ground), strict=True):
        begun = time.monotonic()
        made[name] = rows // FRIENDS
        with ground.make(name).connect(name).cursor() as cursor:
            _fill(cursor, made[name])
        print(f"{NAME} filled  {rows:,} entries, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    ground.set_pool(_POOL_MEASURING)
    return made


def _fill(cursor: Any, users: int) -> None:
    """Each user has posted once, every event is handled, and everybody has read all but the newest
    UNREAD posts."""
    people.fill(cursor, users, FRIENDS)
    first = ids.first_id_at(timezone.now() - timedelta(hours=1))
    posts.fill(cursor, first, users, users, handled=users)
    posts.fill_entries(cursor)
    cursor.execute(
        "UPDATE feed_user u SET read_id = (SELECT feed_id FROM feed_broadcast b WHERE "
        "b.biz_id = u.biz_id AND b.fri_uid = u.uid ORDER BY b.feed_id DESC "
        f"LIMIT 1 OFFSET {UNREAD})"
    )
    posts.check_written(cursor, FRIENDS)
