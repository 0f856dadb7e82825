"""What a flow counts, and how that is grouped: for the charts of the overview and for the
page of statistics.

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
# The counters in which each message counts once: those of a dimension that is counted apart have
# negative subjects.
WHOLE = Q(subject__gte=0)
SYSTEM = "system"  # the dimension that can be combined with every other one
# What a measure means for the people who look at it: its colour, and what lists are ranked by.
Tone = Literal["accepted", "good", "lost", "bad", "plain"]


class Key(NamedTuple):
    """What a counter is about: business system, subject (0: none) and name."""

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
    # Whether `narrow` names subjects: an index has their counters together.
    names_subjects: bool = False
    without: Collection[str] = ()  # measures that are not counted under it
    permission: str = ""  # to open the pages of its groups
    # Each message is counted under this dimension a second time, with negative subjects.
    is_apart: bool = False

    @abstractmethod
    def keys_of(self, counted: Collection[Key]) -> Mapping[Key, str]:
        """The key of the group to which each counter belongs; those that belong to none are left
        out. At most one statement, however many counters there are."""

    @abstractmethod
    def named(self, keys: Collection[str]) -> Mapping[str, Group]:
        """The groups that are there still, by their keys. At most one statement."""

    def groups(self, counted: Collection[Key]) -> Mapping[Key, Group]:
        """The group of each counter. One that was deleted keeps its counts, under its key."""
        keys = self.keys_of(counted)
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
    def stored(self) -> list[Measure]:
        """The measures whose counters are in the database."""
        return [measure for measure in self.measures if not measure.is_live]

    def counted(self, tone: Tone, counts: Counts) -> int:
        """The sum of all measures of this tone."""
        return sum(measure.of(counts) for measure in self.measures if measure.tone == tone)

    def without(self, chosen: Mapping[str, str]) -> set[str]:
        """The measures that are not counted for the chosen groups."""
        return {name for one in self._wanted(chosen) for name in one.without}

    def success(self, counts: Counts) -> float | None:
        """Delivered, of all that ended, 0 to 1; None when nothing did."""
        good, lost = self.counted("good", counts), self.counted("lost", counts)
        return good / (good + lost) if good + lost else None

    def narrowed(self, chosen: Mapping[str, str]) -> Q:
        """The counters of the chosen groups (dimension → key). Raises InvalidInput."""
        found, wanted = Q(), self._wanted(chosen)
        for dimension in wanted:
            found &= dimension.narrow(chosen[dimension.name])
        others = [one for one in wanted if not one.is_apart and one.name != SYSTEM]
        if others and self.is_apart(chosen):
            raise InvalidInput(
                gettext("This is counted for each alone: choose one of them."), others[0].name
            )
        return found

    def names_subjects(self, chosen: Mapping[str, str]) -> bool:
        return any(one.names_subjects for one in self._wanted(chosen))

    def is_apart(self, chosen: Mapping[str, str]) -> bool:
        """Whether a group is chosen that is counted apart."""
        return any(one.is_apart for one in self._wanted(chosen))

    def _wanted(self, chosen: Mapping[str, str]) -> list[Dimension]:
        return [one for one in self.dimensions if one.name in chosen]
