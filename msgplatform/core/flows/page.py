"""The line of a message in a list, and its page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from django.db.models import Model
from django.urls import reverse

from msgplatform.core.flows.text import Text

# Colours of states, as the console's style sheet names them.
Tone = Literal["good", "warn", "bad", "plain"]


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
    tone: Tone = "plain"
    reason: str = ""  # below the state: what went wrong
    duration: str = ""  # below the time: "ended after 3 s"
    details: str = ""  # below the system, such as its account and the gateway


@dataclass(frozen=True)
class SearchResult:
    """One page of messages that match a filter, newest first. `cursor` is '' on the last page."""

    hits: Sequence[Hit]
    cursor: str = ""
    notice: str = ""  # a sentence when hits may be missing: "The archive cannot be read"


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
class TextSearchResult:
    """One part of a search through texts, newest first. `cursor` is '' when the search has ended.

    `range_text` is the sentence about the messages that were searched: "Looked at back to 14:02.".
    """

    hits: Sequence[Hit]
    cursor: str = ""
    range_text: str = ""


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

    def command(self, platform: str) -> str:
        """The curl command for a POSIX shell, an option on each line; `platform` is the address of
        this platform."""
        url = platform + self.url if self.url.startswith("/") else self.url
        headers = [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in self.headers.items()]
        # Not --data, which reads a file when the body begins with @.
        body = [f"--data-raw {shlex.quote(self.body)}"] if self.body else []
        return " \\\n  ".join([f"curl -X {self.method} {shlex.quote(url)}", *headers, *body])

    @classmethod
    def of_intake(cls, title: Text, path: str, body: str, note: Text) -> Call:
        """A message that is handed in once more; `note` says which key stands for YOUR_API_KEY."""
        headers = {"Authorization": "Bearer YOUR_API_KEY", "Content-Type": "application/json"}
        return cls(title, path, headers, body, note=note)


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
    """One recipient of a message, with the state of its delivery.

    `why` is the reason for this state, a sentence; `next_at` the time of the next attempt.
    `attempts` are the newest ones, newest first. `resend_effect` is the sentence about what
    resending does; '' when the message cannot be resent to this recipient from its page.
    """

    id: str  # as `BulkAction.resend` takes it
    name: Value
    state: str
    tone: Tone
    since: datetime | None = None
    why: str = ""
    masked_why: str = ""  # for people who may not see personal data, when `why` may have some
    next_at: datetime | None = None
    facts: Mapping[str, Value] = field(default_factory=dict)
    attempts: Sequence[Attempt] = ()
    attempts_title: Text = ""
    notes: Sequence[str] = ()  # what is not kept, or is not known at present
    resend_effect: str = ""
    call: Call | None = None


@dataclass(frozen=True)
class Page:
    """One message with everything that happened to it, for its page in the console.

    `recipients` are the first ones, failed ones before the others; `cursor` leads to the next ones,
    '' when there are none. `no_recipient_reasons` are sentences, and links to a repair, for a
    message without recipients. `resend_effect` is the sentence about resending to all recipients
    that the message did not reach; '' when there is none, or only one recipient.
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
    no_recipient_reasons: Sequence[Value] = ()
    notices: Sequence[str] = ()  # what is not known at present
    resend_effect: str = ""
    call: Call | None = None
    has_file: bool = False  # whether the whole content can be downloaded: `MessageStore.file`
    masked_title: str = ""  # as in `Hit`
    trace_id: str = ""  # of a message that no row of `message_trace` names yet
    # Further facts by the title of their card: "What the operator got".
    fact_cards: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)


@dataclass(frozen=True)
class File:
    """The whole content of one message, to be downloaded."""

    name: str
    media_type: str
    content: bytes
