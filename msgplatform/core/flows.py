"""The contract that a flow fills in, and the registry of flows.

Console, `up`, `demo`, `doctor`, `/metrics`, `run_bulk` and the URL configuration walk the
registry, so a further flow is a new folder and a line in the settings. Each app's `flow.py`
subclasses `Flow` and registers an instance in `AppConfig.ready()`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True)
class Daemon:
    """A management command that `up` keeps running."""

    command: str
    processes: int = 1
    priority: int = 500  # supervisor's: lower starts first and stops last
    help: str = ""


@dataclass(frozen=True)
class Status:
    """How a flow is doing, for the overview: work waiting, the age of the oldest, a few facts."""

    backlog: int
    oldest_seconds: float | None
    facts: Mapping[str, int | float | str] = field(default_factory=dict)
    problem: str = ""  # a sentence when something cannot be read, e.g. Redis is away


@dataclass(frozen=True)
class Hit:
    """One line of a search result. `id` is a string: JavaScript rounds beyond 2^53."""

    id: str
    title: str
    state: str
    at: datetime
    biz: str = ""


@dataclass(frozen=True)
class TimelineEntry:
    at: datetime | None
    title: str
    state: str
    detail: str = ""


@dataclass(frozen=True)
class Page:
    """One message with everything that happened to it."""

    id: str
    title: str
    facts: Mapping[str, str]
    body: str
    timeline: Sequence[TimelineEntry]


@dataclass(frozen=True)
class Requeued:
    """One step of a bulk requeue; `cursor` is '' when nothing is left."""

    cursor: str
    done: int


@dataclass(frozen=True)
class Sample:
    """One gauge or counter sample for `/metrics`; the name gets the prefix `msgplatform_`."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    help: str = ""
    kind: str = "gauge"


class DemoRun(Protocol):
    """What the demo gives to a flow: where the API is, a scale, a folder, a way to speak."""

    base_url: str
    messages: int
    folder: Any  # pathlib.Path
    timeout: float  # seconds within which everything has to be accounted for

    def say(self, text: str) -> None: ...


class Flow(ABC):
    """One kind of message, from intake to archive."""

    name: str
    title: str
    daemons: Sequence[Daemon] = ()
    urls: str | None = None  # dotted module with the `urlpatterns` that /api/v1/ includes
    permission: str  # Django permission that a person needs in order to see messages
    scopes: Mapping[str, str] = {}  # API key scope → what it allows
    filters: Mapping[str, str] = {}  # requeue filter field → its help text

    @abstractmethod
    def status(self) -> Status:
        """Backlog and facts; must be quick (indexed reads only) and must not raise."""

    @abstractmethod
    def search(self, query: str, limit: int) -> list[Hit]:
        """Messages that match an id, a key or a type; newest first."""

    @abstractmethod
    def page(self, id: str) -> Page | None:
        """The whole story of one message, or None when this flow does not know the id."""

    @abstractmethod
    def requeue_count(self, filter: Mapping[str, Any]) -> int:
        """How many messages a requeue with this filter would touch. Raises InvalidInput."""

    @abstractmethod
    def requeue(self, filter: Mapping[str, Any], cursor: str, limit: int) -> Requeued:
        """Requeue the next `limit` matches after `cursor`; repeating a step is harmless."""

    @abstractmethod
    def metrics(self) -> Iterable[Sample]:
        """Samples for `/metrics`."""

    @abstractmethod
    def demo(self, run: DemoRun) -> Mapping[str, Any]:
        """Send real traffic and account for it: `accepted` and `lost` at the least."""


_registry: dict[str, Flow] = {}


def register(flow: Flow) -> None:
    """Add a flow; the same name twice is a programming error."""
    if flow.name in _registry:
        raise ValueError(f"a flow named {flow.name!r} is registered already")
    _registry[flow.name] = flow


def all() -> list[Flow]:
    """Every registered flow, in the order of INSTALLED_APPS."""
    return list(_registry.values())


def get(name: str) -> Flow | None:
    """The flow of this name, or None."""
    return _registry.get(name)
