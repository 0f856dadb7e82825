"""What was accepted and delivered over time, for pages, charts and CSV files.

    series("hour", since, until)                    a Point per hour, gaps filled with zeros
    series("minute", since, until, subscription=7)  of one subscription
    series("day", since, until, biz=3)              of one business system
    total("hour", since, until, subscription=7)     the whole time as one Point
    by_subscription("hour", since, until)           {subscription id: Point} of the whole time
    csv_rows("day", since, until, biz=3)            lists of texts, the header first

`since`, `until` and the steps are those of `msgplatform.jobs.time_steps`. Raises InvalidInput for a
time that is too long for its step.

Percentiles come from histograms: exact to the bucket, interpolated within it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from django.db.models import QuerySet, Sum
from django.utils.translation import gettext as _

from msgplatform.jobs import time_steps
from msgplatform.jobs.time_steps import Step
from msgplatform.models import Biz
from notify.models import BizReceive
from notify.monitor.counters import ACCEPTED, DURATION, FLOW, LATENCY


@dataclass(frozen=True, slots=True)
class Point:
    """One step. Times in seconds; None where nothing was counted.

    `failed` counts attempts that failed, `exhausted` deliveries that were given up; `accepted` is 0
    for a single subscription. `latency` is from acceptance to delivery, `duration` one request's.
    """

    at: datetime
    accepted: int = 0
    delivered: int = 0
    failed: int = 0
    exhausted: int = 0
    latency_p50: float | None = None
    latency_p95: float | None = None
    duration_p50: float | None = None
    duration_p95: float | None = None

    @property
    def attempts(self) -> int:
        return self.delivered + self.failed

    @property
    def success_share(self) -> float | None:
        """Delivered by all attempts, 0 to 1; None without an attempt."""
        return self.delivered / self.attempts if self.attempts else None


def series(
    step: Step, since: datetime, until: datetime, *,
    biz: int | None = None, subscription: int | None = None,
) -> list[Point]:  # fmt: skip
    """A Point for every step from `since` to `until`, also for steps in which nothing happened."""
    starts = time_steps.starts(step, since, until)
    counts: dict[datetime, Counter[str]] = defaultdict(Counter)
    rows = _rows(step, since, until, biz, subscription)
    for at, name, value in rows.values_list("at", "name").annotate(Sum("value")).order_by():
        counts[time_steps.moment(at)][name] += value
    return [_point(start, counts.get(start, {})) for start in starts]


def total(
    step: Step, since: datetime, until: datetime, *,
    biz: int | None = None, subscription: int | None = None,
) -> Point:  # fmt: skip
    """The whole time as one Point; `step` says from which counters."""
    rows = _rows(step, since, until, biz, subscription)
    counts = dict(rows.values_list("name").annotate(Sum("value")).order_by())
    return _point(time_steps.start(step, since), counts)


def by_subscription(
    step: Step, since: datetime, until: datetime, *, biz: int | None = None
) -> dict[int, Point]:
    """The whole time as one Point for every subscription that had an attempt."""
    # Subject 0 is the business system itself: what it published.
    rows = _rows(step, since, until, biz, None).exclude(subject=0)
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for subject, name, value in rows.values_list("subject", "name").annotate(Sum("value")):
        counts[subject][name] += value
    begin = time_steps.start(step, since)
    return {subject: _point(begin, found) for subject, found in counts.items()}


def csv_rows(
    step: Step, since: datetime, until: datetime, *,
    biz: int | None = None, subscription: int | None = None,
) -> Iterator[list[str]]:  # fmt: skip
    """A line for every step and subscription with anything to say, read while it is written.

    Times are ISO 8601 with their zone, days are dates; times in seconds, shares from 0 to 1.
    """
    time_steps.starts(step, since, until)  # refuses a time that is too long, before the first line
    systems = dict(Biz.objects.values_list("id", "name"))
    consumers = dict(BizReceive.objects.values_list("id", "receive__name"))
    yield [
        _("time"), _("system"), _("subscription"), _("consumer"), _("accepted"), _("delivered"),
        _("failed attempts"), _("exhausted"), _("success share"), _("latency p50"),
        _("latency p95"), _("request p50"), _("request p95"),
    ]  # fmt: skip
    rows = _rows(step, since, until, biz, subscription)
    columns = ("at", "biz_id", "subject", "name", "value")
    wanted = time_steps.in_order(step, rows).values_list(*columns)
    # The rows come in the order of their steps: no more than one step is in memory.
    for at, lines in groupby(wanted.iterator(chunk_size=5000), key=lambda row: row[0]):
        found: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
        for _at, biz_id, subject, name, value in lines:
            found[biz_id, subject][name] += value
        for (biz_id, subject), counts in sorted(found.items()):
            when = at.isoformat()
            owner = [systems.get(biz_id, str(biz_id)), str(subject or ""),
                     consumers.get(subject, "")]  # fmt: skip
            point = _point(time_steps.moment(at), counts)
            numbers = (point.accepted, point.delivered, point.failed, point.exhausted)
            shares = (
                point.success_share, point.latency_p50, point.latency_p95, point.duration_p50,
                point.duration_p95,
            )  # fmt: skip
            texts = ("" if share is None else f"{share:.4f}" for share in shares)
            yield [when, *owner, *map(str, numbers), *texts]


def _rows(
    step: Step, since: datetime, until: datetime, biz: int | None, subscription: int | None
) -> QuerySet[Any]:
    """The counters of the time, each with `at`, the start of its step."""
    owner: dict[str, Any] = {"flow": FLOW}
    if biz is not None:
        owner["biz_id"] = biz
    if subscription is not None:
        owner["subject"] = subscription
    return time_steps.rows(step, since, until, **owner)


def _point(at: datetime, counts: Mapping[str, int]) -> Point:
    return Point(
        at=at,
        accepted=counts.get(ACCEPTED, 0),
        delivered=counts.get("delivered", 0),
        failed=counts.get("failed", 0),
        exhausted=counts.get("exhausted", 0),
        latency_p50=LATENCY.percentile(counts, 0.5),
        latency_p95=LATENCY.percentile(counts, 0.95),
        duration_p50=DURATION.percentile(counts, 0.5),
        duration_p95=DURATION.percentile(counts, 0.95),
    )
