"""From the answer to the poster until the last follower sees the post."""

from collections.abc import Sequence

from bench.feed import people, posts
from bench.feed.fan_out import dispatcher
from bench.harness.mariadb import numbers
from bench.harness.measure import Side
from bench.harness.processes import BenchFailed, Crew, Program
from bench.harness.programs.progress import Progress

NAME = "feed-visible"
ORDER = 120
UNIT = "posts/s"
IS_OPEN = True  # the rate has the author's own pauses in it
ABOUT = (
    "One author posts, each time when the post before was visible and a moment more has passed. "
    "What counts are the answer times: from the answer to the poster until a read of the timeline "
    "shows the post to the follower who is served last. The rates have the author's pauses in "
    "them. One `run_feed_dispatcher` (`FEED_MIN_SHARE=1`); followers are active readers. The "
    "column *load generator* has code under test too: posting and reading timelines."
)
_AUTHOR, _READER = "star", "fan-"
_FOLLOWERS_A_SECOND = 100_000


class Visible(Side):
    """200 followers: one statement."""

    poll_seconds = 0.02
    followers = 200
    merging, delivery = 0, 2  # of the author, of each relation: pushed, written

    def prepare(self) -> None:
        # Fewer for a short stretch, as tests have it.
        self.followers = min(self.followers, int(self.seconds * _FOLLOWERS_A_SECOND))
        self._progress = Progress(self.ground.file(f"{self.stretch}.progress"))
        with self.ground.server.connect("bench").cursor() as cursor:
            posts.empty(cursor)
            for table in ("feed_user", "friend"):
                cursor.execute(f"TRUNCATE TABLE {table}")
            readers = f"{numbers(1, self.followers)} n"
            reader, biz = f"CONCAT('{_READER}', LPAD(n.seq, 8, '0'))", people.biz()
            cursor.execute(
                "INSERT INTO feed_user (biz_id, uid, friends, followers, merging, active, "
                f"visit_date, read_id, floor) SELECT {biz}, {reader}, 0, 0, 0, 1, "
                f"UTC_TIMESTAMP(6), 0, 0 FROM {readers} UNION ALL SELECT {biz}, '{_AUTHOR}', 0, "
                f"{self.followers}, {self.merging}, 1, UTC_TIMESTAMP(6), 0, 0"
            )
            cursor.execute(
                "INSERT INTO friend (biz_id, uid, relation, fri_uid, delivery, create_date) "
                f"SELECT {biz}, '{_AUTHOR}', 'follow', {reader}, {self.delivery}, UTC_TIMESTAMP(6) "
                f"FROM {readers}"
            )

    def programs(self) -> Sequence[Program]:
        poster = self.ground.module(
            "load", "bench.feed.poster", *("--progress", self._progress.file),
            *("--biz", people.biz(), "--author", _AUTHOR, "--last", _uid(self.followers)),
            load=True,
        )  # fmt: skip
        return [dispatcher(self.ground), poster]

    def count(self) -> int:
        return self._progress.count

    def check(self, crew: Crew) -> None:
        """Each post has its entries, and there are no others."""
        # Authors have an entry of their own; those of a merged author are the only ones.
        readers = 1 + (self.followers if self.merging == 0 else 0)
        with self.ground.server.connect("bench").cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM feed")
            made = cursor.fetchone()[0]
            cursor.execute("SELECT COUNT(*), COUNT(DISTINCT feed_id) FROM feed_broadcast")
            found = cursor.fetchone()
        if made != self.count() or found != (made * readers, made):
            raise BenchFailed(
                f"{self.name}: {self.count()} posts were seen, {made} stored; "
                f"{found[0]} entries of {found[1]} posts for {readers} readers each"
            )


class TenThousand(Visible):
    """10,000 followers, pushed in slices."""

    name = "10k-followers"
    followers = 10_000


class HundredThousand(Visible):
    """100,000 followers, pushed in slices, as with a FEED_READ_FANOUT_ABOVE above that."""

    name = "100k-followers"
    followers = 100_000


class Merged(HundredThousand):
    """100,000 followers of an author who is merged at read, as by default above 50,000."""

    name = "100k-merged"
    merging, delivery = 2, 1  # merged at read, both


def _uid(number: int) -> str:
    return f"{_READER}{number:08}"


def sides() -> list[type[Side]]:
    return [Visible, TenThousand, HundredThousand, Merged]
