"""The first steps with a flow, for the page "Getting started", and its part of the demo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from django.utils.module_loading import import_string

from msgplatform.core.flows.text import Text


@dataclass(frozen=True)
class FirstStep:
    """A line of the checklist. `done` is looked up each time, so that it cannot be wrong.

    `view` is the name of the page where it is done, without arguments; '' when a request does it.
    """

    title: Text
    help: Text
    done: bool
    view: str = ""
    permissions: Sequence[str] = ()  # whoever has all of them gets the link


@dataclass(frozen=True)
class FirstCall:
    """The POST request that hands over a first message, and the scope that its API key needs."""

    path: str  # such as "/api/v1/messages"
    body: Mapping[str, Any]
    scope: str


@dataclass(frozen=True)
class Snippet:
    """Code for those who get messages; `name` stands in the page's address."""

    name: str
    language: str
    code: str


class DemoRun(Protocol):
    """A run of the demo, as a flow sees it: the API's address, a scale, a folder, and output."""

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


def _none() -> tuple[()]:
    return ()


@dataclass(kw_only=True, eq=False)
class Setup:
    """The first steps with a flow, and its part of the demo.

    `first_steps` are set up and sent first, in this order, each with whether it is done; indexed
    reads only. `first_calls` are the requests that hand over a first message, in this order; their
    keys need the same scope. `snippets` are code for those who get messages: verify(secret, id,
    timestamp, signature, body). All may raise errors of the database and of Redis.

    The function `demo` gets a DemoRun. It sends real traffic, and returns its account: at least
    `accepted` and `lost`. Traffic that goes on afterwards, so that charts move, is given to
    `run.trickle`.
    """

    first_steps: Callable[[], Sequence[FirstStep]] = _none
    first_calls: Callable[[], Sequence[FirstCall]] = _none
    snippets: Callable[[], Sequence[Snippet]] = _none
    demo: str = ""  # dotted name of a function
    demo_environment: Callable[[], Mapping[str, str]] = dict  # variables that the demo needs
    environment_prefix: str = ""  # of the flow's variables, which the demo does not inherit

    def run_demo(self, run: DemoRun) -> Mapping[str, Any]:
        """The account of the flow's part of the demo. Imported here: no program needs a demo."""
        account: Mapping[str, Any] = import_string(self.demo)(run)
        return account
