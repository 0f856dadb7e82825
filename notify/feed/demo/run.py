"""The demo of Feed: people of a town post, make friends and fall out, until every timeline is as
the demo's own list says."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgplatform.api.access import keys
from msgplatform.core.data import sql, transactions
from msgplatform.core.flows import DemoRun
from msgplatform.demo.account import Records, compare, wait_for_none
from msgplatform.models import Biz
from notify.feed.demo import town
from notify.feed.demo.town import Scenario
from notify.feed.demo.traffic import Traffic, trickle
from notify.feed.models import FeedUser

# With less than these the demo shows nothing, and says so.
MIN_POSTS, MIN_RELATIONS, MIN_USERS = 1_000, 50_000, 1_000
_A_USER, _A_POST = 10, 5  # for so many of the demo's messages
_TRICKLE_SECONDS = 2.0  # between two posts, after the accounting
_INACTIVE_SECONDS = (
    900.0  # within which the cleaner deactivates people who stay away, on a busy machine
)
# Every kind of request must have been answered.
_KINDS = ("edited", "deleted", "unfriend", "unfollow", "block", "befriend", "follow", "refused")


class Account:
    """The timelines and unread counts that every reader must see, and those that were read."""

    def __init__(self, traffic: Traffic, readers: Sequence[str]) -> None:
        self.traffic = traffic
        self.expected = {uid: traffic.town.timeline(uid) for uid in readers}
        self.seen: dict[str, Records] = {}
        self.unread: dict[str, int] = {}
        self._wrong = list(readers)  # to be read once more

    def count_wrong(self) -> int:
        """Read the timelines that differed at the last look; the number of those that still do."""
        self.seen |= self.traffic.timelines(self._wrong)
        self.unread |= self.traffic.unread(self._wrong)
        differing = compare(self.expected, self.seen, is_ordered=True).receivers
        self._wrong = sorted({*differing, *self.miscounted()})
        return len(self._wrong)

    def miscounted(self) -> list[str]:
        """Readers whose number of unread posts is wrong."""
        town = self.traffic.town
        return [
            uid
            for uid, count in self.unread.items()
            if count != town.unread(uid, self.expected[uid])
        ]


def run_demo(run: DemoRun) -> Mapping[str, Any]:
    """People meet, post, change their minds, stay away and come back; every timeline is read."""
    start = time.monotonic()
    scenario = Scenario(town.citizens(max(20, run.messages // _A_USER)))
    posts, readers = max(1, run.messages // _A_POST), scenario.readers
    biz, _ = Biz.objects.get_or_create(name="town", defaults={"title": "Town"})
    token = keys.create(biz, "demo", ["feed:write", "feed:read"])[1]
    traffic = Traffic(run.base_url, token, scenario)
    run.say(f"feed: {len(readers)} users make friends, post, edit, delete and fall out")
    run.start_together()
    traffic.settle()
    run.progress("feed", f"{traffic.counts['relations']:,} relations are made")
    newcomers = set(scenario.newcomers)
    traffic.visit([uid for uid in readers if uid not in newcomers])
    traffic.live(posts // 2)
    away_count = _stay_away(biz.pk, scenario.travellers)
    traffic.live(posts - posts // 2)
    run.progress("feed", f"{len(traffic.town.posts):,} posts are written; every timeline is read")
    account = Account(traffic, readers)
    # The pages of people who were away are merged from the posts: there is nothing to wait for.
    came_back = compare(account.expected, traffic.timelines(scenario.travellers), is_ordered=True)
    traffic.read_up_to({uid: account.expected[uid] for uid in readers[::2]})
    wait_for_none(run, "feed", account.count_wrong, "timelines differ")
    run.trickle("feed", trickle(run.base_url, token, scenario), _TRICKLE_SECONDS)
    return _report(account, came_back.receivers, away_count, time.monotonic() - start)


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


def _report(
    account: Account, came_back_wrong: Sequence[str], away_count: int, seconds: float
) -> Mapping[str, Any]:
    traffic, miscounted_readers = account.traffic, account.miscounted()
    counts, readers = traffic.counts, len(account.seen)
    differences = compare(account.expected, account.seen, is_ordered=True)
    entries = sum(map(len, account.expected.values()))
    wrong = {
        "timelines differ": differences.receivers,
        "numbers of unread posts are wrong": miscounted_readers,
        "people who came back saw something else": came_back_wrong,
        "changes were seen late": traffic.late,
    }
    problems = [f"{len(some)} {what}: {some[:3]}" for what, some in wrong.items() if some]
    problems += [f"nothing was done of {kind}" for kind in _KINDS if not counts[kind]]
    if counts["relations"] < MIN_RELATIONS or readers < MIN_USERS:
        problems.append(f"only {counts['relations']} relations of {readers} users were made")
    if not away_count:
        problems.append("nobody stayed away and came back")
    return {
        "accepted": len(traffic.town.posts),
        "at_least": MIN_POSTS,
        "users": readers,
        "relations": counts["relations"],
        **{kind: counts[kind] for kind in _KINDS},
        "came_back": away_count,
        "copies": entries,
        "delivered": entries - len(differences.missing),
        "lost": len(differences.missing),
        "duplicates": len(differences.extra),
        "wrong": len(differences.receivers),
        "unread_wrong": len(miscounted_readers),
        "seen_late": len(traffic.late),
        "seconds": round(seconds, 1),
        "problem": "; ".join(problems),
    }
