"""The contract that a flow fills in, and the registry of flows.

Console, `up`, `demo`, `doctor`, `/metrics`, `run_bulk`, the queues and the URL configuration go
through the registry, so a new flow is a new folder and its name in FLOWS. Each app's `flow.py`
subclasses `Flow` and registers an instance in `AppConfig.ready()`; its `settings.py`, if there is
one, is read by the platform's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from django.utils.functional import Promise

from msgplatform.core.connections import WORK, RedisRole
from msgplatform.core.errors import InvalidInput

Text = str | Promise  # a text for people: a string, or one that is translated when it is shown


@dataclass(frozen=True)
class Daemon:
    """A management command that `up` keeps running."""

    command: str
    processes: int = 1
    priority: int = 500  # supervisor's: lower starts first and stops last
    stop_seconds: int = 30  # within which it ends after SIGTERM
    help: str = ""
    arguments: Sequence[str] = ()  # of the command

    @property
    def name(self) -> str:
        """The name of its process and its log: the command and its arguments."""
        words = (word.lstrip("-").replace("=", "-") for word in self.arguments)
        return "-".join([self.command, *words])


@dataclass(frozen=True)
class Status:
    """A flow's state for the overview: work waiting, the age of the oldest, a few facts."""

    backlog: int
    oldest_seconds: float | None
    facts: Mapping[str, int | float | str] = field(default_factory=dict)
    problem: str = ""  # a sentence when something cannot be read, e.g. Redis does not answer


@dataclass(frozen=True)
class Wait:
    """The longest wait among the messages that wait for the same thing, such as a gateway.

    `which` is a stable name of that thing; `what` is for people: "… has waited since …".
    """

    which: str
    what: Text
    since: datetime


@dataclass(frozen=True)
class Hit:
    """One line of a search result. `id` is a string: JavaScript rounds beyond 2^53."""

    id: str
    title: str
    state: str
    at: datetime
    biz: str = ""


@dataclass(frozen=True)
class Found:
    """A page of a structured search, newest first. `cursor` is '' on the last one."""

    hits: Sequence[Hit]
    cursor: str = ""
    notice: str = ""  # a sentence when hits may be missing: "The archive cannot be read"


@dataclass(frozen=True)
class TimelineEntry:
    at: datetime | None
    title: str
    state: str
    detail: str = ""


@dataclass(frozen=True)
class Page:
    """One message with everything that happened to it, for its page in the console."""

    id: str
    title: str
    facts: Mapping[str, str]
    body: str
    timeline: Sequence[TimelineEntry]
    bulk: str = ""  # the bulk action that sends it again, with the message's id as `ids`
    has_file: bool = False  # whether the whole content can be downloaded: `Flow.file`


@dataclass(frozen=True)
class File:
    """The whole content of one message, to be downloaded."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True)
class BulkAction:
    """An action on many messages at once, run as a bulk job."""

    title: Text
    filters: Mapping[str, Text]  # filter field → its help text
    help: Text = ""


@dataclass(frozen=True)
class Counted:
    """How many messages a bulk action would change; `more`: the count stopped at its bound."""

    count: int
    more: bool = False


@dataclass(frozen=True)
class Step:
    """One step of a bulk action; `cursor` is '' when nothing is left."""

    cursor: str
    done: int


@dataclass(frozen=True)
class Sample:
    """One sample for `/metrics`; the name gets the prefix `msgplatform_`.

    `kind` is gauge, counter or histogram (see `core/metrics.py`).
    """

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    help: str = ""
    kind: str = "gauge"


@dataclass(frozen=True)
class Finding:
    """A line of `doctor`'s report; `repair` is a line to run or a variable to set."""

    level: Literal["ok", "warn", "bad"]
    what: str
    repair: str = ""


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

    def say(self, text: str) -> None: ...


