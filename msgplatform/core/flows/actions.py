"""Actions on many messages, and on one: which ones, what is done, what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.flows.bulk_pages import (
    BulkCursor,
    Counted,
    Described,
    Page,
    Preview,
    Tally,
    count_pages,
    tally,
)
from msgplatform.core.flows.messages import Fields
from msgplatform.core.flows.page import Hit
from msgplatform.core.flows.text import Text

# Called with the ids that a step is about; see `BulkAction.step`.
Note = Callable[[Iterable[int | str]], None]
Filter = Mapping[str, Any]
# The end of a message that was resent.
Ending = Literal["arrived", "failed", "waiting"]


def unnoted(_ids: Iterable[int | str]) -> None:
    """For a step whose ids are not needed."""


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


@dataclass(frozen=True)
class Applied:
    """How many messages of a page an action has changed.

    `made` are the ids of new messages, for an action that makes some: their outcome is shown. With
    `must_wait` the action stopped before one that cannot be done today; `position` is behind the
    last one that was done, '' when none was.
    """

    done: int
    left_because: str = ""
    made: Sequence[str] = ()
    must_wait: bool = False
    position: str = ""


class Selection(Protocol):
    """The messages that a filter means for an action, in a fixed order; none that came after the
    job began, so that it has an end. A page that is repeated changes nothing twice."""

    def page(self, position: str, limit: int) -> Page: ...
    def apply(self, ids: Sequence[int]) -> Applied: ...


@dataclass(frozen=True)
class Resent:
    """The answer when one message was resent from its page.

    `count` recipients are sent it once more; `left` recipients were left alone, because they have
    not ended yet or may not be sent it. `message` is the new message's id, if there is a new one.
    """

    count: int
    left: int = 0
    message: str = ""


def _not_about_one(_id: str, _recipient: str, _by: str) -> tuple[Selection, Sequence[int]]:
    raise InvalidInput("a message of this flow cannot be resent", "id")


@dataclass(kw_only=True, eq=False)
class BulkAction:
    """An action on many messages at once, run as a bulk job; or at once on one.

    `select(filter, begun)` gives the messages that the filter means, without those that changed
    after `begun`. Raises InvalidInput.

    `describe(ids)` gives (id, group, time) for each message of a page, and `show(tally, begun)` the
    preview of what was counted; None: a preview only counts.

    `outcome(ids)` tells what became of the messages that a step noted, some hundred ids; by primary
    key only. A message that is not in the answer is gone, or its outcome is unknown. None: the
    action has no outcome. `lines(ids)` are the lines of these messages, as a search shows them; by
    primary key only. It may raise Unavailable, and errors of the database and of Redis.
    `why_waiting(ids)` are sentences about what keeps them from being sent now; it raises the same.

    `select_message(id, recipient, by)` is for one message and one of its recipients, or with '' all
    that it did not reach; `by` is the user. It gives a selection and the ids to apply. It raises
    what `MessageStore.page` raises, and InvalidInput for a message or a recipient that there is
    not.
    """

    title: Text
    fields: Fields
    select: Callable[[Filter, datetime], Selection]
    help: Text = ""
    required: Sequence[str] = ()  # fields that may not be empty
    describe: Callable[[Sequence[Any]], Described[Any]] | None = None
    show: Callable[[Tally[Any], datetime], Preview] | None = None
    outcome: Callable[[Sequence[str]], Mapping[str, Ending]] | None = None
    lines: Callable[[Sequence[str]], Sequence[Hit]] = lambda _ids: ()
    why_waiting: Callable[[Sequence[str]], Sequence[str]] = lambda _ids: ()
    has_message_ids: bool = False  # True if its field `ids` takes ids of messages
    makes_messages: bool = False  # `Applied.made` are the messages whose outcome is shown
    select_message: Callable[[str, str, str], tuple[Selection, Sequence[int]]] = _not_about_one

    @property
    def is_resend(self) -> bool:
        """True if it resends one message from its page."""
        return self.select_message is not _not_about_one

    def count(self, filter: Filter) -> Counted:
        """How many messages the action would change, to a bound. Raises InvalidInput."""
        return count_pages(self.select(filter, sql.now()).page)

    def preview(self, filter: Filter) -> Preview:
        """The messages that the action would change now, counted within about two seconds. Raises
        InvalidInput."""
        started_at = sql.now()
        if self.describe is None or self.show is None:
            return Preview(self.count(filter), cursor=BulkCursor(started_at).start())
        return self.show(tally(self.select(filter, started_at).page, self.describe), started_at)

    def step(self, filter: Filter, cursor: str, limit: int, note: Note = unnoted) -> Step:
        """Apply the action to about the next `limit` messages after `cursor`; a step may be
        repeated.

        It calls `note(ids)` for messages whose outcome is to be shown later: before it changes
        them, or after it made them. A repeated step need not report ids again.
        """
        if not cursor:
            # Only where it begins: what comes later is not the job's. A wrong filter is refused.
            self.select(filter, sql.now())
            return Step(BulkCursor.begin(), 0)
        at = BulkCursor.read(cursor)
        selection = self.select(filter, at.begun)
        page = selection.page(at.position, limit)
        if not page.ids:
            return Step(at.moved_to(page.position), 0)
        if self.outcome and not self.makes_messages:
            note(page.ids)
        result = selection.apply(page.ids)
        if self.makes_messages:
            note(result.made)
        if result.must_wait:
            following = at.moved_to(result.position) if result.position else cursor
            return Step(following, result.done, result.left_because, must_wait=True)
        return Step(at.moved_to(page.position), result.done, result.left_because)

    def resend(self, id: str, recipient: str, by: str) -> Resent:
        """One message, at once: the step of a job of one id. Raises what `select_message` raises,
        and NotNow for a message that intake refuses."""
        selection, ids = self.select_message(id, recipient, by)
        if not ids:
            return Resent(0)
        result = selection.apply(ids)
        if result.left_because:
            raise NotNow(result.left_because)
        return Resent(result.done, len(ids) - result.done, "".join(result.made[-1:]))
