"""A session's events for its owner. A request of the peer is reported as its command."""

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar

from ..commands import Bind, Deliver, Report, Trace, UserRpt
from ..errors import SgipError
from ..fields import Command, record
from ..submit import Submit


class CloseReason(Enum):
    UNBOUND = "unbound"  # in order, by either end; our Unbind needs no answer
    REFUSED = "refused"  # the login was not accepted
    NOT_BOUND = "not bound"  # the peer sent commands without a login, or no login in time
    PROTOCOL = "protocol"  # the peer broke the protocol: `error` says how
    SILENT = "silent"  # the peer did not answer in time
    IDLE = "idle"  # nothing happened for too long
    LOST = "lost"  # the connection broke
    LOST_AFTER_BIND = "lost after bind"  # right after a good Bind_Resp: the login was refused
    UNBOUND_AFTER_BIND = "unbound after bind"  # the peer unbound right after it: login refused


@record
class Bound:
    """The login was accepted: commands may be sent."""

    bind: Bind


@record
class BindRefused:
    """The login was not accepted; Closed follows."""

    result: int


@record
class Answered:
    """The response to a command that was sent, with the `context` that `send` got."""

    make: ClassVar[Callable[..., Any]]  # `fields.record` adds it
    response: Command
    context: Any
    frame: bytes


@record
class TimedOut:
    """A command got no response after its last repeat: its outcome is unknown."""

    context: Any
    frame: bytes


@record
class Ignored:
    """A frame that needs no action of the owner, with the reason. Its response, if any, is sent.

    `error` is None for a repeated command, and for a response to no waiting command.
    """

    frame: bytes
    error: SgipError | None


@record
class Idle:
    """Nothing happened for `Limits.idle_timeout` on a connection that this side opened."""


@record
class Closed:
    """Always the last event: write the rest of `data_to_send()`, then close the connection.

    `unanswered` are the commands whose response did not come, as (context, frame), oldest first:
    the same frames may be sent over the next connection to the same peer.
    """

    reason: CloseReason
    error: SgipError | None
    unanswered: tuple[tuple[Any, bytes], ...]


Request = Submit | Deliver | Report | UserRpt | Trace
Event = Request | Bound | BindRefused | Answered | TimedOut | Ignored | Idle | Closed
