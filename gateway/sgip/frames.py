"""From a whole frame to its command, and the response to a frame that is not taken."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TypeVar

from .constants import (
    GATEWAY_COMMANDS,
    HEADER_LENGTH,
    MAX_FRAME,
    NO_RESERVE,
    RESPONSE_BIT,
    CommandId,
)
from .errors import OverlongFrame, SgipError, TruncatedFrame, UnknownCommand, UnservedCommand
from .fields import HEADER, Command, SequenceNumber

C = TypeVar("C", bound=Command)
Parser = Callable[[bytes, SequenceNumber], Command]
PARSERS: dict[bytes, Parser] = {}  # by the four bytes of the Command Id
_SEQUENCE = Struct(">3I").unpack_from


def parser(command_id: int) -> Callable[[Callable[[bytes, SequenceNumber], C]], Parser]:
    """Registers the function that reads the frames of one command."""

    def register(parse: Callable[[bytes, SequenceNumber], C]) -> Parser:
        PARSERS[command_id.to_bytes(4, "big")] = parse
        return parse

    return register


def decode(frame: bytes) -> Command:
    """The command in one whole frame.

    Raises TruncatedFrame, OverlongFrame, UnknownCommand, TruncatedBody and OverlongBody, after
    which the connection must be closed, and UnservedCommand and FieldError, after which it stays.
    """
    frame, size = bytes(frame), len(frame)
    if size < HEADER_LENGTH:
        raise TruncatedFrame(f"a header has {HEADER_LENGTH} bytes, got {size}")
    length = HEADER.unpack_from(frame)[0]
    if length != size or size > MAX_FRAME:
        kind = TruncatedFrame if size < length <= MAX_FRAME else OverlongFrame
        raise kind(f"Message Length says {length} of at most {MAX_FRAME}, got {size} bytes")
    return decode_cut(frame)


def decode_cut(frame: bytes) -> Command:
    """As `decode`, for a frame whose length is known to be right: a FrameStream cut it."""
    parse = PARSERS.get(frame[4:8])
    if parse is None:
        raise unknown(int.from_bytes(frame[4:8], "big"))
    return parse(frame, _SEQUENCE(frame, 8))


def unknown(command_id: int) -> SgipError:
    """The error for a command that an SP's side of SGIP does not have."""
    if command_id & ~RESPONSE_BIT in GATEWAY_COMMANDS:
        return UnservedCommand(f"command 0x{command_id:08x} is for gateways")
    return UnknownCommand(f"there is no command 0x{command_id:08x}")


# What stands around the Result: Trace_Resp has one for each node, CheckUser_Resp a Status after it.
_BEFORE_RESULT = {int(CommandId.TRACE): b"\1"}
_AFTER_RESULT = {int(CommandId.TRACE): bytes(46), int(CommandId.CHECK_USER): bytes(9)}


def response_to(frame: bytes, result: int) -> bytes:
    """The response to the command in `frame`, of which only the header needs to be right."""
    command_id = int.from_bytes(frame[4:8], "big")
    body = b""
    if command_id != CommandId.UNBIND:
        before = _BEFORE_RESULT.get(command_id, b"")
        body = before + bytes((result,)) + _AFTER_RESULT.get(command_id, NO_RESERVE)
    head = HEADER.pack(HEADER_LENGTH + len(body), command_id | RESPONSE_BIT, 0, 0, 0)
    return head[:8] + frame[8:HEADER_LENGTH] + body
