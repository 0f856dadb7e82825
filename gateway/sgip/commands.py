"""The commands of an SP other than Submit (§4.2.3).

Fields have the specification's names and order, with `sequence` in front.
"""

from collections.abc import Callable
from struct import Struct
from typing import ClassVar

from .constants import HEADER_LENGTH, MAX_FRAME, NO_RESERVE, Coding, CommandId
from .fields import (
    HEADER,
    NUMBER,
    WORDS,
    Bodiless,
    Command,
    SequenceNumber,
    body_error,
    fault_of,
    read_number,
    read_text,
    record,
    write_number,
    write_reserve,
    write_text,
)
from .frames import parser

_LENGTH = Struct(">I")
_DELIVER_LENGTH = 77  # bytes without the content
_REPORT = Struct(">8IB21s2B8s").pack
_REPORT_BODY = Struct(">20x3IB21s2B8s").unpack


@record
class Bind(Command):
    """Opens a connection for commands. The password crosses the network in clear text."""

    command: ClassVar[str] = "Bind"
    command_id: ClassVar[int] = CommandId.BIND
    login_type: int
    login_name: str
    login_password: str
    reserve: bytes = NO_RESERVE

    def _frame(self) -> bytes:
        return (
            HEADER.pack(61, self.command_id, *self.sequence)
            + bytes((self.login_type,))
            + write_text(self.login_name, 16)
            + write_text(self.login_password, 16)
            + write_reserve(self.reserve)
        )

    def __repr__(self) -> str:  # logs must not show the password
        return f"Bind({self.sequence}, {self.login_type}, {self.login_name!r}, '***')"


@parser(CommandId.BIND)
def read_bind(frame: bytes, sequence: SequenceNumber) -> Bind:
    if len(frame) != 61:
        raise body_error("Bind", frame, 61)
    name, password = read_text(frame[21:37]), read_text(frame[37:53])
    bind: Bind = Bind.make(sequence, frame[20], name, password, frame[53:])
    return bind


@record
class Unbind(Bodiless):
    command: ClassVar[str] = "Unbind"
    command_id: ClassVar[int] = CommandId.UNBIND


@parser(CommandId.UNBIND)
def read_unbind(frame: bytes, sequence: SequenceNumber) -> Unbind:
    if len(frame) != HEADER_LENGTH:
        raise body_error("Unbind", frame, HEADER_LENGTH)
    return Unbind(sequence)


@record
class Deliver(Command):
    """A message from a user, an MO."""

    command: ClassVar[str] = "Deliver"
    command_id: ClassVar[int] = CommandId.DELIVER
    user_number: str
    sp_number: str
    tp_pid: int = 0
    tp_udhi: int = 0
    message_coding: int = Coding.ASCII
    message_content: bytes = b""
    reserve: bytes = NO_RESERVE

    @property
    def message_length(self) -> int:
        return len(self.message_content)

    def _frame(self) -> bytes:
        length = len(self.message_content)
        if _DELIVER_LENGTH + length > MAX_FRAME:
            raise fault_of(self)
        return b"".join(
            (
                HEADER.pack(_DELIVER_LENGTH + length, 4, *self.sequence),
                write_text(self.user_number, NUMBER),
                write_number(self.sp_number),
                bytes((self.tp_pid, self.tp_udhi, self.message_coding)),
                _LENGTH.pack(length),
                self.message_content,
                write_reserve(self.reserve),
            )
        )


@parser(CommandId.DELIVER)
def read_deliver(frame: bytes, sequence: SequenceNumber) -> Deliver:
    if len(frame) < _DELIVER_LENGTH:
        raise body_error("Deliver", frame, _DELIVER_LENGTH)
    (length,) = _LENGTH.unpack_from(frame, 65)
    if len(frame) != _DELIVER_LENGTH + length:
        raise body_error("Deliver", frame, _DELIVER_LENGTH + length)
    deliver: Deliver = Deliver.make(
        sequence,
        read_text(frame[20:41]),
        read_number(frame[41:62]),
        frame[62],
        frame[63],
        frame[64],
        frame[69:-8],
        frame[-8:],
    )
    return deliver


@record
class Report(Command):
    """The outcome of a Submit for one of its users; state 1 (waiting) is not final."""

    command: ClassVar[str] = "Report"
    command_id: ClassVar[int] = CommandId.REPORT
    submit_sequence: SequenceNumber
    report_type: int
    user_number: str
    state: int
    error_code: int
    reserve: bytes = NO_RESERVE

    def _frame(self) -> bytes:
        return _REPORT(
            64,
            5,
            *self.sequence,
            *self.submit_sequence,
            self.report_type,
            write_text(self.user_number, NUMBER),
            self.state,
            self.error_code,
            write_reserve(self.reserve),
        )


# Made once, not for each Report: a module's name is quicker to reach than a class's.
_make_report: Callable[..., Report] = Report.make


@parser(CommandId.REPORT)
def read_report(frame: bytes, sequence: SequenceNumber) -> Report:
    if len(frame) != 64:
        raise body_error("Report", frame, 64)
    node, moment, counter, kind, user, state, error_code, reserve = _REPORT_BODY(frame)
    return _make_report(
        sequence, (node, moment, counter), kind, read_text(user), state, error_code, reserve
    )


@record
class UserRpt(Command):
    """The SMG reports that a user's number changed its condition."""

    command: ClassVar[str] = "UserRpt"
    command_id: ClassVar[int] = CommandId.USER_RPT
    sp_number: str
    user_number: str
    user_condition: int
    reserve: bytes = NO_RESERVE

    def _frame(self) -> bytes:
        return (
            HEADER.pack(71, self.command_id, *self.sequence)
            + write_number(self.sp_number)
            + write_text(self.user_number, NUMBER)
            + bytes((self.user_condition,))
            + write_reserve(self.reserve)
        )


@parser(CommandId.USER_RPT)
def read_user_rpt(frame: bytes, sequence: SequenceNumber) -> UserRpt:
    if len(frame) != 71:
        raise body_error("UserRpt", frame, 71)
    sp_number, user_number = read_text(frame[20:41]), read_text(frame[41:62])
    command: UserRpt = UserRpt.make(sequence, sp_number, user_number, frame[62], frame[63:])
    return command


@record
class Trace(Command):
    """A test: which nodes did a Submit pass, and when?"""

    command: ClassVar[str] = "Trace"
    command_id: ClassVar[int] = CommandId.TRACE
    submit_sequence: SequenceNumber
    user_number: str
    reserve: bytes = NO_RESERVE

    def _frame(self) -> bytes:
        return (
            HEADER.pack(61, self.command_id, *self.sequence)
            + WORDS.pack(*self.submit_sequence)
            + write_text(self.user_number, NUMBER)
            + write_reserve(self.reserve)
        )


@parser(CommandId.TRACE)
def read_trace(frame: bytes, sequence: SequenceNumber) -> Trace:
    if len(frame) != 61:
        raise body_error("Trace", frame, 61)
    hops = WORDS.unpack_from(frame, 20)
    trace: Trace = Trace.make(sequence, hops, read_text(frame[32:53]), frame[53:])
    return trace
