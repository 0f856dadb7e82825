"""The demo of Feed: people of a town post, make friends and fall out, until every timeline is as
the demo's own list says."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql
from msgplatform.core.flows import DemoRun
from notify.feed.demo import scenario
from notify.feed.demo.account import Differences, Shown, compare
from notify.feed.demo.scenario import Scenario
from notify.feed.demo.traffic import Traffic, Trickle
from notify.feed.models import FeedUser

# With less than these the demo shows nothing, and says so.
MIN_POSTS, MIN_RELATIONS, MIN_USERS = 1_000, 50_000, 1_000
_A_USER, _A_POST = 10, 5  # for so many of the demo's messages
_LOOK_SECONDS = 0.5
_TRICKLE_SECONDS = 2.0  # between two posts, after the accounting
_INACTIVE_SECONDS = 120.0  # within which the cleaner deactivates those who stay away


@dataclass
class Account:
    """The demo's own list when everything has happened, and what is read then."""

    traffic: Traffic
    expected: dict[str, list[Shown]]
    held: dict[str, list[Shown]] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)

    def read(self, readers: Sequence[str]) -> None:
        self.held |= self.traffic.timelines(readers)
        self.unread |= self.traffic.unread(readers)

    def differences(self) -> Differences:
        return compare(self.expected, self.held)

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
    begun = time.monotonic()
    people = scenario.people(max(20, run.messages // _A_USER))
    posts = max(1, run.messages // _A_POST)
    who = Scenario(people)
    biz_id, token = scenario.create()
    traffic = Traffic(run.base_url, token, who)
    traffic.settle()
    run.say(
        f"feed: {len(who.readers)} users have {traffic.done['relations']} relations; they come, "
        "post, edit, delete and fall out"
    )
    newcomers = set(who.newcomers)
    traffic.visit([uid for uid in who.readers if uid not in newcomers])
    traffic.live(posts // 2)
    away = _stay_away(biz_id, who.travellers)
    traffic.live(posts - posts // 2)
    account = Account(traffic, {uid: traffic.town.timeline(uid) for uid in who.readers})
    # Their pages are merged from the posts, so nothing has to be waited for.
    came_back = compare(account.expected, traffic.timelines(who.travellers))
    run.say(f"feed: {away} who stayed away came back; every timeline is read")
    traffic.read_up_to({uid: account.expected[uid] for uid in who.readers[::2]})
    _await_equal(run, account)
    run.trickle("feed", Trickle(run.base_url, token, who).post, _TRICKLE_SECONDS)
    return _report(run, account, came_back, away, time.monotonic() - begun)


def _stay_away(biz_id: int, travellers: Sequence[str]) -> int:
    """Set their last visit back, because nobody waits for weeks; how many the cleaner then
    deactivates."""
    rows = FeedUser.objects.filter(biz_id=biz_id, uid__in=travellers)
    rows.update(visit_date=sql.now() - timedelta(days=4000))
    deadline = time.monotonic() + _INACTIVE_SECONDS
    while rows.filter(active=True).exists() and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return rows.filter(active=False).count()


def _await_equal(run: DemoRun, account: Account) -> None:
    """Read all timelines, and again those that differ, until none does or time is up."""
    deadline = time.monotonic() + run.timeout
    progress = Every(2.0)
    left = sorted(account.expected)
    while left:
        account.read(left)
        left = sorted({*account.differences().readers, *account.miscounted()})
        if time.monotonic() > deadline:
            return
        if left:
            if progress.take():
                run.say(f"feed: {len(left)} timelines differ")
            time.sleep(_LOOK_SECONDS)


def _report(
    run: DemoRun, account: Account, came_back: Differences, away: int, seconds: float
) -> Mapping[str, Any]:
    traffic, found, miscounted = account.traffic, account.differences(), account.miscounted()
    done, readers = traffic.done, len(account.held)
    entries = sum(map(len, account.expected.values()))
    what_is_wrong = {
        "timelines differ": found.readers,
        "numbers of unread posts are wrong": miscounted,
        "of those who came back saw something else": came_back.readers,
        "changes were seen late": traffic.late,
    }
    problems = [f"{len(some)} {what}: {some[:3]}" for what, some in what_is_wrong.items() if some]
    kinds = ("edited", "deleted", "unfriend", "unfollow", "block", "befriend", "follow", "refused")
    problems += [f"nothing was done of {kind}" for kind in kinds if not done[kind]]
    if done["relations"] < MIN_RELATIONS or readers < MIN_USERS:
        problems.append(f"only {done['relations']} relations of {readers} users were made")
    if not away:
        problems.append("nobody stayed away and came back")
    if not problems:
        run.say(f"feed: all {readers} timelines are as the demo's list says, in {seconds:.0f} s")
    return {
        "accepted": len(traffic.town.posts),
        "at_least": MIN_POSTS,
        "users": readers,
        "relations": done["relations"],
        **{kind: done[kind] for kind in kinds},
        "came_back": away,
        "copies": entries,
        "delivered": entries - found.missing,
        "lost": found.missing,
        "duplicates": found.more,
        "wrong": len(found.readers),
        "unread_wrong": len(miscounted),
        "seen_late": len(traffic.late),
        "seconds": round(seconds, 1),
        "problem": "; ".join(problems),
    }
