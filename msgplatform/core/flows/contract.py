"""The contract that a flow fills in: a subclass of `Flow` in the app's `flow.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from msgplatform.core.alerts import Condition
from msgplatform.core.connections import RedisRole
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.activity import Activity
from msgplatform.core.flows.bulk import (
    BulkAction,
    Counted,
    Ending,
    Note,
    Preview,
    Step,
    unnoted,
)
from msgplatform.core.flows.condition import Finding, Status, Wait
from msgplatform.core.flows.failures import Failure, Runbook
from msgplatform.core.flows.filters import FilterField
from msgplatform.core.flows.finding import File, Found, Hit, Page, SentAgain, TextFound
from msgplatform.core.flows.first_steps import FirstCall, FirstStep, Snippet
from msgplatform.core.flows.metric import Metric, Sample
from msgplatform.core.flows.programs import Daemon
from msgplatform.core.flows.text import Text


@dataclass(frozen=True)
class Link:
    """A page of a flow in the console's side bar, beside the lists of its models."""

    title: Text
    icon: str  # a Material symbol
    view: str  # name of its URL, without arguments
    permissions: Sequence[str]  # whoever has all of them sees it


class DemoRun(Protocol):
    """What the demo gives to a flow: the API's address, a scale, a folder, a way to print."""

    base_url: str
    messages: int
    folder: Any  # pathlib.Path
    timeout: float  # seconds within which everything must be accounted for
    until_end: ExitStack  # closed with the demo: receivers stay as long as the platform runs

    def say(self, text: str) -> None: ...

    def progress(self, flow: str, text: str) -> None:
        """Say how far a flow is, now and then."""

    def start_together(self) -> None:
        """Wait until every flow has made its rows; the traffic begins after it."""

    def trickle(self, name: str, step: Callable[[int], None], seconds: float) -> None:
        """After the accounting, until the demo is stopped: call `step` with 0, 1, 2 … every so many
        seconds, in a thread of its own. A step that raises is called again with its number."""