class Flow(ABC):
    """One kind of message, from intake to archive."""

    name: str
    title: str
    daemons: Sequence[Daemon] = ()
    urls: str | None = None  # dotted module with the `urlpatterns` that /api/v1/ includes
    root_urls: str | None = None  # the same for addresses outside of /api/, such as /rpc/
    single_intakes: Sequence[str] = ()  # dotted names of its `SingleIntake`s (`api/intake.py`)
    permission: str  # the Django permission to see its messages
    scopes: Mapping[str, str] = {}  # API key scope → what it allows
    search_fields: Mapping[str, Text] = {}  # field of a structured search → its help text
    bulk_actions: Mapping[str, BulkAction] = {}  # name of the action → what it is
    redis: Sequence[RedisRole] = ()  # servers of its own, beside the work Redis
    queues: Sequence[str] = ()  # its RQ queues that always exist
    only_copies: frozenset[str] = frozenset()  # queues whose orders cannot be made again
    queue_pattern: str = ""  # regular expression for the names of queues that come and go
    icons: Mapping[str, str] = {}  # model → its Material symbol in the console's side bar, in order
    links: Sequence[Link] = ()  # pages of its own in the console's side bar, below its models
    environment_prefix: str = ""  # of its variables, which the demo does not inherit

    @abstractmethod
    def status(self) -> Status:
        """Backlog and facts; must be quick (indexed reads only) and must not raise."""

    def waits(self) -> Iterable[Wait]:
        """The longest waits for the alerts `platform.backlog`.

        Called every few seconds, so it reads a bounded number of rows. Leaves out waits that
        another alert reports after the same time. May raise errors of the database and of Redis.
        """
        return ()

    @abstractmethod
    def search(self, query: str, limit: int) -> list[Hit]:
        """Messages that match an id, a key or a type; newest first."""

    @abstractmethod
    def page(self, id: str) -> Page | None:
        """One message and its timeline, or None when this flow does not know the id.

        Raises Unavailable when the message may be in a store that cannot be read at present.
        """

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

    def bulk_step(self, action: str, filter: Mapping[str, Any], cursor: str, limit: int) -> Step:
        """Apply the action to about the next `limit` messages after `cursor`; a step may be
        repeated."""
        raise InvalidInput("there is no such bulk action", "action")

    def own_processes(self) -> Sequence[Daemon]:
        """Further daemons that people have configured, such as a sender for one subscription; `up`
        asks every few seconds, and starts and stops them. May raise errors of the database."""
        return ()

    def demo_environment(self) -> Mapping[str, str]:
        """Variables that its part of the demo needs."""
        return {}

    def examine(self) -> Iterable[Finding]:
        """What `doctor` reports about it; may raise errors of the database and of Redis."""
        return ()

    @abstractmethod
    def metrics(self) -> Iterable[Sample]:
        """Samples for `/metrics`."""

    @abstractmethod
    def demo(self, run: DemoRun) -> Mapping[str, Any]:
        """Send real traffic and account for it: at least `accepted` and `lost`."""


# The platform's own program: it runs the bulk jobs of every flow.
BULK = Daemon("run_bulk", help="runs bulk jobs")

_registry: dict[str, Flow] = {}


def register(flow: Flow) -> None:
    """Add a flow; the same name twice is a programming error."""
    if flow.name in _registry:
        raise ValueError(f"a flow named {flow.name!r} is registered already")
    _registry[flow.name] = flow


def all() -> list[Flow]:
    """Every registered flow, in the order of INSTALLED_APPS."""
    return list(_registry.values())


def roles() -> set[str]:
    """The roles of the programs that should run, as their heartbeats name them."""
    programs = [BULK, *(daemon for flow in all() for daemon in flow.daemons)]
    return {program.command.removeprefix("run_") for program in programs}


def redis_roles() -> list[RedisRole]:
    """Every Redis that the platform uses: the work Redis, then those of flows."""
    return [WORK, *(role for flow in all() for role in flow.redis)]


def get(name: str) -> Flow | None:
    """The flow of this name, or None."""
    return _registry.get(name)
