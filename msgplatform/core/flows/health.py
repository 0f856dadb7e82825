"""The state of a flow, for the overview, alerts, the page Failures, `/metrics` and `doctor`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from msgplatform.core.alerts import Condition
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.activity import Activity
from msgplatform.core.flows.metric import Metric, Sample
from msgplatform.core.flows.text import Text, ViewLink


class Status(msgspec.Struct, frozen=True):
    """A flow's state for the overview: the backlog, its oldest age, a few facts.

    `oldest_by` is the age in seconds of the oldest due message of each group of the flow's first
    dimension (`Activity.dimensions`), by the group's key.
    """

    backlog: int
    oldest_seconds: float | None
    facts: Mapping[str, int | float | str] = msgspec.field(default_factory=dict)
    oldest_by: Mapping[str, float] = msgspec.field(default_factory=dict)
    # Names of facts that need a person → the page on which to act.
    bad: Mapping[str, ViewLink] = msgspec.field(default_factory=dict)
    problem: str = ""  # a sentence when something cannot be read, e.g. Redis does not answer

    @property
    def figures(self) -> list[tuple[str, int | float | str, ViewLink | None]]:
        """Facts with the page on which to act, None where nothing is to be done."""
        return [(name, value, self.bad.get(name)) for name, value in self.facts.items()]


class Wait(msgspec.Struct, frozen=True):
    """The longest wait of messages for the same cause, such as a gateway.

    `which` is a stable name of the cause; `what` is for people: "… has waited since …".
    """

    which: str
    what: Text
    since: datetime


class Finding(msgspec.Struct, frozen=True):
    """A line of `doctor`'s report; `repair` is a line to run or a variable to set."""

    level: Literal["ok", "warn", "bad"]
    what: str
    repair: str = ""


MAX_FAILURES = 200  # groups that a flow lists: with the most messages


class Button(msgspec.Struct, frozen=True):
    """A button that acts at once, for people with `permission`: a POST to the console's view `view`
    with the subject as argument, which redirects to the page in the field `next`."""

    title: Text
    view: str
    permission: str


class Failure(msgspec.Struct, frozen=True):
    """Messages that failed at one place with one answer, and were neither resent nor acknowledged.

    `id` is the row's id; `lost` and `last_at` tell which failures an acknowledging person has seen.
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
    action: str = ""  # the bulk action that resends them, or ''
    filter: Mapping[str, str] = msgspec.field(default_factory=dict)  # of the bulk action
    # The filter for the place's failures in the same state with any answer; empty if there is none.
    place_filter: Mapping[str, str] = msgspec.field(default_factory=dict)
    button: Button | None = None  # acts on the place
    is_quiet: bool = False  # no alert: of a place for development
    system: str = ""  # the business system whose messages these are; '': of several


# The severity of a kind of alert, for rules. `critical`: messages are not accepted, or may be lost;
# `info`: not urgent.
Severity = Literal["info", "warning", "critical"]


class Runbook(msgspec.Struct, frozen=True):
    """The place to act on alerts of one kind.

    `view` is the URL name of the page on which to act; if `takes_subject`, the part of the alert's
    key after the kind is its argument. `model` ("notify.BizReceive") is the model of the row with
    this id, if rows belong to business systems, so that rules can select a system's alerts.
    """

    view: str
    takes_subject: bool = False
    button: Button | None = None
    severity: Severity = "warning"
    model: str = ""


class Health(msgspec.Struct, kw_only=True, eq=False):
    """The state of a flow.

    `read_status` reads the backlog and a few facts; it must be quick (indexed reads only) and may
    raise errors of the database and of Redis. So may all other functions.

    `oldest_waits` are the longest waits for the alerts `platform.backlog`. The watch calls it every
    few seconds, so it must read a bounded number of rows. Waits that another alert reports after
    the same time are left out.

    `conditions` are the conditions that need a person now, of the kinds in `condition_kinds`: the
    watch asks every few seconds, and raises and resolves the alerts. Bounded, indexed reads.

    `failures` are messages without further tries that were neither resent nor acknowledged: at most
    MAX_FAILURES, or `limit`, the largest first. Indexed reads only (`monitor/failure_store.py`).

    `metrics` gives samples of `declared_metrics` for `/metrics`; it reads a bounded number of rows.
    `examine` gives the lines of `doctor`'s report.
    """

    read_status: Callable[[], Status]
    metrics: Callable[[], Iterable[Sample]]
    declared_metrics: Iterable[Metric] = ()
    oldest_waits: Callable[[], Iterable[Wait]] = tuple
    conditions: Callable[[], Iterable[Condition]] = tuple
    condition_kinds: Sequence[str] = ()
    failures: Callable[..., Sequence[Failure]] = lambda **_limit: ()
    failures_alert: str = ""  # the kind of alert that reports failures; '': `<name>.failures`
    has_failures_of_systems: bool = False  # each group has `system`; else groups are of all systems
    failures_note: Text = ""  # a sentence about messages that are no failures of the page Failures
    examine: Callable[[], Iterable[Finding]] = tuple
    activity: Activity | None = None  # counters for charts and statistics
    runbooks: Mapping[str, Runbook] = msgspec.field(default_factory=dict)  # by the kind of an alert
    runbook_texts: Path | None = None  # the sections of these kinds

    def status(self) -> Status:
        """Backlog and facts, or the problem of reading them. A server that does not answer is such
        a problem, never an exception."""
        try:
            return self.read_status()
        except UNAVAILABLE as error:
            return Status(0, None, problem=str(error)[:200])
