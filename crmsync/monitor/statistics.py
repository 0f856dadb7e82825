"""Statistics: what was read and confirmed over time, for pages and CSV files.

    series("hour", since, until)                 a Point per hour, gaps filled with zeros
    series("day", since, until, policies=[7])    of some policies
    by_policy("hour", since, until)              {policy id: Point} of the whole time
    together(points)                             several as one
    csv_rows("day", since, until)                lists of texts, the header first

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

from crmsync.models import Policy
from crmsync.monitor.counters import (
    CALL_MS,
    CALLS,
    CONFIRMED,
    DEAD,
    FLOW,
    READ,
    UNCHANGED,
    failed,
)
from msgplatform.jobs import time_steps
from msgplatform.jobs.time_steps import Step

# Every class of error that a try can end with, see `adapters.outcomes`.
ERRORS = ("retry", "throttled", "invalid", "conflict", "auth", "unknown", "refused", "fault")


@dataclass(frozen=True, slots=True)
class Point:
    """One step; counts of records, but for `calls`. `failed` are tries by their class of error.

    `seconds` is what a call took on average, None without calls.
    """

    at: datetime
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def read(self) -> int:
        return self.counts.get(READ, 0)

    @property
    def unchanged(self) -> int:
        return self.counts.get(UNCHANGED, 0)

    @property
    def confirmed(self) -> int:
        return self.counts.get(CONFIRMED, 0)

    @property
    def dead(self) -> int:
        return self.counts.get(DEAD, 0)

    @property
    def calls(self) -> int:
        return self.counts.get(CALLS, 0)

    @property
    def failed(self) -> dict[str, int]:
        return {name: count for name in ERRORS if (count := self.counts.get(failed(name), 0))}

    @property
    def failures(self) -> int:
        return sum(self.failed.values())

    @property
    def success_share(self) -> float | None:
        """Confirmed by all that ended, 0 to 1; None when nothing did."""
        ended = self.confirmed + self.dead
        return self.confirmed / ended if ended else None

    @property
    def seconds(self) -> float | None:
        return self.counts.get(CALL_MS, 0) / self.calls / 1000 if self.calls else None


def series(
    step: Step, since: datetime, until: datetime, *, policies: Collection[int] | None = None
) -> list[Point]:
    """A Point for every step from `since` to `until`, also for those without anything."""
    starts = time_steps.starts(step, since, until)
    counts: dict[datetime, Counter[str]] = defaultdict(Counter)
    rows = _rows(step, since, until, policies)
    for at, name, value in rows.values_list("at", "name").annotate(Sum("value")).order_by():
        # Minutes that were added up to days come back as dates.
        counts[time_steps.moment(at)][name] += value
    return [Point(start, counts.get(start, {})) for start in starts]


def by_policy(
    step: Step, since: datetime, until: datetime, *, policies: Collection[int] | None = None
) -> dict[int, Point]:
    """One Point for the whole time for every policy of which anything was counted."""
    rows = _rows(step, since, until, policies)
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for policy, name, value in (
        rows.values_list("subject", "name").annotate(Sum("value")).order_by()
    ):
        counts[policy][name] += value
    begin = time_steps.start(step, since)
    return {policy: Point(begin, found) for policy, found in counts.items()}


def together(at: datetime, points: Iterable[Point]) -> Point:
    """Several as one."""
    counts: Counter[str] = Counter()
    for point in points:
        counts.update(point.counts)
    return Point(at, counts)


def csv_rows(
    step: Step, since: datetime, until: datetime, *, policies: Collection[int] | None = None
) -> Iterator[list[str]]:
    """A line for every step and policy with anything to say, read while it is written.

    Times are ISO 8601 with their zone, days are dates; times in seconds, shares from 0 to 1.
    """
    time_steps.starts(step, since, until)
    # A deleted policy is shown by its id.
    names = {
        pk: [source, crm]
        for pk, source, crm in Policy.objects.values_list("id", "source__name", "crm__name")
    }
    yield [
        _("time"), _("source"), _("CRM"), _("read"), _("unchanged"), _("confirmed"), _("dead"),
        _("success share"), _("calls"), _("seconds a call"), *ERRORS,
    ]  # fmt: skip
    rows = time_steps.in_order(step, _rows(step, since, until, policies))
    # Read while the file is written: it is never in memory as a whole.
    wanted = rows.values_list("at", "subject", "name", "value")
    for at, lines in groupby(wanted.iterator(chunk_size=5000), key=lambda row: row[0]):
        found: dict[int, Counter[str]] = defaultdict(Counter)
        for _at, policy, name, value in lines:
            found[policy][name] += value
        for policy, counts in sorted(found.items()):
            point = Point(time_steps.moment(at), counts)
            share, seconds = (
                "" if each is None else f"{each:.4f}"
                for each in (point.success_share, point.seconds)
            )
            ended = [point.read, point.unchanged, point.confirmed, point.dead]
            yield [
                at.isoformat(), *names.get(policy, [str(policy), ""]), *map(str, ended), share,
                str(point.calls), seconds,
                *(str(point.failed.get(name, 0)) for name in ERRORS),
            ]  # fmt: skip


def _rows(
    step: Step, since: datetime, until: datetime, policies: Collection[int] | None
) -> QuerySet[Any]:
    wanted: dict[str, Any] = {} if policies is None else {"subject__in": list(policies)}
    return time_steps.rows(step, since, until, flow=FLOW, **wanted)
