"""People of a town post, make friends and fall out, stay away and come back, until every timeline
is as the demo's own list says."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from demo.account import Differences, Records, compare
from demo.feed.town import Population, citizens
from demo.feed.traffic import Traffic, trickle
from demo.run import Run, Scenario
from msgplatform.core.data import sql, transactions
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.feed.models import FeedUser

# With less than these the demo shows nothing, and says so.
_MIN_POSTS, _MIN_RELATIONS, _MIN_USERS = 1_000, 50_000, 1_000
_A_USER, _A_POST = 10, 5  # for so many of the demo's messages
_TRICKLE_SECONDS = 2.0  # between two posts, after the accounting
# The cleaner deactivates people who stay away within so many seconds, on a busy machine.
_INACTIVE_SECONDS = 900.0
# Every kind of request must have been answered.
_KINDS = ("edited", "deleted", "unfriend", "unfollow", "block", "befriend", "follow", "refused")


class Account:
    """The timelines and unread counts that every reader must see, and those that were read."""

    def __init__(self, traffic: Traffic, readers: Sequence[str]) -> None:
        self._traffic = traffic
        self.expected = {uid: traffic.town.timeline(uid) for uid in readers}
        self._seen: dict[str, Records] = {}
        self._unread: dict[str, int] = {}
        self._wrong = list(readers)  # to be read once more

    def count_wrong(self) -> int:
        """Read the timelines that differed at the last look; the number of those that still do."""
        self._seen |= self._traffic.timelines(self._wrong)
        self._unread |= self._traffic.unread(self._wrong)
        self._wrong = sorted({*self.differences().receivers, *self.miscounted()})
        return len(self._wrong)

    def differences(self) -> Differences:
        return compare(self.expected, self._seen, is_ordered=True)

    def miscounted(self) -> list[str]:
        """Readers whose number of unread posts is wrong."""
        unread = self._traffic.town.unread
        counts = self._unread.items()
        return [uid for uid, count in counts if count != unread(uid, self.expected[uid])]


def play(run: Run) -> Mapping[str, Any]:
    """People meet, post, change their minds, stay away and come back; every timeline is read."""
    population = Population(citizens(max(20, run.messages // _A_USER)))
    posts, readers = max(1, run.messages // _A_POST), population.readers
    biz = Biz.objects.create(name="town", title="Town")
    token = keys.create(biz, "demo", ["feed:write", "feed:read"])[1]
    traffic = Traffic(run.base_url, token, population)
    run.say(f"feed: {len(readers)} users make friends, post, edit, delete and fall out")
    run.start_together()
    traffic.settle()
    run.progress("feed", f"{traffic.counts['relations']:,} relations are made")
    newcomers = set(population.newcomers)
    traffic.visit([uid for uid in readers if uid not in newcomers])
    traffic.live(posts // 2)
    away_count = _stay_away(biz.pk, population.travellers)
    traffic.live(posts - posts // 2)
    run.progress("feed", f"{len(traffic.town.posts):,} posts are written; every timeline is read")
    account = Account(traffic, readers)
    # The pages of people who were away are merged from the posts: there is nothing to wait for.
    came_back = compare(account.expected, traffic.timelines(population.travellers), is_ordered=True)
    traffic.read_up_to({uid: account.expected[uid] for uid in readers[::2]})
    run.wait_for_none("feed", account.count_wrong, "timelines differ")
    run.trickle("feed", trickle(run.base_url, token, population), _TRICKLE_SECONDS)
    differences, counts = account.differences(), traffic.counts
    faults: dict[str, Sequence[str]] = {
        "timelines differ": differences.receivers,
        "numbers of unread posts are wrong": account.miscounted(),
        "people who came back saw something else": came_back.receivers,
        "changes were seen late": traffic.late,
        "kinds of requests were never made": [kind for kind in _KINDS if not counts[kind]],
    }
    problems = [f"{len(names)} {what}: {names[:3]}" for what, names in faults.items() if names]
    if counts["relations"] < _MIN_RELATIONS or len(readers) < _MIN_USERS:
        problems.append(f"only {counts['relations']} relations of {len(readers)} users were made")
    if not away_count:
        problems.append("nobody stayed away and came back")
    entries = sum(map(len, account.expected.values()))
    return {
        "accepted": len(traffic.town.posts),
        "at_least": _MIN_POSTS,
        "users": len(readers),
        "relations": counts["relations"],
        **{kind: counts[kind] for kind in _KINDS},
        "came_back": away_count,
        "copies": entries,
        "delivered": entries - len(differences.missing),
        "lost": len(differences.missing),
        "duplicates": len(differences.extra),
        "wrong": len(differences.receivers),
        "unread_wrong": len(account.miscounted()),
        "seen_late": len(traffic.late),
        "problem": "; ".join(problems),
    }


def _stay_away(biz_id: int, travellers: Sequence[str]) -> int:
    """Set their last visit back, because the demo cannot wait for weeks; the number of them that
    the cleaner then deactivates."""
    rows = FeedUser.objects.filter(biz_id=biz_id, uid__in=travellers)
    years_ago = sql.now() - timedelta(days=4000)
    transactions.retrying(lambda: rows.update(visit_date=years_ago))
    deadline = time.monotonic() + _INACTIVE_SECONDS
    while rows.filter(active=True).exists() and time.monotonic() < deadline:
        time.sleep(0.5)
    return rows.filter(active=False).count()


SCENARIO = Scenario(
    "feed",
    play,
    # So low that even in a small town authors are merged and timelines trimmed.
    lambda: {
        "FEED_READ_FANOUT_ABOVE": "400", "FEED_WRITE_FANOUT_BELOW": "350",
        "FEED_TIMELINE_LENGTH": "100", "FEED_REBUILD_LENGTH": "50", "FEED_CLEAN_SECONDS": "1",
        "API_RATE_READ": "off",
    },
    "FEED_",
)  # fmt: skip
