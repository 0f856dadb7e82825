"""A connection, seen from one of its ends: bytes and the time go in, events and bytes come out.

Both ends and both directions are this one class. The end that opens the connection binds. An SP
serves Deliver, Report and UserRpt, an SMG serves Submit and Trace, whichever end opened the
connection: gateways push Reports also over the one that the SP opened (§3.7).

    BINDING ── Bind_Resp 0, or a Bind that is accepted ──▶ BOUND ── unbind() ──▶ UNBINDING
       │ refused; no login, or no                  Unbind of the │     all answered, then │
       │ response, in time                         peer; IDLE    │     Unbind_Resp        │
       ▼                                                         ▼                        ▼
    CLOSED ◀──── from each: LOST, SILENT, PROTOCOL (the peer broke the rules) ────────────┘

After our Unbind no command is in flight. The connection then ends as unbound also if the peer
closes it, or is silent for some seconds, instead of answering.

All times are seconds of one clock that never goes back, given as `now`.
"""

from collections.abc import Callable

from ..commands import Bind, Trace, Unbind
from ..constants import Result
from ..errors import (
    BodyError,
    DuplicateSequence,
    NotBound,
    SessionError,
    SgipError,
    UnservedCommand,
)
from ..frames import FrameStream, decode_cut, response_to
from ..responses import BindResp, UnbindResp
from .duplicates import UNANSWERED, Duplicates
from .endpoint import Endpoint
from .events import Answered, BindRefused, Bound, CloseReason, Event, Ignored
from .roles import BINDING, BOUND, CLOSED, LOGIN_TYPES, SERVED, Limits, Side

_answered = Answered.make


class Session(Endpoint):
    """With `bind` the end that opens the connection, with `login` the other end.

    `login` gives the Result for a Bind whose type is right. `duplicates` gives the memory
    that the connections of one peer share; without it each remembers its own.
    """

    def __init__(
        self,
        side: Side,
        now: float,
        *,
        bind: Bind | None = None,
        login: Callable[[Bind], int] | None = None,
        limits: Limits | None = None,
        duplicates: Callable[[Bind], Duplicates] | None = None,
    ) -> None:
        if (bind is None) == (login is None):
            raise ValueError("a session either binds or checks a login")
        super().__init__(bind, limits or Limits(), Duplicates(), now)
        self.side = side
        self._login, self._shared_memory = login, duplicates
        self._served = SERVED[side]
        self._stream = FrameStream()

    def receive(self, data: bytes, now: float) -> list[Event]:
        """The events of received bytes: requests, as their commands, and other events."""
        events: list[Event] = []
        if self.phase is CLOSED:
            return events
        self._heard = self._active = now
        self._idle_reported = False
        for frame in self._stream.feed(data):
            if frame[4] & 0x80:
                self._response(frame, now, events)
            else:
                self._request(frame, now, events)
            if self.phase is CLOSED:
                return events
        if self._stream.error:
            self._close(CloseReason.PROTOCOL, events, self._stream.error)
        return events

    def _response(self, frame: bytes, now: float, events: list[Event]) -> None:
        try:
            response = decode_cut(frame)
        except SgipError as error:
            self._take_error(frame, error, events)
            return
        command = self._window.take(frame)
        if command is not None:
            frame_sent, context, _, _, _ = command
            self._has_response = True
            events.append(_answered(response, context, frame_sent))
            if self._unbind is not None:
                self._unbind_when_answered(now)
            return
        bind = self._bind if self.phase is BINDING else None
        if isinstance(response, BindResp) and bind and bind.sequence == response.sequence:
            self._login_result(bind, response.result, now, events)
        elif isinstance(response, UnbindResp) and self._unbind_sent:
            # Ignore the sequence: only one Unbind is sent, and some gateways put their own time
            # into the response.
            self._close(CloseReason.UNBOUND, events)
        else:
            events.append(Ignored(frame, None))

    def _login_result(self, bind: Bind, result: int, now: float, events: list[Event]) -> None:
        if result == Result.OK:
            self.phase, self._phase_since = BOUND, now
            if self._shared_memory:
                self._duplicates = self._shared_memory(bind)
            events.append(Bound(bind))
        else:
            events.append(BindRefused(result))
            self._close(CloseReason.REFUSED, events)

    def _request(self, frame: bytes, now: float, events: list[Event]) -> None:
        try:
            command = decode_cut(frame)
        except SgipError as error:
            # An unknown command gets no response. A wrong body gets one before the close.
            if not error.closes or isinstance(error, BodyError):
                self._out.append(response_to(frame, error.result))
            self._take_error(frame, error, events)
            return
        if type(command) in self._served:
            if self.phase is BINDING:
                without_login = NotBound("a command came before the login")
                # A peer that accepted our Bind may send before its Bind_Resp, and will repeat. A
                # peer that connected to us and does not log in is closed.
                result = Result.LOGIN if self._bind is None else Result.BUSY
                self._refuse(frame, without_login, result, events)
                if self._bind is None:
                    self._close(CloseReason.NOT_BOUND, events, without_login)
            elif type(command) is Trace or (earlier := self._duplicates.admit(frame)) is None:
                events.append(command)  # type: ignore[arg-type]  # what is served is a Request
            else:
                self._came_before(frame, earlier, events)
        elif isinstance(command, Bind):
            self._bind_request(command, frame, now, events)
        elif isinstance(command, Unbind):
            self._out.append(response_to(frame, Result.OK))
            self._close(self._unbound_by_peer(now), events)
        else:
            refusal = UnservedCommand(f"an {self.side.value} does not serve {command.command}")
            self._refuse(frame, refusal, Result.COMMAND, events)

    def _take_error(self, frame: bytes, error: SgipError, events: list[Event]) -> None:
        if error.closes:
            self._close(CloseReason.PROTOCOL, events, error)
        else:
            events.append(Ignored(frame, error))

    def _refuse(self, frame: bytes, error: SgipError, result: int, events: list[Event]) -> None:
        self._out.append(response_to(frame, result))
        events.append(Ignored(frame, error))

    def _came_before(self, frame: bytes, earlier_result: int, events: list[Event]) -> None:
        if earlier_result == UNANSWERED:  # the response to the first one is still to come
            events.append(Ignored(frame, None))
        elif earlier_result == Result.SEQUENCE:
            self._refuse(frame, DuplicateSequence("its sequence was used"), earlier_result, events)
        else:
            self._out.append(response_to(frame, earlier_result))
            events.append(Ignored(frame, None))

    def _bind_request(self, bind: Bind, frame: bytes, now: float, events: list[Event]) -> None:
        if self.phase is not BINDING:
            second_login = SessionError("a second login on one connection")
            self._refuse(frame, second_login, Result.REPEATED_LOGIN, events)
        elif self._login is None:
            refusal = UnservedCommand("the end that connected does not serve Bind")
            self._refuse(frame, refusal, Result.COMMAND, events)
        else:
            is_known_type = bind.login_type in LOGIN_TYPES[self.side]
            result = self._login(bind) if is_known_type else int(Result.LOGIN_TYPE)
            self._out.append(response_to(frame, result))
            self._login_result(bind, result, now, events)
