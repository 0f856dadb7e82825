"""The line of a message in a list, and its page."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, Self

import msgspec
from django.db.models import Model
from django.urls import reverse

from msgplatform.core.flows.text import Text

# Colours of states, by their names in the console's style sheet.
Tone = Literal["good", "warn", "bad", "plain"]


class Hit(msgspec.Struct, frozen=True):
    """A line of a search result. `id` is a string, because JavaScript rounds integers beyond
    2^53."""

    id: str
    title: str
    state: str
    at: datetime | None  # None: no such time
    biz: str = ""
    # The title for people who may not see personal data, if the title has personal data.
    masked_title: str = ""
    link: str = ""  # the address of the page, for other objects than messages
    tone: Tone = "plain"
    reason: str = ""  # below the state: what went wrong
    duration: str = ""  # below the time: "ended after 3 s"
    details: str = ""  # below the system, such as its account and the gateway


class SearchResult(msgspec.Struct, frozen=True):
    """A page of messages that match a filter, newest first. `cursor` is '' on the last page."""

    hits: Sequence[Hit]
    cursor: str = ""
    notice: str = ""  # a sentence when hits may be missing: "The archive cannot be read"


class PageLink(msgspec.Struct, frozen=True):
    """A text with a link to a page of the console, for people with the permission, or with all of
    several between spaces ('': all readers of the text)."""

    text: str
    url: str
    permission: str = ""

    @classmethod
    def to(cls, row: Model, text: str = "") -> Self:
        """The page of a row in the console."""
        names = row._meta.app_label, row._meta.model_name
        url = reverse(f"admin:{names[0]}_{names[1]}_change", args=[row.pk])
        return cls(text or str(row), url, f"{names[0]}.view_{names[1]}")

    def __str__(self) -> str:
        return self.text


Value = str | PageLink


class TextSearchResult(msgspec.Struct, frozen=True):
    """A piece of a search through texts, newest first. `cursor` is '' at the end of the search.

    `range_text` is the sentence about the messages that were searched: "Looked at back to 14:02.".
    """

    hits: Sequence[Hit]
    cursor: str = ""
    range_text: str = ""


class TimelineEntry(msgspec.Struct, frozen=True):
    at: datetime | None
    title: str
    state: str
    detail: Value = ""
    body: str = ""  # the content sent or received, such as a response's beginning


class Call(msgspec.Struct, frozen=True):
    """An HTTP request that a person can repeat from a command line, without secrets.

    A `url` with a leading slash is an address of the platform.
    """

    title: Text
    url: str
    headers: Mapping[str, str]
    body: str
    method: str = "POST"
    note: Text = ""  # what has to be filled in
    permission: str = ""  # needed to see it; '': as for the message

    def command(self, platform: str) -> str:
        """The curl command for a POSIX shell, an option on each line; `platform` is the address of
        this platform."""
        url = platform + self.url if self.url.startswith("/") else self.url
        headers = [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in self.headers.items()]
        # --data would read a file if the body begins with @.
        body = [f"--data-raw {shlex.quote(self.body)}"] if self.body else []
        return " \\\n  ".join([f"curl -X {self.method} {shlex.quote(url)}", *headers, *body])

    @classmethod
    def of_intake(cls, title: Text, path: str, body: str, note: Text) -> Self:
        """A request that submits a message again; `note` says which key replaces YOUR_API_KEY."""
        headers = {"Authorization": "Bearer YOUR_API_KEY", "Content-Type": "application/json"}
        return cls(title, path, headers, body, note=note)


class Section(msgspec.Struct, frozen=True):
    """A part of a request or an answer, as text or as JSON."""

    title: Text
    body: str


class Attempt(msgspec.Struct, frozen=True):
    """One try for one recipient, with the kept part of its answer."""

    at: datetime | None
    title: str
    answer: str
    tone: Tone
    seconds: float | None = None
    detail: Value = ""
    sections: Sequence[Section] = ()


class Recipient(msgspec.Struct, frozen=True):
    """A recipient of a message, with the state of its delivery.

    `why` is the reason for this state, a sentence; `next_at` the time of the next attempt.
    `attempts` are the newest attempts, newest first. `resend_effect` is a sentence about the effect
    of resending; '' if the message cannot be resent to this recipient from its page.
    """

    id: str  # the argument of `BulkAction.resend`
    name: Value
    state: str
    tone: Tone
    since: datetime | None = None
    why: str = ""
    masked_why: str = ""  # for people who may not see personal data in `why`
    next_at: datetime | None = None
    facts: Mapping[str, Value] = msgspec.field(default_factory=dict)
    attempts: Sequence[Attempt] = ()
    attempts_title: Text = ""
    notes: Sequence[str] = ()  # what is not kept, or is not known at present
    resend_effect: str = ""
    call: Call | None = None


class Page(msgspec.Struct, frozen=True):
    """A message with all its events, for its page in the console.

    `recipients` are the first recipients, failed deliveries first; `cursor` leads to further
    recipients, '' if there are none. `no_recipient_reasons` are sentences, and links to a repair,
    for a message without recipients. `resend_effect` is a sentence about resending to all
    recipients that the message did not reach; '' if there is no such recipient, or only one
    recipient.
    """

    id: str
    title: str
    facts: Mapping[str, Value]
    body: str
    timeline: Sequence[TimelineEntry]
    recipients: Sequence[Recipient] = ()
    recipients_title: Text = ""
    recipients_note: Text = ""  # a sentence about all recipients
    headline: Text = ""  # the outcome in a sentence: "Delivered to 6 of 6 in 0.4 s"
    cursor: str = ""
    no_recipient_reasons: Sequence[Value] = ()
    notices: Sequence[str] = ()  # what is not known at present
    resend_effect: str = ""
    call: Call | None = None
    has_file: bool = False  # whether the whole content can be downloaded: `MessageStore.file`
    masked_title: str = ""  # as in `Hit`
    trace_id: str = ""  # if `message_trace` has no row of the message yet
    # Further facts by the title of their card: "What the operator got".
    fact_cards: Mapping[str, Mapping[str, Value]] = msgspec.field(default_factory=dict)


class File(msgspec.Struct, frozen=True):
    """The whole content of one message, to be downloaded."""

    name: str
    media_type: str
    content: bytes