class Flow(ABC):
    """One kind of message, from intake to archive."""

    name: str
    title: Text
    daemons: Sequence[Daemon] = ()
    urls: str | None = None  # dotted module with the `urlpatterns` that /api/v1/ includes
    root_urls: str | None = None  # the same for addresses outside of /api/, such as /rpc/
    single_intakes: Sequence[str] = ()  # dotted names of its `SingleIntake`s (`api/intake.py`)
    permission: str  # the Django permission to see its messages
    operate: Sequence[str] = ()  # permissions that operators have beside looking (`roles.py`)
    again_permission: str = ""  # the one to send a message again from its page; '': nobody
    bulk_permission: str = ""  # the one to act on many of them at once; '': `again_permission`
    scopes: Mapping[str, str] = {}  # API key scope → what it allows
    management_scopes: Mapping[str, str] = {}  # the same, of keys that manage the platform
    # Scope → permissions without which nobody gives it to a key; of a scope that is not there:
    # `permission`, and the one for personal data.
    scope_permissions: Mapping[str, Sequence[str]] = {}
    # Field of a structured search → how it is entered, or its help text alone.
    search_fields: Mapping[str, FilterField | Text] = {}
    texts: Text = ""  # what `search_text` looks through, such as "payloads and answers"
    bulk_actions: Mapping[str, BulkAction] = {}  # name of the action → what it is
    redis: Sequence[RedisRole] = ()  # servers of its own, beside the work Redis
    queues: Sequence[str] = ()  # its RQ queues that always exist
    only_copies: frozenset[str] = frozenset()  # queues whose orders cannot be made again
    queue_pattern: str = ""  # regular expression for the names of queues that come and go
    icons: Mapping[str, str] = {}  # model → its Material symbol in the console's side bar, in order
    links: Sequence[Link] = ()  # pages of its own in the console's side bar, below its models
    activity: Activity | None = None  # what it counts, for charts and statistics
    runbooks: Mapping[str, Runbook] = {}  # kind of its alerts → what to do about them
    watched_alerts: Sequence[str] = ()  # kinds of the alerts that `conditions` makes
    given_up_alert: str = ""  # the kind that reports what was given up; '': `<name>.given_up`
    failures_note: Text = ""  # what the page Failures does not list, and statistics count
    environment_prefix: str = ""  # of its variables, which the demo does not inherit
    declared_metrics: Iterable[Metric] = ()  # every metric of which `metrics()` may give samples

    def is_bulk_allowed(self, user: Any) -> bool:
        """True if this user may act on many of its messages at once; the permission for bulk jobs
        is asked for beside it."""
        act = self.bulk_permission or self.again_permission
        return bool(self.bulk_actions and act and user.has_perms([self.permission, act]))

    @abstractmethod
    def status(self) -> Status:
        """Backlog and facts; must be quick (indexed reads only) and must not raise."""

    def waits(self) -> Iterable[Wait]:
        """The longest waits for the alerts `platform.backlog`.

        Called every few seconds, so it reads a bounded number of rows. Leaves out waits that
        another alert reports after the same time. May raise errors of the database and of Redis.
        """
        return ()

    def conditions(self) -> Iterable[Condition]:
        """What needs somebody now, of the kinds in `watched_alerts`: one daemon of the platform
        asks every few seconds, and raises and resolves the alerts. Bounded, indexed reads. May
        raise errors of the database and of Redis."""
        return ()

    def failures(self) -> Sequence[Failure]:
        """What was given up, and neither sent again nor acknowledged: at most MAX_FAILURES, the
        largest first. Indexed reads only (`monitor/failure_store.py`). May raise errors of the
        database."""
        return ()

    @abstractmethod
    def search(self, query: str, limit: int, personal: bool = True) -> list[Hit]:
        """Messages that match an id, a key, a number or a type; newest first. Without `personal`
        by nothing that is masked for people who may not see personal data."""

    def search_text(self, query: str, since: datetime, cursor: str, seconds: float) -> TextFound:
        """Messages accepted at `since` or later that hold the text; and those that no index finds
        by it, such as messages in flight by their number. Newest first, piece by piece: a piece
        takes about as many seconds. Raises InvalidInput naming "cursor".
        """
        return TextFound([])

    @abstractmethod
    def page(self, id: str, after: str = "") -> Page | None:
        """One message, its recipients and its timeline, or None when this flow does not know the
        id. `after` is the cursor of the page with the recipients before.

        Raises Unavailable when the message may be in a store that cannot be read at present, and
        InvalidInput for a wrong cursor.
        """

    def send_again(self, id: str, recipient: str, by: str) -> SentAgain:
        """Send a message again, at once: to one of its recipients, or with '' to all that it did
        not reach. `by` is who asked for it.

        Raises what `page` raises, and InvalidInput for a message or a recipient that there is not.
        """
        raise InvalidInput("a message of this flow cannot be sent again", "id")

    def file(self, id: str) -> File | None:
        """The whole content of one message, None for an unknown id. Raises what `page` raises."""
        return None

    def find(self, filter: Mapping[str, str], cursor: str, limit: int) -> Found:
        """Messages that match all of the filter's `search_fields`; newest first, page by page.

        A page may hold fewer than `limit` and still have a next one. Raises InvalidInput naming
        the field, or "cursor".
        """
        raise InvalidInput("this flow has no structured search")

    def notice(self) -> str:
        """A sentence when a part of the messages cannot be searched at present, else ''."""
        return ""

    def bulk_count(self, action: str, filter: Mapping[str, Any]) -> Counted:
        """How many messages the action would change, counted to a bound. Raises InvalidInput."""
        raise InvalidInput("there is no such bulk action", "action")

    def bulk_preview(self, action: str, filter: Mapping[str, Any]) -> Preview:
        """What the action would change now, counted within about two seconds. Raises
        InvalidInput."""
        return Preview(self.bulk_count(action, filter))

    def bulk_step(
        self,
        action: str,
        filter: Mapping[str, Any],
        cursor: str,
        limit: int,
        note: Note = unnoted,
    ) -> Step:
        """Apply the action to about the next `limit` messages after `cursor`; a step may be
        repeated.

        `note` is told the ids for `bulk_outcome`, where the action has one: before they are
        changed, unless a step that is repeated finds the same ones.
        """
        raise InvalidInput("there is no such bulk action", "action")

    def bulk_outcome(self, action: str, ids: Sequence[str]) -> Mapping[str, Ending]:
        """What became of the messages that a step noted, some hundred ids; by primary key only.
        One that is not in the answer is gone, or nobody knows."""
        return {}

    def bulk_hits(self, action: str, ids: Sequence[str]) -> Sequence[Hit]:
        """The lines of these messages, as a search shows them; by primary key only. May raise
        Unavailable, and errors of the database and of Redis."""
        return ()

    def own_processes(self) -> Sequence[Daemon]:
        """Further daemons that people have configured, such as a sender for one subscription; `up`
        asks every few seconds, and starts and stops them. May raise errors of the database."""
        return ()

    def first_steps(self) -> Sequence[FirstStep]:
        """What is set up and sent first, in this order, and what of it is done. Indexed reads
        only; may raise errors of the database and of Redis."""
        return ()

    def first_calls(self) -> Sequence[FirstCall]:
        """The requests that hand over a first message, in this order; their keys need the same
        scope. May raise errors of the database."""
        return ()

    def snippets(self) -> Sequence[Snippet]:
        """Code for those who get its messages: verify(secret, id, timestamp, signature, body)."""
        return ()

    def demo_environment(self) -> Mapping[str, str]:
        """Variables that its part of the demo needs."""
        return {}

    def examine(self) -> Iterable[Finding]:
        """What `doctor` reports about it; may raise errors of the database and of Redis."""
        return ()

    @abstractmethod
    def metrics(self) -> Iterable[Sample]:
        """Samples of `declared_metrics` for `/metrics`. It reads a bounded number of rows."""

    @abstractmethod
    def demo(self, run: DemoRun) -> Mapping[str, Any]:
        """Send real traffic and account for it: at least `accepted` and `lost`. What goes on
        afterwards, so that charts move, it gives to `run.trickle`."""
