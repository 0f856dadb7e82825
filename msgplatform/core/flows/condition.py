"""How a flow is doing: for the overview, alerts and `doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from msgplatform.core.flows.text import Text
from msgplatform.core.flows.view_link import ViewLink


@dataclass(frozen=True)
class Status:
    """A flow's state for the overview: work waiting, the age of the oldest, a few facts.

    `oldest_by` is the age in seconds of the oldest due message of each group of the flow's first
    dimension (`Activity.dimensions`), by the group's key.
    """

    backlog: int
    oldest_seconds: float | None
    facts: Mapping[str, int | float | str] = field(default_factory=dict)
    oldest_by: Mapping[str, float] = field(default_factory=dict)
    # Facts that need somebody: their name → the page on which to act.
    bad: Mapping[str, ViewLink] = field(default_factory=dict)
    problem: str = ""  # a sentence when something cannot be read, e.g. Redis does not answer

    @property
    def figures(self) -> list[tuple[str, int | float | str, ViewLink | None]]:
        """Facts with the page on which to act, None where nothing is to be done."""
        return [(name, value, self.bad.get(name)) for name, value in self.facts.items()]


@dataclass(frozen=True)
class Wait:
    """The longest wait among the messages that wait for the same thing, such as a gateway.

    `which` is a stable name of that thing; `what` is for people: "… has waited since …".
    """

    which: str
    what: Text
    since: datetime


@dataclass(frozen=True)
class Finding:
    """A line of `doctor`'s report; `repair` is a line to run or a variable to set."""

    level: Literal["ok", "warn", "bad"]
    what: str
    repair: str = ""
