"""The figures of Feed for the overview and the statistics, made of Feed's counters."""

from collections.abc import Collection, Mapping

from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.activity import Activity, Counts, Dimension, Figure, Group, Key, Measure
from msgplatform.monitor.subjects import BySystem
from notify.feed.models import EventQueue
from notify.feed.monitor import counters

_Topic = EventQueue.Topic


def _of_topics(kind: str) -> tuple[str, ...]:
    return tuple(counters.counter_name(kind, topic) for topic in _Topic.values)


class _ByTopic(Dimension):
    """The topic of an event, which is the receiver that works on the event."""

    name = "topic"
    title = _("topic")
    permission = "feed.view_eventqueue"

    def keys_of(self, counter_keys: Collection[Key]) -> Mapping[Key, str]:
        topics = {counter: counters.split(counter.name)[0] for counter in counter_keys}
        return {counter: topic for counter, topic in topics.items() if topic in _Topic.values}

    def named(self, keys: Collection[str]) -> Mapping[str, Group]:
        page = reverse("admin:feed_eventqueue_changelist")
        return {
            topic: Group(topic, str(_Topic(topic).label), f"{page}?topic__exact={topic}")
            for topic in keys
            if topic in _Topic.values
        }

    def narrow(self, key: str) -> Q:
        if key not in _Topic.values:
            raise InvalidInput(gettext("There is no such choice."), self.name)
        return Q(name__in=[counters.counter_name(kind, key) for kind in counters.KINDS])

    def choices(self) -> list[tuple[str, str]]:
        return [(topic.value, str(topic.label)) for topic in _Topic]


def _per_event(counts: Counts) -> float | None:
    events = sum(counts.get(name, 0) for name in _of_topics(counters.HANDLED))
    entries = sum(counts.get(name, 0) for name in _of_topics(counters.ENTRIES))
    return entries / events if events else None


ACTIVITY = Activity(
    counters=counters.FLOW,
    measures=(
        Measure("accepted", _("posts accepted"), _of_topics(counters.ACCEPTED), "accepted"),
        Measure("handled", _("events handled"), _of_topics(counters.HANDLED), "good"),
        Measure("entries", _("entries written"), _of_topics(counters.ENTRIES)),
        Measure("merged", _("posts merged at read"), _of_topics(counters.MERGED)),
        Measure("set_aside", _("events set aside"), _of_topics(counters.SET_ASIDE), "lost"),
    ),
    dimensions=(_ByTopic(), BySystem("feed.EventQueue.biz")),
    figures=(
        Figure(
            "entries_each", _("entries per event"),
            (*_of_topics(counters.HANDLED), *_of_topics(counters.ENTRIES)), _per_event, "number",
        ),
    ),
    note=_("An event is a post that reaches its readers, or upkeep of their timelines."),
)  # fmt: skip
