"""The first steps with a flow, for the page "Getting started"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


def _none() -> tuple[()]:
    return ()


@dataclass(kw_only=True, eq=False)
class Setup:
    """The first steps with a flow.

    `first_steps` are set up and sent first, in this order, each with whether it is done; indexed
    reads only. `first_calls` are the requests that hand over a first message, in this order; their
    keys need the same scope. `snippets` are code for those who get messages: verify(secret, id,
    timestamp, signature, body). All may raise errors of the database and of Redis.
    """

    first_steps: Callable[[], Sequence[FirstStep]] = _none
    first_calls: Callable[[], Sequence[FirstCall]] = _none
    snippets: Callable[[], Sequence[Snippet]] = _none
