"""The messages of a flow: the fields by which people search them, the line and the page of one.

A flow declares a `MessageStore`. A filter is a mapping of field names to texts, as they stand in an
address; the flow reads the texts, and a `FilterField` says only how people enter them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from django.db.models import Model
from django.urls import reverse

from msgplatform.core.flows.text import Text

MAX_OPTIONS = 20  # that one answer to a few typed letters has


@dataclass(frozen=True)
class Option:
    """A value that a field may hold, such as orders/warehouse, and the name that people know."""

    value: str
    label: Text = ""


@dataclass(frozen=True)
class FilterField:
    """One field: a text, one of a few choices, a time, a list of ids, or the name of something.

    `choices` are (value, label). `options` gives up to MAX_OPTIONS things that have the typed text
    in their name, read by an index or from a small table.
    """

    label: Text
    help: Text = ""
    kind: Literal["text", "choice", "time", "ids", "name"] = "text"
    choices: Sequence[tuple[str, Text]] = ()
    nothing: Text = ""  # the label of no choice; '': any of them
    options: Callable[[str], Sequence[Option]] | None = None
    # The field asks for data that is masked for people who may not see personal data. These people
    # could guess it by searching, so the field is not for them.
    personal: bool = False


Fields = Mapping[str, FilterField]


def personal_names(fields: Fields) -> set[str]:
    """The fields that are only for people who may see personal data."""
    return {name for name, field in fields.items() if field.personal}


@dataclass(frozen=True)
class Hit:
    """One line of a search result. `id` is a string: JavaScript rounds beyond 2^53."""

    id: str
    title: str
    state: str
    at: datetime | None  # None when there is no such time
    biz: str = ""
    # For people who may not see personal data, when the title has some.
    masked_title: str = ""
    link: str = ""  # for what is no message: the address of its page


@dataclass(frozen=True)
class Found:
    """A page of a structured search, newest first. `cursor` is '' on the last one."""

    hits: Sequence[Hit]
    cursor: str = ""
    notice: str = ""  # a sentence when hits may be missing: "The archive cannot be read"


# Colours of states, as the console's style sheet names them.
Tone = Literal["good", "warn", "bad", "plain"]


@dataclass(frozen=True)
class PageLink:
    """A text that leads to a page of the console, for whoever has the permission, or all of
    several between spaces ('': everybody who sees the text)."""

    text: str
    url: str
    permission: str = ""

    @classmethod
    def to(cls, row: Model, text: str = "") -> PageLink:
        """The page of a row in the console."""
        names = row._meta.app_label, row._meta.model_name
        url = reverse(f"admin:{names[0]}_{names[1]}_change", args=[row.pk])
        return cls(text or str(row), url, f"{names[0]}.view_{names[1]}")

    def __str__(self) -> str:
        return self.text


Value = str | PageLink


@dataclass(frozen=True)
class TextFound:
    """A piece of a search through texts, newest first. `cursor` is '' when all were looked at.

    `looked` says in a sentence how far it looked: "Back to 14:02.".
    """

    hits: Sequence[Hit]
    cursor: str = ""
    looked: str = ""


@dataclass(frozen=True)
class TimelineEntry:
    at: datetime | None
    title: str
    state: str
    detail: Value = ""
    body: str = ""  # what was sent, or what the other side said, such as a response's beginning


@dataclass(frozen=True)
class Call:
    """An HTTP request that a person can repeat from a command line; never with a secret in it.

    A `url` that begins with a slash is an address of the platform.
    """

    title: Text
    url: str
    headers: Mapping[str, str]
    body: str
    method: str = "POST"
    note: Text = ""  # what has to be filled in
    permission: str = ""  # who may see it; '': whoever sees the message


@dataclass(frozen=True)
class Section:
    """A part of a request or an answer, as text or as JSON."""

    title: Text
    body: str


@dataclass(frozen=True)
class Attempt:
    """One try for one recipient, with its answer as far as it is kept."""

    at: datetime | None
    title: str
    answer: str
    tone: Tone
    seconds: float | None = None
    detail: Value = ""
    sections: Sequence[Section] = ()


@dataclass(frozen=True)
class Recipient:
    """One of those whom a message is for, and how it stands there.

    `why` is a sentence about what keeps it there, `next_at` when it is tried next. `attempts` are
    the newest ones, newest first. `again` says what sending it again does; '' when it cannot be
    sent again from here.
    """

    id: str  # as `BulkAction.resend` takes it
    name: Value
    state: str
    tone: Tone
    since: datetime | None = None
    why: str = ""
    next_at: datetime | None = None
    facts: Mapping[str, Value] = field(default_factory=dict)
    attempts: Sequence[Attempt] = ()
    attempts_title: Text = ""
    notes: Sequence[str] = ()  # what is not kept, or is not known at present
    again: str = ""
    call: Call | None = None


@dataclass(frozen=True)
class Page:
    """One message with everything that happened to it, for its page in the console.

    `recipients` are the first ones, those that failed before the others; `cursor` leads to the next
    ones, '' when there are none. `nobody` are sentences, and what to do, when it has no recipient.
    `again` says what sending it again to everybody does whom it did not reach; '' when that is
    nobody, or the only recipient.
    """

    id: str
    title: str
    facts: Mapping[str, Value]
    body: str
    timeline: Sequence[TimelineEntry]
    recipients: Sequence[Recipient] = ()
    recipients_title: Text = ""
    recipients_note: Text = ""  # a sentence that holds for all of them
    headline: Text = ""  # what became of it, in a sentence: "Delivered to 6 of 6 in 0.4 s"
    cursor: str = ""
    nobody: Sequence[Value] = ()
    notices: Sequence[str] = ()  # what is not known at present
    again: str = ""
    call: Call | None = None
    has_file: bool = False  # whether the whole content can be downloaded: `MessageStore.file`
    masked_title: str = ""  # as in `Hit`


@dataclass(frozen=True)
class File:
    """The whole content of one message, to be downloaded."""

    name: str
    media_type: str
    content: bytes


class _Search(Protocol):
    def __call__(self, query: str, limit: int, personal: bool = True, /) -> list[Hit]: ...


class _Page(Protocol):
    def __call__(self, id: str, after: str = "", /) -> Page | None: ...


def _nothing_in_texts(_query: str, _since: datetime, _cursor: str, _seconds: float) -> TextFound:
    return TextFound([])


def _no_warning() -> str:
    return ""


def _no_file(_id: str) -> File | None:
    return None


@dataclass(kw_only=True, eq=False)
class MessageStore:
    """The messages of a flow, for the console's search, list and page.

    `search(query, limit, personal)` finds messages by an id, a key, a number or a type; newest
    first. Without `personal` it uses nothing that is masked for people who may not see personal
    data.

    `find(filter, cursor, limit)` finds messages that match all fields of the filter; newest first,
    page by page. A page may hold fewer than `limit` and still have a next one. Raises InvalidInput
    naming the field, or "cursor".

    `page(id, after)` is one message, its recipients and its timeline, or None when this flow does
    not know the id. `after` is the cursor of the page with the recipients before. Raises
    Unavailable when the message may be in a store that cannot be read at present, and InvalidInput
    for a wrong cursor. `file(id)` is the whole content of a message; it raises what `page` raises.

    `search_text(query, since, cursor, seconds)` finds messages accepted at `since` or later that
    hold the text, and messages that no index finds by it, such as messages in flight by their
    number. Newest first, piece by piece: a piece takes about as many seconds. Raises InvalidInput
    naming "cursor".
    """

    fields: Fields
    search: _Search
    find: Callable[[Mapping[str, str], str, int], Found]
    page: _Page
    file: Callable[[str], File | None] = _no_file
    search_text: Callable[[str, datetime, str, float], TextFound] = _nothing_in_texts
    searched_text_label: Text = ""  # the texts of `search_text`: "payloads and answers"
    # A sentence when a part of the messages cannot be searched at present, else ''.
    search_warning: Callable[[], str] = _no_warning
