"""The counters of a flow and their groups, for the charts of the overview and the page of
statistics.

The counters themselves are the platform's (`MinuteCounter` and `DayCounter` in its models); a flow
says what their names mean. All reading is in `msgplatform/monitor/statistics/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from django.db.models import Q
from django.utils.translation import gettext

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.text import Text

Counts = Mapping[str, int]  # name of a counter → its sum
SYSTEM = "system"  # the dimension that can be combined with every other one
# The meaning of a measure for people: its colour, and the rank in lists.
Tone = Literal["accepted", "good", "lost", "bad", "plain"]


class Key(NamedTuple):
    """The identity of a counter: business system, subject (0: none) and name."""

    biz: int
    subject: int
    name: str


@dataclass(frozen=True)
class Measure:
    """The sum of some counters: a column of statistics.

    The tone `good` is for what was delivered and `lost` for failures: each flow has one of
    each. `bad` is for attempts that failed, and may be tried again.
    """

    name: str
    title: Text
    counters: Collection[str]
    tone: Tone = "plain"
    is_live: bool = False  # it comes from `Activity.live`: known of the last day only

    def of(self, counts: Counts) -> int:
        return sum(counts.get(name, 0) for name in self.counters)


@dataclass(frozen=True)
class Figure:
    """A number computed from counters, such as a percentile; None when nothing was counted."""

    name: str
    title: Text
    counters: Collection[str]
    of: Callable[[Counts], float | None]
    unit: Literal["seconds", "number"] = "seconds"
    # The bounds between which the number lies where they are too far apart for one number; else
    # None. The upper one may be infinite.
    span: Callable[[Counts], tuple[float, float] | None] = lambda counts: None


@dataclass(frozen=True)
class Group:
    """One value of a dimension, such as a subscription. `url` is its page, '' without one."""

    key: str
    title: str
    url: str = ""


class Dimension(ABC):
    """How counters are grouped: by subscription, gateway, CRM, topic."""

    name: str  # in addresses and files
    title: Text
    # The foreign key by which its rows are found while one types ("notify.ReceiveMsg.biz_receive"),
    # or '' when `choices` are few enough to be shown in full.
    relation: str = ""
    # True if `narrow` names subjects: an index has their counters together.
    names_subjects: bool = False
    uncounted: Collection[str] = ()  # names of measures that are not counted under it
    permission: str = ""  # to open the pages of its groups
    # Each message is counted under this dimension a second time, with negative subjects.
    is_apart: bool = False

    @abstractmethod
    def keys_of(self, counter_keys: Collection[Key]) -> Mapping[Key, str]:
        """The key of the group to which each counter belongs, without counters of no group. At most
        one statement, however many counters there are."""

    @abstractmethod
    def named(self, keys: Collection[str]) -> Mapping[str, Group]:
        """The groups that still exist, by their keys. At most one statement."""

    def groups(self, counter_keys: Collection[Key]) -> Mapping[Key, Group]:
        """The group of each counter. A deleted group keeps its counts, under its key."""
        keys = self.keys_of(counter_keys)
        named = self.named(set(keys.values()))
        return {counter: named.get(key, Group(key, key)) for counter, key in keys.items()}

    @abstractmethod
    def narrow(self, key: str) -> Q:
        """The counters of one group, as a filter. Raises InvalidInput."""

    def choices(self) -> Sequence[tuple[str, Text]]:
        """Every group, as (key, title)."""
        return ()


@dataclass(frozen=True)
class Activity:
    """How the counters of a flow are read.

    `counters` is their `flow`. The first dimension is the one to which trouble belongs: the
    overview names its groups. `answer` gives the title of a counter of failed attempts (an HTTP
    status, a class of error), '' for other counters. `live` returns counts of the last day by
    minute that are not in the database; it may raise errors of Redis.
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
        """True if each counter is of a business system."""
        return any(dimension.name == SYSTEM for dimension in self.dimensions)

    def total(self, tone: Tone, counts: Counts) -> int:
        """The sum of all measures of this tone."""
        return sum(measure.of(counts) for measure in self.measures if measure.tone == tone)

    def uncounted(self, selection: Mapping[str, str]) -> set[str]:
        """The names of the measures that are not counted for the selected groups."""
        dimensions = self._selected_dimensions(selection)
        return {name for dimension in dimensions for name in dimension.uncounted}

    def success(self, counts: Counts) -> float | None:
        """Delivered, of all that ended, 0 to 1; None when nothing did."""
        good, lost = self.total("good", counts), self.total("lost", counts)
        return good / (good + lost) if good + lost else None

    def condition(self, selection: Mapping[str, str]) -> Q:
        """The counters of the selected groups (dimension → key), as a filter. Raises
        InvalidInput."""
        condition, dimensions = Q(), self._selected_dimensions(selection)
        for dimension in dimensions:
            condition &= dimension.narrow(selection[dimension.name])
        others = [one for one in dimensions if not one.is_apart and one.name != SYSTEM]
        if others and self.is_apart(selection):
            raise InvalidInput(
                gettext("This is counted for each alone: choose one of them."), others[0].name
            )
        return condition

    def names_subjects(self, selection: Mapping[str, str]) -> bool:
        """True if the condition of a selected dimension names subjects."""
        return any(one.names_subjects for one in self._selected_dimensions(selection))

    def is_apart(self, selection: Mapping[str, str]) -> bool:
        """True if a selected dimension is counted apart."""
        return any(one.is_apart for one in self._selected_dimensions(selection))

    def _selected_dimensions(self, selection: Mapping[str, str]) -> list[Dimension]:
        return [one for one in self.dimensions if one.name in selection]
