"""Failures: messages that will not be tried any more, as the page Failures lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from msgplatform.core.flows.text import Text
from msgplatform.core.flows.view_link import ViewLink

MAX_FAILURES = 200  # that one flow lists: those with the most messages


@dataclass(frozen=True)
class Button:
    """A button that acts at once: a POST to the console's page named `view` with the subject as its
    argument, which goes back to the page in the field `next`. For people with `permission`."""

    title: Text
    view: str
    permission: str


@dataclass(frozen=True)
class Failure:
    """Messages that failed at one place with one answer; nobody has sent them again or acknowledged
    them.

    `id` is its row's; `lost` and `last_at` say what a person has seen who acknowledges it.
    """

    id: int
    subject: int  # a stable number of the place, such as a subscription's id
    where: Text  # the place's name
    answer: Text  # "HTTP 503", "timeout"
    said: str  # an example of what was answered, '' when nothing is known; a content of its own
    count: int
    lost: int
    since: datetime
    last_at: datetime
    meaning: Text = ""  # of the answer, in our own words: nobody's data
    message: str = ""  # the id of one of the messages, for its page
    where_page: ViewLink | None = None  # the page of the place
    list_page: ViewLink | None = None  # the list of these messages
    action: str = ""  # the bulk action that sends them again; '' when there is none
    filter: Mapping[str, str] = field(default_factory=dict)  # of that action
    # The filter for the failures of this place in the same state, whatever the answer; empty where
    # there is none.
    place_filter: Mapping[str, str] = field(default_factory=dict)
    button: Button | None = None  # acts on the place


@dataclass(frozen=True)
class Runbook:
    """What to do about the alerts of one kind.

    `first` is one sentence: what to look at first. `docs/operations.md` has a paragraph for each
    kind. `view` is the URL name of the page on which to act; its argument, if it `takes_subject`,
    is what follows the kind in the alert's key.
    """

    first: Text
    view: str
    takes_subject: bool = False
    button: Button | None = None
