"""The contract that a flow fills in: a `Flow` in the app's `flow.py`; and the installed flows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.urls import reverse

from msgplatform.core.connections import RedisRole
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.actions import BulkAction
from msgplatform.core.flows.health import Health
from msgplatform.core.flows.messages import MessageStore
from msgplatform.core.flows.moving import Moving
from msgplatform.core.flows.text import Text

if TYPE_CHECKING:
    from msgplatform.core.archive.kept import KeptData
    from msgplatform.core.person.stores import PersonStore


def _none() -> tuple[()]:
    return ()


@dataclass(frozen=True)
class Daemon:
    """A management command that `up` keeps running."""

    command: str
    priority: int = 500  # supervisor's: lower starts first and stops last
    stop_seconds: int = 30  # within which it ends after SIGTERM
    help: str = ""
    arguments: Sequence[str] = ()  # of the command

    @property
    def name(self) -> str:
        """The name of its process and its log: the command and its arguments."""
        words = (word.lstrip("-").replace("=", "-") for word in self.arguments)
        return "-".join([self.command, *words])


# The platform's own program, which runs the bulk jobs of every flow.
BULK = Daemon("run_bulk", help="runs bulk jobs")


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


@dataclass(frozen=True)
class Link:
    """A page of a flow in the console's side bar, beside the lists of its models."""

    title: Text
    icon: str  # a Material symbol
    view: str  # name of its URL
    permissions: Sequence[str]  # people with all of them see the link
    args: Sequence[str] = ()  # of the URL
    query: str = ""  # a filter, such as rows=records
    is_reference: bool = False  # the API documentation links to it, too

    @property
    def address(self) -> str:
        url: str = reverse(self.view, args=self.args)
        return f"{url}?{self.query}" if self.query else url


@dataclass(kw_only=True, eq=False)
class Flow:
    """One kind of message, from intake to archive."""

    name: str
    title: Text
    permission: str  # the Django permission to see its messages
    messages: MessageStore
    health: Health
    actions: Mapping[str, BulkAction] = field(default_factory=dict)  # by name
    setup: Setup = field(default_factory=Setup)
    moving: Moving = field(default_factory=Moving)  # with a system, to another cell
    # The places that hold data of people, in the order in which they are searched and erased.
    person_stores: Callable[[], Sequence[PersonStore]] = _none
    kept: Callable[[], Sequence[KeptData]] = _none  # what is kept for how long

    daemons: Sequence[Daemon] = ()
    # Further daemons that people have configured, such as a sender for one subscription; `up` asks
    # every few seconds, and starts and stops them. May raise errors of the database.
    own_processes: Callable[[], Sequence[Daemon]] = _none
    urls: str | None = None  # dotted module with the `urlpatterns` that /api/v1/ includes
    root_urls: str | None = None  # the same for addresses outside of /api/, such as /rpc/
    single_intakes: Sequence[str] = ()  # dotted names of its `SingleIntake`s (`api/intake.py`)

    operator_permissions: Sequence[str] = ()  # beside looking (`roles.py`)
    resend_permission: str = ""  # to resend a message from its page; '': nobody may
    bulk_permission: str = ""  # to act on many of them at once; '': `resend_permission`
    scopes: Mapping[str, str] = field(default_factory=dict)  # API key scope → what it allows
    # The same, of keys that manage the platform.
    management_scopes: Mapping[str, str] = field(default_factory=dict)
    # Scope → permissions that a person needs to give it to a key; of a scope that is not there:
    # `permission`, and the one for personal data.
    scope_permissions: Mapping[str, Sequence[str]] = field(default_factory=dict)

    redis: Sequence[RedisRole] = ()  # servers of its own, beside the work Redis
    queues: Sequence[str] = ()  # its RQ queues that always exist
    only_copies: frozenset[str] = frozenset()  # queues whose orders cannot be made again
    queue_pattern: str = ""  # regular expression for the names of queues that come and go
    # Model → its Material symbol in the console's side bar, in the order of the bar.
    icons: Mapping[str, str] = field(default_factory=dict)
    links: Sequence[Link] = ()  # pages of its own in the side bar, below its models

    def action(self, name: str) -> BulkAction:
        """The bulk action of this name. Raises InvalidInput."""
        if name not in self.actions:
            raise InvalidInput("there is no such bulk action", "action")
        return self.actions[name]

    @property
    def resend_action(self) -> BulkAction | None:
        """The action that resends one message from its page."""
        return next((action for action in self.actions.values() if action.is_resend), None)

    def is_bulk_allowed(self, user: Any) -> bool:
        """True if this user may act on many of its messages at once; the permission for bulk jobs
        is asked for beside it."""
        act = self.bulk_permission or self.resend_permission
        return bool(self.actions and act and user.has_perms([self.permission, act]))
