"""The responses to the commands of an SP (§4.2.3).

Fields are named as in the specification and stand in its order, with `sequence` in front.
"""

from typing import Any, ClassVar

from .constants import HEADER_LENGTH, NO_RESERVE, CommandId
from .fields import (
    ENCODING_ERRORS,
    HEADER,
    Bodiless,
    Command,
    SequenceNumber,
    body_error,
    fault_of,
    read_text,
    record,
    write_hops,
    write_reserve,
    write_text,
)
from .frames import parser

RESULT_LENGTH = 29
_HOP_LENGTH = 47


@record
class ResultOnly(Command):
    """A response with a Result, and nothing else."""

    result: int = 0
    reserve: bytes = NO_RESERVE

    def _frame(self) -> bytes:
        return (
            HEADER.pack(RESULT_LENGTH, self.command_id, *self.sequence)
            + bytes((self.result,))
            + write_reserve(self.reserve)
        )


@record
class BindResp(ResultOnly):
    command: ClassVar[str] = "Bind_Resp"
    command_id: ClassVar[int] = CommandId.BIND_RESP


@record
class UnbindResp(Bodiless):
    command: ClassVar[str] = "Unbind_Resp"
    command_id: ClassVar[int] = CommandId.UNBIND_RESP


@record
class SubmitResp(ResultOnly):
    command: ClassVar[str] = "Submit_Resp"
    command_id: ClassVar[int] = CommandId.SUBMIT_RESP


@record
class DeliverResp(ResultOnly):
    command: ClassVar[str] = "Deliver_Resp"
    command_id: ClassVar[int] = CommandId.DELIVER_RESP


@record
class ReportResp(ResultOnly):
    command: ClassVar[str] = "Report_Resp"
    command_id: ClassVar[int] = CommandId.REPORT_RESP


@record
class UserRptResp(ResultOnly):
    command: ClassVar[str] = "UserRpt_Resp"
    command_id: ClassVar[int] = CommandId.USER_RPT_RESP


@record
class TraceHop:
    """The report of one node: times as yymmddhhmmss."""

    result: int
    node_id: str
    receive_time: str
    send_time: str
    reserve: bytes = NO_RESERVE

    def encode(self) -> bytes:
        try:
            return (
                bytes((self.result,))
                + write_text(self.node_id, 6)
                + write_text(self.receive_time, 16)
                + write_text(self.send_time, 16)
                + write_reserve(self.reserve)
            )
        except ENCODING_ERRORS:
            raise fault_of(self) from None


@record
class TraceResp(Command):
    command: ClassVar[str] = "Trace_Resp"
    command_id: ClassVar[int] = CommandId.TRACE_RESP
    hops: tuple[TraceHop, ...] = ()

    @property
    def count(self) -> int:
        return len(self.hops)

    def _frame(self) -> bytes:
        hops = write_hops(self.hops)
        size = HEADER_LENGTH + 1 + len(hops)
        head = HEADER.pack(size, self.command_id, *self.sequence)
        return head + bytes((len(self.hops),)) + hops


def register_result(cls: Any, *lengths: int) -> None:
    """Reads a response with a Result only; `lengths` are those of responses without Reserve."""
    make = cls.make

    def parse(frame: bytes, sequence: SequenceNumber) -> Command:
        size = len(frame)
        if size == RESULT_LENGTH:
            response: Command = make(sequence, frame[20], frame[21:])
        elif size in lengths:
            response = make(sequence, frame[20])
        else:
            raise body_error(cls.command, frame, RESULT_LENGTH)
        return response

    parser(cls.command_id)(parse)


register_result(BindResp, RESULT_LENGTH - 8)  # seen in the field: without Reserve
register_result(SubmitResp)
register_result(DeliverResp)
register_result(ReportResp)
register_result(UserRptResp)


@parser(CommandId.UNBIND_RESP)
def read_unbind_resp(frame: bytes, sequence: SequenceNumber) -> UnbindResp:
    if len(frame) not in {HEADER_LENGTH, RESULT_LENGTH}:  # seen in the field: with a Result
        raise body_error("Unbind_Resp", frame, HEADER_LENGTH)
    return UnbindResp(sequence)


@parser(CommandId.TRACE_RESP)
def read_trace_resp(frame: bytes, sequence: SequenceNumber) -> TraceResp:
    # Count, then as many hops.
    length = HEADER_LENGTH + 1 + (_HOP_LENGTH * frame[20] if len(frame) > HEADER_LENGTH else 0)
    if len(frame) != length:
        raise body_error("Trace_Resp", frame, length)
    hops = []
    for at in range(21, length, _HOP_LENGTH):
        texts = (frame[at + 1 : at + 7], frame[at + 7 : at + 23], frame[at + 23 : at + 39])
        node_id, received_at, sent_at = map(read_text, texts)
        reserve = frame[at + 39 : at + _HOP_LENGTH]
        hops.append(TraceHop(frame[at], node_id, received_at, sent_at, reserve))
    return TraceResp(sequence, tuple(hops))
