"""Notify's figures on the overview and in the statistics, and the counters they are made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows.activity import Activity, Counts, Dimension, Figure, Group, Key, Measure
from msgplatform.core.flows.text import Text
from msgplatform.monitor.statistics.dimensions import BySubject, BySystem, named_rows, row_id
from notify.models import EventType
from notify.monitor import counters
from notify.monitor.counters import OTHERS
from notify.monitor.failures import SUBSCRIPTION
from notify.monitor.histograms import DURATION, LATENCY, Histogram


def _percentile(name: str, title: Any, histogram: Histogram, share: float) -> Figure:
    def percentile(counts: Counts) -> float | None:
        return histogram.percentile(counts, share)

    def span(counts: Counts) -> tuple[float, float] | None:
        return histogram.span(counts, share)

    return Figure(name, title, histogram.names, percentile, span=span)


def _answer(counter_name: str) -> str:
    """The label of an answer of consumers: an HTTP status, or a word such as "timeout"."""
    answer = counters.answer_of(counter_name)
    return gettext("HTTP %s") % answer if answer[:1].isdigit() else answer


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
        Measure("failures", _("failures"), (counters.EXHAUSTED,), "lost"),
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
