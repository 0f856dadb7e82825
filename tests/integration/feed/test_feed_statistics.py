"""What dispatchers did over time: series, sums by topic, and the file."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.models import Biz, MinuteCounter
from msgplatform.monitor.statistics import groups
from msgplatform.monitor.statistics.points import CounterQuery, Step, total
from notify.feed.intake import posts
from notify.feed.intake.posts import Post
from notify.feed.monitor import counters
from notify.feed.monitor.activity import ACTIVITY

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def count(biz: int, topic: str, at: datetime, **values: int) -> None:
    counters.add(Counter({counters.key(biz, what, topic): n for what, n in values.items()}), at)


def counted(step: Step, until: datetime, **chosen: str) -> CounterQuery:
    return CounterQuery(ACTIVITY, step, NOON, until, chosen)


def measures(counts: Mapping[str, int]) -> list[int]:
    """Events handled, entries written, posts merged, events set aside."""
    return [measure.of(counts) for measure in ACTIVITY.measures if measure.name != "accepted"]


def test_a_point_for_every_step(biz: Biz) -> None:
    count(biz.pk, "friend", NOON, handled=4, entries=100, merged=1)
    count(biz.pk, "vip", NOON + timedelta(minutes=90), handled=1, entries=7, set_aside=2)
    count(biz.pk + 1, "vip", NOON, handled=3)
    MinuteCounter.add("notify", {(biz.pk, 0, "handled_vip"): 7}, NOON)
    MinuteCounter.add("feed", {(biz.pk, 0, "of_a_later_version"): 7}, NOON)
    first, second, third = counted("hour", NOON + 3 * HOUR).series()
    assert measures(first.counts) == [7, 100, 1, 0]
    assert measures(second.counts) == [1, 7, 0, 2]
    assert measures(third.counts) == [0, 0, 0, 0]
    (each,) = ACTIVITY.figures
    assert (each.of(second.counts), each.of(third.counts)) == (7, None)
    assert ACTIVITY.success(second.counts) == 1 / 3


def test_of_a_system_and_of_a_topic(biz: Biz) -> None:
    count(biz.pk, "friend", NOON, handled=4)
    count(biz.pk + 1, "vip", NOON, handled=3)
    (point,) = counted("hour", NOON + HOUR, system=str(biz.pk)).series()
    assert measures(point.counts)[0] == 4
    (point,) = counted("hour", NOON + HOUR, topic="vip").series()
    assert measures(point.counts)[0] == 3
    with pytest.raises(InvalidInput):
        counted("hour", NOON + HOUR, topic="x").series()


@pytest.mark.django_db(transaction=True)
def test_posts_are_counted_when_they_are_accepted(biz: Biz) -> None:
    """Not by whoever works on them: that may be much later."""
    other = Biz.objects.create(name="others")
    given = [
        Post(biz.pk, "ann", "hello", idempotency_key="k-1"),
        Post(biz.pk, "ann", "hello", topic="vip"),
        Post(other.pk, "bob", "hello"),
    ]
    with time_machine.travel(sql.now() - 3 * HOUR):  # the database's clock counts
        posts.add_many(given)
    posts.add_many(given[:1])  # a repeat is no other post
    rows = MinuteCounter.objects.filter(flow="feed").values_list("biz_id", "name", "value")
    assert sorted(rows) == [
        (biz.pk, "accepted_friend", 1), (biz.pk, "accepted_vip", 1),
        (other.pk, "accepted_friend", 1),
    ]  # fmt: skip
    (accepted,) = (one for one in ACTIVITY.measures if one.tone == "accepted")
    now = sql.now()
    whole = CounterQuery(ACTIVITY, "minute", now - HOUR, now + timedelta(minutes=1))
    assert accepted.of(total(whole.series())) == 3


def test_by_topic_and_by_system(biz: Biz) -> None:
    count(biz.pk, "friend", NOON, handled=4, set_aside=1)
    count(biz.pk + 1, "friend", NOON + HOUR, handled=3)
    count(biz.pk + 1, "upkeep", NOON, handled=2)
    sums = groups.sums(counted("hour", NOON + 2 * HOUR))
    topics, systems = (
        {line.group.title: measures(line.counts) for line in groups.rank_groups(ACTIVITY, by, sums)}
        for by in ACTIVITY.dimensions
    )
    assert topics == {"friend": [7, 0, 0, 1], "upkeep": [2, 0, 0, 0]}
    assert systems == {"orders": [4, 0, 0, 1], str(biz.pk + 1): [5, 0, 0, 0]}


def test_the_file(biz: Biz) -> None:
    count(biz.pk, "friend", NOON, handled=4, entries=100)
    count(biz.pk, "vip", NOON, set_aside=1)
    count(99999, "friend", NOON + HOUR, merged=3, handled=3)
    header, *lines = groups.csv_lines(counted("hour", NOON + 3 * HOUR), ACTIVITY.dimensions[0])
    assert header[:3] == ["time", "topic", "topic_title"]
    accepted = header.index("accepted")
    assert [line[:accepted] + line[accepted + 1 : 8] for line in lines] == [
        ["2026-11-20T12:00:00+00:00", "friend", "friend", "4", "100", "0", "0"],
        ["2026-11-20T12:00:00+00:00", "vip", "vip", "0", "0", "0", "1"],
        ["2026-11-20T13:00:00+00:00", "friend", "friend", "3", "0", "3", "0"],
    ]
