"""Actions on many messages: the messages that an action would change, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from msgplatform.core.flows.messages import Fields
from msgplatform.core.flows.page import Hit
from msgplatform.core.flows.text import Text

# Called with the ids that a step is about, before it changes them; see `BulkAction.step`.
Note = Callable[[Iterable[int | str]], None]


def unnoted(_ids: Iterable[int | str]) -> None:
    """For a step whose ids are not needed."""


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


@dataclass(frozen=True)
class Resent:
    """The answer when one message was resent from its page.

    `count` recipients are sent it once more; `left` recipients were left alone, because they have
    not ended yet or may not be sent it. `message` is the new message's id, if there is a new one.
    """

    count: int
    left: int = 0
    message: str = ""


class _StepFunction(Protocol):
    def __call__(
        self, filter: Mapping[str, Any], cursor: str, limit: int, note: Note = unnoted, /
    ) -> Step: ...


@dataclass(kw_only=True, eq=False)
class BulkAction:
    """An action on many messages at once, run as a bulk job.

    `count(filter)` counts the messages that the action would change, to a bound;
    `preview(filter)` shows them within about two seconds. Both raise InvalidInput.

    `step(filter, cursor, limit, note)` applies the action to about the next `limit` messages after
    `cursor`; a step may be repeated. It calls `note(ids)` before it changes messages whose outcome
    is to be shown later; a repeated step need not report ids again.

    `outcome(ids)` tells what became of the messages that a step noted, some hundred ids; by primary
    key only. A message that is not in the answer is gone, or its outcome is unknown. None: the
    action has no outcome. `lines(ids)` are the lines of these messages, as a search shows them; by
    primary key only. It may raise Unavailable, and errors of the database and of Redis.

    `resend(id, recipient, by)` sends one message once more, at once: to one of its recipients, or
    with '' to all that it did not reach. `by` is the user. Raises what `MessageStore.page` raises,
    and InvalidInput for a message or a recipient that there is not. None: the action is not about
    one message.
    """

    title: Text
    fields: Fields
    count: Callable[[Mapping[str, Any]], Counted]
    step: _StepFunction
    help: Text = ""
    required: Sequence[str] = ()  # fields that may not be empty
    preview: Callable[[Mapping[str, Any]], Preview] = None  # type: ignore[assignment]
    outcome: Callable[[Sequence[str]], Mapping[str, Ending]] | None = None
    lines: Callable[[Sequence[str]], Sequence[Hit]] = lambda _ids: ()
    resend: Callable[[str, str, str], Resent] | None = None

    def __post_init__(self) -> None:
        if self.preview is None:
            self.preview = lambda filter: Preview(self.count(filter))
