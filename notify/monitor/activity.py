"""Notify's figures on the overview and in the statistics, and their counters."""

import math
from collections.abc import Collection, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.core.flows.activity import Activity, Counts, Dimension, Figure, Group, Key, Measure
from msgplatform.core.flows.text import Text
from msgplatform.monitor.failure_groups import answer_title
from msgplatform.monitor.subjects import BySubject, BySystem, named_rows, row_id
from notify.models import EventType
from notify.monitor import counters
from notify.monitor.counters import DURATION, LATENCY, OTHERS, Bucket, Histogram
from notify.monitor.subjects import SUBSCRIPTION

# A percentile is shown as a range if its bucket ends at `_MIN_WIDE_SECONDS` or later, and at more
# than `_MAX_RATIO` times its begin.
_MIN_WIDE_SECONDS = 60.0
_MAX_RATIO = 3.0
_ROUNDING = 1e-9


def _used_buckets(histogram: Histogram, counts: Counts) -> list[Bucket]:
    return [bucket for bucket in histogram.stored_buckets if counts.get(bucket.name)]


def percentile(histogram: Histogram, counts: Counts, share: float) -> float | None:
    """The percentile `share` (0 to 1) in seconds, with durations spread evenly in each bucket.

    None when nothing was counted. The last bound when the percentile is above all bounds.
    """
    used_buckets = _used_buckets(histogram, counts)
    if not used_buckets:
        return None
    rank, below = sum(counts[bucket.name] for bucket in used_buckets) * share, 0.0
    edges = {edge for _, *both in used_buckets for edge in both} - {math.inf}
    for low, high in pairwise(sorted(edges)):
        value = sum(
            counts[name] * (high - low) / (end - start)
            for name, start, end in used_buckets
            if start <= low and high <= end
        )
        if value and below + value >= rank - _ROUNDING:
            return low + (high - low) * min(1.0, (rank - below) / value)
        below += value
    return histogram.bounds[-1]


def span(histogram: Histogram, counts: Counts, share: float) -> tuple[float, float] | None:
    """The bucket of a percentile if the bucket is too wide for one number; else None. The end is
    infinite for durations above every bound."""
    estimate = percentile(histogram, counts, share)
    if estimate is None:
        return None
    candidates = [b for b in _used_buckets(histogram, counts) if b.low <= estimate <= b.high]
    low, high = max(((b.low, b.high) for b in candidates), key=lambda both: both[1] - both[0])
    is_wide = high >= _MIN_WIDE_SECONDS and high > _MAX_RATIO * low
    return (low, high) if is_wide else None


def _percentile(name: str, title: Any, histogram: Histogram, share: float) -> Figure:
    return Figure(
        name, title, [bucket.name for bucket in histogram.stored_buckets],
        partial(percentile, histogram, share=share), span=partial(span, histogram, share=share),
    )  # fmt: skip


def _answer(counter_name: str) -> str:
    """The label of an answer of consumers: an HTTP status, or a word such as "timeout"."""
    if not counter_name.startswith(counters.ANSWER):
        return ""  # no counter of an answer
    answer = counter_name.removeprefix(counters.ANSWER)
    return gettext("HTTP %s") % answer if answer[:1].isdigit() else answer_title(answer)


class _ByEventType(Dimension):
    """Figures for each event type of the catalogue, and for all other types together."""

    name = "event_type"
    title = _("event type")
    names_subjects = True
    is_apart = True
    permission = "notify.view_eventtype"
    _others = "others"

    def keys_of(self, counter_keys: Collection[Key]) -> Mapping[Key, str]:
        return {
            counter: self._others if counter.subject == OTHERS else str(-counter.subject)
            for counter in counter_keys
            if counter.subject < 0  # the negative id of an event type, or OTHERS
        }

    def named(self, keys: Collection[str]) -> Mapping[str, Group]:
        others = {self._others: Group(self._others, gettext("not in the catalogue"))}
        rows = named_rows(EventType.objects.select_related("biz"), set(keys) - others.keys())
        return {**rows, **(others if self._others in keys else {})}

    def narrow(self, key: str) -> Q:
        return Q(subject=OTHERS if key == self._others else -row_id(key, self.name))

    def choices(self) -> list[tuple[str, Text]]:
        rows = EventType.objects.select_related("biz").order_by("name", "owner")
        entries = [(str(row.pk), str(row)) for row in rows]
        return [*entries, (self._others, gettext("not in the catalogue"))]


ACTIVITY = Activity(
    counters=counters.FLOW,
    measures=(
        Measure("accepted", _("accepted"), (counters.ACCEPTED,), "accepted"),
        Measure("delivered", _("delivered"), ("delivered",), "good"),
        Measure("failed_attempts", _("failed attempts"), ("failed",), "bad"),
        Measure("failures", _("failures"), (counters.EXHAUSTED, counters.POISON), "lost"),
    ),
    dimensions=(
        BySubject(
            SUBSCRIPTION, relation="notify.ReceiveMsg.biz_receive", uncounted_names=("accepted",)
        ),
        BySystem("notify.ReceiveMsg.biz"),
        _ByEventType(),
    ),
    figures=(
        _percentile("delivery_p50", _("time to delivery, median"), LATENCY, 0.5),
        _percentile("delivery_p95", _("time to delivery, p95"), LATENCY, 0.95),
        _percentile("request_p95", _("one request, p95"), DURATION, 0.95),
    ),
    answer=_answer,
    note=_(
        "Times are estimates. Event types are counted one by one when the catalogue has them, all "
        "others together, and without times."
    ),
)  # fmt: skip
