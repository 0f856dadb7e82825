"""Actions on many messages or one: the selection, the change, the outcome."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.flows import bulk_pages
from msgplatform.core.flows.bulk_pages import BulkCursor, Counted, Described, Page, Preview, Tally
from msgplatform.core.flows.messages import Fields
from msgplatform.core.flows.page import Hit
from msgplatform.core.flows.text import Text

# Called with the ids of a step; see `BulkAction.step`.
Note = Callable[[Iterable[int | str]], None]
Filter = Mapping[str, Any]
# The end of a message that was resent.
Ending = Literal["arrived", "failed", "waiting"]


class Step(msgspec.Struct, frozen=True):
    """The result of a step of a bulk action; `cursor` is '' at the end.

    `left_because` says why some messages were left alone. With `waits_because` the step stopped at
    a message that cannot be changed today, for this reason. The job is paused, and the cursor is
    after the changed messages.
    """

    cursor: str
    done: int
    left_because: str = ""
    waits_because: str = ""


class Applied(msgspec.Struct, frozen=True):
    """The result of an action on a page: `done` is the number of changed messages.

    `made` are the ids of new messages, if the action makes messages: their outcome is shown.
    With `waits_because` the action stopped at a message that cannot be changed today, for this
    reason; `position` is after the last changed message, '' if no message was changed.
    """

    done: int
    left_because: str = ""
    made: Sequence[str] = ()
    waits_because: str = ""
    position: str = ""


class Selection(Protocol):
    """The messages that a filter selects for an action, in a fixed order, without messages that
    came after the job began, so that the job has an end. Repeating a page changes nothing."""

    def page(self, position: str, limit: int) -> Page: ...
    def apply(self, ids: Sequence[int]) -> Applied: ...


class Resent(msgspec.Struct, frozen=True):
    """The result of resending one message from its page.

    `count` recipients get the message again; `left` recipients were left alone, because their
    delivery has not ended or may not be resent. `message` is the id of the new message, if any.
    """

    count: int
    left: int = 0
    message: str = ""


def _refuse_message(_id: str, _recipient: str, _by: str) -> tuple[Selection, Sequence[int]]:
    raise InvalidInput("a message of this flow cannot be resent", "id")


class BulkAction(msgspec.Struct, kw_only=True, eq=False):
    """An action on many messages, run as a bulk job, or on one message, run at once.

    `select(filter, begun)` gives the messages that the filter selects, without messages that
    changed after `begun`. Raises InvalidInput.

    `describe(ids)` gives (id, group, time) for each message of a page, and `show(tally, begun)` the
    preview of the counted messages; None: a preview only counts.

    `outcome(ids)` is the ending of each message that a step noted, some hundred ids; by primary key
    only. A message that is not in the answer was deleted, or its outcome is unknown. None: the
    action has no outcome. `lines(ids)` are the lines of these messages, as a search shows them; by
    primary key only. `lines` may raise Unavailable, and errors of the database and of Redis.
    `why_waiting(ids)` are sentences about the reasons why these messages wait; it raises the same.

    `select_message(id, recipient, by)` gives a selection and the ids to apply for one message and
    one recipient ('': all recipients that it did not reach); `by` is the user. It raises the errors
    of `MessageStore.page`, and InvalidInput for an unknown message or recipient.
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
    select_message: Callable[[str, str, str], tuple[Selection, Sequence[int]]] = _refuse_message

    @property
    def is_resend(self) -> bool:
        """True if the action can resend one message from its page."""
        return self.select_message is not _refuse_message

    def owner_of(self, filter: Filter) -> int | None:
        """The business system to which all messages of the filter belong; None: several, or not
        known. Raises InvalidInput for a value that cannot be read."""
        for owners in self.owner_sets(filter):
            if len(owners) == 1 and owners != {None}:
                return owners.pop()
        return None

    def owner_sets(self, filter: Filter) -> Iterator[set[int | None]]:
        """The business systems of each name in the filter; None stands for all."""
        for name, text in filter.items():
            field = self.fields.get(name)
            if field is not None and field.owners is not None and text:
                yield set(field.owners(field.read(text, name) if field.read else text))

    def count(self, filter: Filter) -> Counted:
        """Count the messages that the action would change, up to a bound. Raises InvalidInput."""
        return bulk_pages.count_ids(self.select(filter, sql.now()).page)

    def preview(self, filter: Filter) -> Preview:
        """The messages that the action would change now, counted within about two seconds. Raises
        InvalidInput."""
        started_at = sql.now()
        if self.describe is None or self.show is None:
            return Preview(self.count(filter), cursor=BulkCursor(started_at).start())
        read_page = self.select(filter, started_at).page
        return self.show(bulk_pages.count_groups(read_page, self.describe), started_at)

    def step(self, filter: Filter, cursor: str, limit: int, note: Note = lambda _ids: None) -> Step:
        """Apply the action to about the next `limit` messages after `cursor`; a step may be
        repeated.

        The step calls `note(ids)` for messages whose outcome is shown later: before changing them,
        or after making them. A repeated step need not report ids again.
        """
        if not cursor:
            # The first step only checks the filter, and stores the time: later messages are not the
            # job's.
            self.select(filter, sql.now())
            return Step(BulkCursor(sql.now()).start(), 0)
        place = BulkCursor.read(cursor)
        selection = self.select(filter, place.begun)
        page = selection.page(place.position, limit)
        if not page.ids:
            return Step(place.moved_to(page.position), 0)
        if self.outcome and not self.makes_messages:
            note(page.ids)
        result = selection.apply(page.ids)
        if self.makes_messages:
            note(result.made)
        if result.waits_because:
            next_cursor = place.moved_to(result.position) if result.position else cursor
            return Step(next_cursor, result.done, result.left_because, result.waits_because)
        return Step(place.moved_to(page.position), result.done, result.left_because)

    def resend(self, id: str, recipient: str, by: str) -> Resent:
        """Resend one message at once, like a step of a job with one id. Raises the errors of
        `select_message`, and NotNow for a message that intake refuses."""
        selection, ids = self.select_message(id, recipient, by)
        if not ids:
            return Resent(0)
        result = selection.apply(ids)
        if reason := result.left_because or result.waits_because:
            raise NotNow(reason)
        return Resent(result.done, len(ids) - result.done, "".join(result.made[-1:]))
