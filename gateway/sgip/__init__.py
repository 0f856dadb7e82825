"""SGIP 1.2, the operator's protocol for short messages, without any input or output of its own.

`decode(frame)` and `command.encode()` are the wire; `Session` is one connection, with bytes and
the time going in, events and bytes coming out; `split` and `part_of` are for long messages.
Only the standard library is needed. § numbers are those of the specification (October 2001).
"""

from .commands import Bind, Deliver, Report, Trace, Unbind, UserRpt
from .constants import (
    LOGIN_TOO_FREQUENT,
    MAX_FRAME,
    MAX_PACKET,
    PORT,
    RETRY_RESULTS,
    Coding,
    CommandId,
    LoginType,
    ReportFlag,
    Result,
    State,
    result_text,
)
from .errors import (
    BodyError,
    DuplicateSequence,
    FieldError,
    FrameError,
    NotBound,
    OverlongBody,
    OverlongFrame,
    SequenceInUse,
    SessionError,
    SgipError,
    TextError,
    TruncatedBody,
    TruncatedFrame,
    UnknownCommand,
    UnservedCommand,
    WindowFull,
)
from .fields import Command, SequenceNumber
from .frames import FrameStream, decode
from .numbers import (
    SequenceSource,
    absolute_time,
    international,
    searched_numbers,
    smg_node_id,
    sp_node_id,
    spellings,
    timestamp,
    written_form,
)
from .responses import (
    BindResp,
    DeliverResp,
    ReportResp,
    SubmitResp,
    TraceHop,
    TraceResp,
    UnbindResp,
    UserRptResp,
)
from .session.duplicates import Duplicates
from .session.events import (
    Answered,
    BindRefused,
    Bound,
    Closed,
    CloseReason,
    Event,
    Idle,
    Ignored,
    Request,
    TimedOut,
)
from .session.roles import Limits, Phase, Side
from .session.session import Session
from .submit import Submit, users_per_submit
from .text.charsets import FLASH, alphabet_of, choose_coding, decode_text, encode_text
from .text.parts import Part, Parts, SplitOptions, part_of, split, text_of

__all__ = [
    "FLASH", "LOGIN_TOO_FREQUENT", "MAX_FRAME", "MAX_PACKET", "PORT", "RETRY_RESULTS",
    "Answered", "Bind", "BindRefused", "BindResp", "BodyError", "Bound", "CloseReason",
    "Closed", "Coding", "Command", "CommandId", "Deliver", "DeliverResp", "DuplicateSequence",
    "Duplicates", "Event", "FieldError", "FrameError", "FrameStream", "Idle", "Ignored",
    "Limits", "LoginType", "NotBound", "OverlongBody", "OverlongFrame", "Part", "Parts",
    "Phase", "Report", "ReportFlag", "ReportResp", "Request", "Result", "SequenceInUse",
    "SequenceNumber", "SequenceSource", "Session", "SessionError", "SgipError", "Side",
    "SplitOptions", "State", "Submit", "SubmitResp", "TextError", "TimedOut", "Trace",
    "TraceHop", "TraceResp", "TruncatedBody", "TruncatedFrame", "Unbind", "UnbindResp",
    "UnknownCommand", "UnservedCommand", "UserRpt", "UserRptResp", "WindowFull",
    "absolute_time", "alphabet_of", "choose_coding", "decode", "decode_text", "encode_text",
    "international", "part_of", "result_text", "searched_numbers", "smg_node_id", "sp_node_id",
    "spellings", "split", "text_of", "timestamp", "users_per_submit", "written_form",
]  # fmt: skip
