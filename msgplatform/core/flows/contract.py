"""The contract of a flow: a `Flow` in the app's `flow.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from django.urls import reverse

from msgplatform.core.connections import RedisRole
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.actions import BulkAction
from msgplatform.core.flows.health import Health
from msgplatform.core.flows.messages import MessageStore
from msgplatform.core.flows.programs import Daemon, Recovery
from msgplatform.core.flows.setup import Setup
from msgplatform.core.flows.text import Text

if TYPE_CHECKING:
    from msgplatform.core.archive.kept import KeptData
    from msgplatform.core.person.stores import PersonStore


class Link(msgspec.Struct, frozen=True):
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


class KeyStore(Protocol):
    """Idempotency keys of a flow. A row is a list of JSON values."""

    @property
    def name(self) -> str: ...

    def read(self, biz: int) -> Iterator[list[Any]]:
        """Every key of a system, a few at a time in memory."""

    def write(self, biz: int, rows: Sequence[list[Any]]) -> None:
        """Store keys for the system; a stored key stays. Raises InvalidInput for rows of another
        form, Conflict for a key that names another message here."""


class Flow(msgspec.Struct, kw_only=True, eq=False):
    """A flow: one kind of message, from intake to archive."""

    name: str
    title: Text
    permission: str  # the Django permission to see its messages
    messages: MessageStore
    health: Health
    actions: Mapping[str, BulkAction] = msgspec.field(default_factory=dict)  # by name
    setup: Setup = msgspec.field(default_factory=Setup)
    # The stores of idempotency keys, which move with a business system to another cell.
    key_stores: Sequence[KeyStore] = ()
    # The stores with data of people, in the order of searching and erasing.
    person_stores: Callable[[], Sequence[PersonStore]] = tuple
    kept: Callable[[], Sequence[KeptData]] = tuple  # the kinds of stored data, with their retention

    daemons: Sequence[Daemon] = ()
    # Own daemons that people have configured, such as a sender for one subscription; `up` asks
    # every few seconds, and starts and stops these daemons. May raise errors of the database.
    own_processes: Callable[[], Sequence[Daemon]] = tuple
    recoveries: Sequence[Recovery] = ()  # after a restore
    urls: str | None = None  # dotted module with the `urlpatterns` that /api/v1/ includes
    root_urls: str | None = None  # the same for addresses outside of /api/, such as /rpc/
    single_intakes: Sequence[str] = ()  # dotted names of its `SingleIntake`s (`api/intake.py`)

    operator_permissions: Sequence[str] = ()  # beside looking (`roles.py`)
    resend_permission: str = ""  # to resend a message from its page; '': nobody may
    bulk_permission: str = ""  # for bulk actions; '': `resend_permission`
    # API key scope → what it allows.
    scopes: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Scope of a management key → what it allows.
    management_scopes: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Scope → permissions that a person needs to give the scope to a key; for other scopes
    # `permission` and the permission for personal data.
    scope_permissions: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)

    redis: Sequence[RedisRole] = ()  # servers of its own, beside the work Redis
    queues: Sequence[str] = ()  # RQ queues that always exist
    only_copies: frozenset[str] = frozenset()  # queues whose orders cannot be made again
    queue_pattern: str = ""  # regular expression for the names of queues that come and go
    # Model → its Material symbol in the console's side bar, in the order of the bar.
    icons: Mapping[str, str] = msgspec.field(default_factory=dict)
    links: Sequence[Link] = ()  # pages of its own in the side bar, below its models

    def action(self, name: str) -> BulkAction:
        """The bulk action of this name. Raises InvalidInput."""
        if name not in self.actions:
            names = ", ".join(self.actions)
            raise InvalidInput(f"There is no such action. Use one of: {names}.", "action")
        return self.actions[name]

    @property
    def resend_action(self) -> BulkAction | None:
        """The action that resends one message from its page."""
        return next((action for action in self.actions.values() if action.is_resend), None)

    def is_bulk_allowed(self, user: Any) -> bool:
        """True if this user may act on many messages of the flow at once; the permission for bulk
        jobs is checked besides."""
        act = self.bulk_permission or self.resend_permission
        return bool(self.actions and act and user.has_perms([self.permission, act]))
