"""The first steps with a flow, for the page "Getting started"."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from msgplatform.core.flows.text import Text


class FirstStep(msgspec.Struct, frozen=True):
    """A line of the checklist. `done` is read anew each time, so that it cannot be out of date.

    `view` is the name of the page for this step, without arguments; '' if a request does the step.
    """

    title: Text
    help: Text
    done: bool
    view: str = ""
    permissions: Sequence[str] = ()  # people with all of them get the link


class FirstCall(msgspec.Struct, frozen=True):
    """The POST request that submits a first message, and the scope that its API key needs."""

    path: str  # such as "/api/v1/messages"
    body: Mapping[str, Any]
    scope: str


class Snippet(msgspec.Struct, frozen=True):
    """Code for receivers of messages; `name` is in the page's address."""

    name: str
    language: str
    code: str


class Setup(msgspec.Struct, kw_only=True, eq=False):
    """The first steps with a flow.

    `first_steps` are the steps of the checklist in order, each with True if done; indexed reads
    only. `first_calls` are the requests that submit a first message, in order; their keys need the
    same scope. `snippets` are code for receivers of messages: verify(secret, id, timestamp,
    signature, body). All may raise errors of the database and of Redis.
    """

    first_steps: Callable[[], Sequence[FirstStep]] = tuple
    first_calls: Callable[[], Sequence[FirstCall]] = tuple
    snippets: Callable[[], Sequence[Snippet]] = tuple
