"""How a flow is doing: for the overview, alerts, the page Failures, `/metrics` and `doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from msgplatform.core.alerts import Condition
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.activity import Activity
from msgplatform.core.flows.metric import Metric, Sample
from msgplatform.core.flows.text import Text, ViewLink


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
    is_quiet: bool = False  # no alert: of a place for development
    system: str = ""  # the business system whose messages these are; '': of several


# How bad the alerts of a kind are: rules send them by it. `critical`: messages are not taken in, or
# may be lost; `info`: to be looked at some day.
Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True)
class Runbook:
    """Where to act on the alerts of one kind.

    `view` is the URL name of the page on which to act; its argument, if it `takes_subject`, is the
    part of the alert's key behind the kind. `model` ("notify.BizReceive") is the model of the row
    with that id, where it belongs to a business system, whose alerts a rule may pick out.
    """

    view: str
    takes_subject: bool = False
    button: Button | None = None
    severity: Severity = "warning"
    model: str = ""


def _none(**_options: object) -> tuple[()]:
    return ()


@dataclass(kw_only=True, eq=False)
class Health:
    """How a flow is doing.

    `read_status` reads the backlog and a few facts; it must be quick (indexed reads only) and may
    raise errors of the database and of Redis. So may all other functions.

    `oldest_waits` are the longest waits for the alerts `platform.backlog`. It is called every few
    seconds, so it reads a bounded number of rows. It leaves out waits that another alert reports
    after the same time.

    `conditions` are the conditions that need somebody now, of the kinds in `condition_kinds`: one
    daemon of the platform asks every few seconds, and raises and resolves the alerts. Bounded,
    indexed reads.

    `failures` are messages that will not be tried any more, and are neither resent nor
    acknowledged: at most MAX_FAILURES, or `limit`, the largest first. Indexed reads only
    (`monitor/failure_store.py`).

    `metrics` gives samples of `declared_metrics` for `/metrics`; it reads a bounded number of rows.
    `examine` gives the lines of `doctor`'s report.
    """

    read_status: Callable[[], Status]
    metrics: Callable[[], Iterable[Sample]]
    declared_metrics: Iterable[Metric] = ()
    oldest_waits: Callable[[], Iterable[Wait]] = _none
    conditions: Callable[[], Iterable[Condition]] = _none
    condition_kinds: Sequence[str] = ()
    failures: Callable[..., Sequence[Failure]] = _none
    failures_alert: str = ""  # the kind of alert that reports failures; '': `<name>.failures`
    has_failures_of_systems: bool = False  # each group has `system`; else they are of all systems
    failures_note: Text = ""  # a sentence about messages that are no failures of the page Failures
    examine: Callable[[], Iterable[Finding]] = _none
    activity: Activity | None = None  # counters for charts and statistics
    runbooks: Mapping[str, Runbook] = field(default_factory=dict)  # by the kind of an alert
    runbook_texts: Path | None = None  # the sections of these kinds

    def status(self) -> Status:
        """Backlog and facts, or the problem why they cannot be read; never raises for a server that
        does not answer."""
        try:
            return self.read_status()
        except UNAVAILABLE as error:
            return Status(0, None, problem=str(error)[:200])
