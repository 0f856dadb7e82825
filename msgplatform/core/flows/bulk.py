"""Actions on many messages at once: what they would change, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from msgplatform.core.flows.filters import FilterField
from msgplatform.core.flows.finding import Hit
from msgplatform.core.flows.text import Text

# Called with the ids that a step is about, before it changes them; see `Flow.bulk_step`.
Note = Callable[[Iterable[int | str]], None]


def unnoted(_ids: Iterable[int | str]) -> None:
    """For a step whose ids nobody wants to know."""


@dataclass(frozen=True)
class BulkAction:
    """An action on many messages at once, run as a bulk job.

    `has_outcome`: what it sends again arrives, or fails once more, and `Flow.bulk_outcome` tells.
    """

    title: Text
    filters: Mapping[str, FilterField | Text]  # filter field → how it is entered, or its help text
    help: Text = ""
    has_outcome: bool = False
    required: Sequence[str] = ()  # filter fields that may not be empty


@dataclass(frozen=True)
class Counted:
    """How many messages a bulk action would change; `more`: the count stopped at its bound."""

    count: int
    more: bool = False


@dataclass(frozen=True)
class PreviewGroup:
    """How many of those counted belong together, such as one subscription and event type."""

    title: str
    count: int


@dataclass(frozen=True)
class Preview:
    """What a bulk action would change now. Groups and times are of those that were counted.

    `pace` is the limit per second of whoever receives all of them, None where there is none.
    `cursor` is where a job begins that changes what was previewed, and nothing that came later.
    """

    counted: Counted
    groups: Sequence[PreviewGroup] = ()
    oldest: datetime | None = None
    newest: datetime | None = None
    sample: Sequence[Hit] = ()
    pace: float | None = None
    cursor: str = ""


@dataclass(frozen=True)
class Step:
    """One step of a bulk action; `cursor` is '' when nothing is left.

    `left_because` says why some of its messages were left alone. A step that `must_wait` stopped
    before one that cannot be done today: the job is paused, and the cursor is behind what was done.
    """

    cursor: str
    done: int
    left_because: str = ""
    must_wait: bool = False


# What became of a message that was sent again.
Ending = Literal["arrived", "failed", "waiting"]
