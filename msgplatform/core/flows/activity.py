"""The counters of a flow and their groups, for the overview's charts and the statistics page.

The counters themselves are the platform's (`MinuteCounter` and `DayCounter` in its models); a flow
declares the meaning of their names. `msgplatform/monitor/statistics/` reads them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec
from django.db.models import Q
from django.utils.translation import gettext

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.text import Text

Counts = Mapping[str, int]  # name of a counter → its sum
SYSTEM = "system"  # can be combined with every other dimension
# The meaning of a measure for people: its colour, and the rank in lists.
Tone = Literal["accepted", "good", "lost", "bad", "plain"]


class Key(NamedTuple):
    """The identity of a counter: business system, subject (0: none) and name."""

    biz: int
    subject: int
    name: str


class Measure(msgspec.Struct, frozen=True):
    """The sum of some counters: a column of statistics.

    The tone `good` is for deliveries and `lost` for failures: each flow has one measure of each.
    `bad` is for failed attempts, which may be retried.
    """

    name: str
    title: Text
    counters: Collection[str]
    tone: Tone = "plain"
    is_live: bool = False  # from `Activity.live`: only of the last day

    def of(self, counts: Counts) -> int:
        return sum(counts.get(name, 0) for name in self.counters)


class Figure(msgspec.Struct, frozen=True):
    """A number computed from counters, such as a percentile; None without counts."""

    name: str
    title: Text
    counters: Collection[str]
    of: Callable[[Counts], float | None]
    unit: Literal["seconds", "number"] = "seconds"
    # The bounds of the number if they are too far apart for one number, else None. The upper bound
    # may be infinite.
    span: Callable[[Counts], tuple[float, float] | None] = lambda counts: None


class Group(msgspec.Struct, frozen=True):
    """A value of a dimension, such as a subscription. `url` is its page, or ''."""

    key: str
    title: str
    url: str = ""


class Dimension(ABC):
    """A way to group counters: by subscription, gateway, CRM, topic."""

    name: str  # in addresses and files
    title: Text
    # The foreign key for finding rows while a person types ("notify.ReceiveMsg.biz_receive"), or ''
    # if `choices` are few enough to show all.
    relation: str = ""
    # True if `narrow` names subjects: an index has their counters together.
    names_subjects: bool = False
    uncounted: Collection[str] = ()  # measures that are not counted by this dimension
    permission: str = ""  # to open the pages of its groups
    # True if each message is counted a second time for this dimension, with negative subjects.
    is_apart: bool = False

    @abstractmethod
    def keys_of(self, counter_keys: Collection[Key]) -> Mapping[Key, str]:
        """Counter → key of its group, without counters that have no group. Runs at most one
        statement for any number of counters."""

    @abstractmethod
    def named(self, keys: Collection[str]) -> Mapping[str, Group]:
        """The groups that still exist, by key. Runs at most one statement."""

    def groups(self, counter_keys: Collection[Key]) -> Mapping[Key, Group]:
        """The group of each counter. A deleted group keeps its counts; its title is the key."""
        keys = self.keys_of(counter_keys)
        named = self.named(set(keys.values()))
        return {counter: named.get(key, Group(key, key)) for counter, key in keys.items()}

    @abstractmethod
    def narrow(self, key: str) -> Q:
        """The counters of one group, as a filter. Raises InvalidInput."""

    def choices(self) -> Sequence[tuple[str, Text]]:
        """Every group, as (key, title)."""
        return ()


class Activity(msgspec.Struct, frozen=True):
    """The reading of a flow's counters.

    `counters` is their `flow`. The overview names groups of the first dimension in trouble.
    `answer` gives the title of a counter of failed attempts (an HTTP status, a class of error), ''
    for other counters. `live` returns counts of the last day by minute that are not in the
    database; it may raise errors of Redis.
    """

    counters: str
    measures: Sequence[Measure]
    dimensions: Sequence[Dimension]
    figures: Sequence[Figure] = ()
    answer: Callable[[str], str] | None = None
    note: Text = ""  # a sentence about what is counted, and when
    live: Callable[[datetime, datetime], Mapping[datetime, Counts]] | None = None

    @property
    def stored_measures(self) -> list[Measure]:
        """The measures whose counters are in the database."""
        return [measure for measure in self.measures if not measure.is_live]

    @property
    def has_systems(self) -> bool:
        """True if each counter belongs to a business system."""
        return any(dimension.name == SYSTEM for dimension in self.dimensions)

    def total(self, tone: Tone, counts: Counts) -> int:
        """The sum of all measures of this tone."""
        return sum(measure.of(counts) for measure in self.measures if measure.tone == tone)

    def uncounted(self, selection: Mapping[str, str]) -> set[str]:
        """The names of the measures that are not counted for the selected groups."""
        dimensions = self._selected_dimensions(selection)
        return {name for dimension in dimensions for name in dimension.uncounted}

    def success(self, counts: Counts) -> float | None:
        """The share of deliveries among all endings, 0 to 1; None without endings."""
        good, lost = self.total("good", counts), self.total("lost", counts)
        return good / (good + lost) if good + lost else None

    def condition(self, selection: Mapping[str, str]) -> Q:
        """The counters of the selected groups (dimension → key), as a filter. Raises
        InvalidInput."""
        condition, names = Q(), list[str]()
        for dimension in self._selected_dimensions(selection):
            condition &= dimension.narrow(selection[dimension.name])
            if not dimension.is_apart and dimension.name != SYSTEM:
                names.append(dimension.name)
        if names and self.is_apart(selection):
            words = gettext("This is counted for each alone: choose one of them.")
            raise InvalidInput(words, names[0])
        return condition

    def names_subjects(self, selection: Mapping[str, str]) -> bool:
        """True if the condition of a selected dimension names subjects."""
        return any(dimension.names_subjects for dimension in self._selected_dimensions(selection))

    def is_apart(self, selection: Mapping[str, str]) -> bool:
        """True if a selected dimension is counted apart."""
        return any(dimension.is_apart for dimension in self._selected_dimensions(selection))

    def _selected_dimensions(self, selection: Mapping[str, str]) -> list[Dimension]:
        return [dimension for dimension in self.dimensions if dimension.name in selection]
