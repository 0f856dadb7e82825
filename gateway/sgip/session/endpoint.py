"""The part of a session that needs no bytes from the peer: sending, and the passing of time."""

from struct import Struct
from typing import Any

from ..commands import Bind, Deliver, Report, Unbind, UserRpt
from ..constants import RESPONSE_BIT
from ..errors import FieldError, NotBound, SgipError
from ..fields import SequenceNumber
from ..responses import TraceResp
from ..submit import Submit
from .duplicates import Duplicates
from .events import Closed, CloseReason, Event, Idle, Request, TimedOut
from .roles import BINDING, BOUND, CLOSED, UNBINDING, Limits
from .window import Window

_RESULT = Struct(">5IB8x").pack
_REFUSED_LOGIN = 5.0  # seconds: some gateways accept a wrong login, and close at once
_REFUSED_BY_UNBIND = 2.0  # seconds: others unbind at once; an idle connection is unbound later
_UNBIND_TIMEOUT = 5.0  # seconds: some gateways do not answer Unbind


class Endpoint:
    """The half of a Session that needs no bytes from the peer."""

    def __init__(
        self, bind: Bind | None, limits: Limits, duplicates: Duplicates, now: float
    ) -> None:
        self.limits = limits
        self.phase = BINDING
        self._bind = bind
        self._duplicates = duplicates
        self._window = Window(limits)
        self._out: list[bytes] = []
        self._unbind: Unbind | None = None  # Unbind is wanted, and sent when all is answered
        self._unbind_sent = False
        # `_heard`: time of the last byte. `_active`: time of the last byte or sent command.
        self._phase_since = self._heard = self._active = now
        self._idle_reported = False
        self._has_response = False  # True if the peer answered a command
        if bind is not None:
            self._out.append(bind.encode())

    @property
    def capacity(self) -> int:
        """The number of commands that may be sent now."""
        return self._window.capacity if self.phase is BOUND else 0

    @property
    def waiting(self) -> int:
        """The number of commands that wait for their responses."""
        return len(self._window)

    def data_to_send(self) -> bytes:
        """The bytes to be written; each byte is given once."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def send(self, command: Request | bytes, now: float, context: Any = None) -> None:
        """Sends a command, or its frame as it was kept; `context` comes back with the response.

        Raises NotBound, WindowFull, SequenceInUse, and FieldError for more than `limits.packet`.
        """
        if self.phase is not BOUND:
            raise NotBound(f"the session is {self.phase.value}")
        frame = command if isinstance(command, bytes) else command.encode()
        if len(frame) > self.limits.packet:
            raise FieldError(f"{len(frame)} bytes exceed {self.limits.packet}", "message_length")
        self._window.put(frame, context, now)
        self._out.append(frame)
        self._active = now

    def respond(self, request: Submit | Deliver | Report | UserRpt, result: int = 0) -> None:
        """Answers a request of the peer once it is safe; after Closed, for its next repetition."""
        frame = _RESULT(29, request.command_id | RESPONSE_BIT, *request.sequence, result)
        # Remember the answer even if it cannot be sent: the request then comes again elsewhere.
        self._duplicates.answered(frame[8:20], result)
        if self.phase is not CLOSED:
            self._out.append(frame)

    def respond_trace(self, response: TraceResp) -> None:
        """Answers a Trace, for which a Result is not enough."""
        if self.phase is not CLOSED:
            self._out.append(response.encode())

    def unbind(self, sequence: SequenceNumber, now: float) -> None:
        """Sends no new commands, awaits the responses, then unbinds. Raises NotBound."""
        if self.phase is not BOUND:
            raise NotBound(f"the session is {self.phase.value}")
        self.phase, self._phase_since = UNBINDING, now
        self._unbind = Unbind(sequence)
        self._unbind_when_answered(now)

    def next_tick(self) -> float | None:
        """The time at which `tick` will have work, as far as it is known now."""
        if self.phase is CLOSED:
            return None
        if (due := self._window.due) is not None:
            return due
        if self.phase is BINDING and self._bind is None:
            return self._phase_since + self.limits.login_timeout
        if self.phase is not BOUND:
            wait = self.limits.response_timeout
            if self._unbind_sent:  # the peer may still deliver messages
                return max(self._phase_since, self._heard) + min(wait, _UNBIND_TIMEOUT)
            return self._phase_since + wait
        return None if self._idle_reported else self._active + self.limits.idle_timeout

    def tick(self, now: float) -> list[Event]:
        """The events of the passed time. Call it at `next_tick()`, and then at the new one."""
        events: list[Event] = []
        due = self.next_tick()
        if due is None or now < due:
            return events
        if len(self._window):
            repeated_frames, lost_commands = self._window.overdue(now)
            self._out.extend(repeated_frames)
            self._active = now
            events.extend(TimedOut(context, frame) for frame, context, _, _, _ in lost_commands)
            # No byte came since a command was sent for the first time: the peer is gone.
            if any(self._heard <= first for _, _, first, _, _ in lost_commands):
                self._close(CloseReason.SILENT, events)
            else:
                self._unbind_when_answered(now)
        elif self._unbind_sent:  # no command is in flight: the end is in order even unanswered
            self._close(CloseReason.UNBOUND, events)
        elif self.phase is not BOUND:
            is_incoming = self.phase is BINDING and self._bind is None
            self._close(CloseReason.NOT_BOUND if is_incoming else CloseReason.SILENT, events)
        elif self._bind is None:
            self._close(CloseReason.IDLE, events)
        else:
            # On our own connection the owner decides whether to unbind, to do so in order.
            self._idle_reported = True
            events.append(Idle())
        return events

    def connection_lost(self, now: float) -> list[Event]:
        """The connection broke, or the peer closed it."""
        events: list[Event] = []
        if self.phase is CLOSED:
            return events
        since, reason = self._phase_since, CloseReason.LOST
        # No byte came after the Bind_Resp that bound us.
        at_once = self._heard == since and now - since <= _REFUSED_LOGIN
        if self._bind is not None and self.phase is BOUND and at_once:
            reason = CloseReason.LOST_AFTER_BIND
        elif self._unbind_sent:
            reason = CloseReason.UNBOUND
        self._close(reason, events)
        return events

    def _unbound_by_peer(self, now: float) -> CloseReason:
        """True if the peer unbound at once and has answered nothing: it refused our login."""
        at_once = now - self._phase_since < _REFUSED_BY_UNBIND
        if self._bind is None or self.phase is not BOUND or not at_once:
            return CloseReason.UNBOUND
        is_unused = not self._has_response and not len(self._window)
        return CloseReason.UNBOUND_AFTER_BIND if is_unused else CloseReason.UNBOUND

    def _unbind_when_answered(self, now: float) -> None:
        if self._unbind is None or self._unbind_sent or len(self._window):
            return
        self._unbind_sent = True
        self._phase_since = now
        self._out.append(self._unbind.encode())

    def _close(
        self, reason: CloseReason, events: list[Event], error: SgipError | None = None
    ) -> None:
        self.phase = CLOSED
        events.append(Closed(reason, error, self._window.drain()))
