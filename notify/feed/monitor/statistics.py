"""What dispatchers did over time, for pages, charts and CSV files.

    series("hour", since, until)                  a Point per hour, gaps filled with zeros
    series("day", since, until, biz=3)            of one business system
    series("day", since, until, topics=["vip"])   of some topics
    by_topic("hour", since, until)                {topic: Point} of the whole time
    together(at, points)                          several as one
    csv_rows("day", since, until)                 lists of texts, the header first

`since`, `until` and the steps are those of `msgplatform.jobs.time_steps`. Raises InvalidInput for a
time that is too long for its step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from django.db.models import QuerySet, Sum
from django.utils.translation import gettext as _

from msgplatform.jobs import time_steps
from msgplatform.jobs.time_steps import Step
from msgplatform.models import Biz
from notify.feed.models import EventQueue
from notify.feed.monitor.counters import ENTRIES, FLOW, HANDLED, MERGED, NAMES, SET_ASIDE, split

TOPICS = tuple(EventQueue.Topic.values)


@dataclass(frozen=True, slots=True)
class Point:
    """One step of time. `handled` and `set_aside` count events, `entries` those written into
    timelines, `merged` posts of authors who are merged at read."""

    at: datetime
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def handled(self) -> int:
        return self.counts.get(HANDLED, 0)

    @property
    def entries(self) -> int:
        return self.counts.get(ENTRIES, 0)

    @property
    def merged(self) -> int:
        return self.counts.get(MERGED, 0)

    @property
    def set_aside(self) -> int:
        return self.counts.get(SET_ASIDE, 0)

    @property
    def entries_each(self) -> float | None:
        """Entries per event on average; None when no event was handled."""
        return self.entries / self.handled if self.handled else None


def series(
    step: Step, since: datetime, until: datetime, *,
    biz: int | None = None, topics: Collection[str] = TOPICS,
) -> list[Point]:  # fmt: skip
    """A Point for every step from `since` to `until`, also for those in which nothing happened."""
    starts = time_steps.starts(step, since, until)
    counts: dict[datetime, Counter[str]] = defaultdict(Counter)
    rows = _rows(step, since, until, biz, topics)
    for at, name, value in rows.values_list("at", "name").annotate(Sum("value")).order_by():
        counts[time_steps.moment(at)][split(name)[1]] += value
    return [Point(start, counts.get(start, {})) for start in starts]


def by_topic(
    step: Step, since: datetime, until: datetime, *, biz: int | None = None
) -> dict[str, Point]:
    """One Point for every topic, of the whole time."""
    counts: dict[str, Counter[str]] = {topic: Counter() for topic in TOPICS}
    rows = _rows(step, since, until, biz, TOPICS)
    for name, value in rows.values_list("name").annotate(Sum("value")).order_by():
        topic, what = split(name)
        counts[topic][what] += value
    begin = time_steps.start(step, since)
    return {topic: Point(begin, found) for topic, found in counts.items()}


def together(at: datetime, points: Iterable[Point]) -> Point:
    """The sum of several points, at the time `at`."""
    counts: Counter[str] = Counter()
    for point in points:
        counts.update(point.counts)
    return Point(at, counts)


def csv_rows(
    step: Step, since: datetime, until: datetime, *,
    biz: int | None = None, topics: Collection[str] = TOPICS,
) -> Iterator[list[str]]:  # fmt: skip
    """A line for every step, system and topic that has counts; read while it is written, so that a
    long file needs little memory.

    Times are ISO 8601 with their zone, days are dates.
    """
    time_steps.starts(step, since, until)  # raises InvalidInput
    systems = dict(Biz.objects.values_list("id", "name"))
    yield [
        _("time"), _("system"), _("topic"), _("events handled"), _("entries written"),
        _("posts merged at read"), _("events set aside"),
    ]  # fmt: skip
    rows = time_steps.in_order(step, _rows(step, since, until, biz, topics))
    wanted = rows.values_list("at", "biz_id", "name", "value")
    for at, lines in groupby(wanted.iterator(chunk_size=5000), key=lambda row: row[0]):
        found: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
        for _at, biz_id, name, value in lines:
            topic, what = split(name)
            found[biz_id, topic][what] += value
        for (biz_id, topic), counts in sorted(found.items()):
            numbers = [str(counts[name]) for name in NAMES]
            yield [at.isoformat(), systems.get(biz_id, str(biz_id)), topic, *numbers]


def _rows(
    step: Step, since: datetime, until: datetime, biz: int | None, topics: Collection[str]
) -> QuerySet[Any]:
    wanted: dict[str, Any] = {} if biz is None else {"biz_id": biz}
    wanted["name__in"] = [f"{what}_{topic}" for what in NAMES for topic in topics]
    return time_steps.rows(step, since, until, flow=FLOW, **wanted)
