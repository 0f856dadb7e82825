"""What a newcomer does first with a flow: for the console's page "Getting started"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
