"""From bytes to frames, from a whole frame to its command, and the response to a refused frame."""

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
from .errors import FrameError, OverlongFrame, TruncatedFrame, UnknownCommand, UnservedCommand
from .fields import HEADER, Command, SequenceNumber

C = TypeVar("C", bound=Command)
Parser = Callable[[bytes, SequenceNumber], Command]
PARSERS: dict[bytes, Parser] = {}  # by the four bytes of the Command Id
_SEQUENCE = Struct(">3I").unpack_from
_LENGTH = Struct(">I").unpack_from
_LENGTH_BYTES = 4


class FrameStream:
    """Cuts a stream of bytes: feed it what came, and it gives the frames that are whole.

    An impossible Message Length sets `error`. The frames before it are still returned, but none
    after it, because the beginning of the next frame is unknown.
    """

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._rest = b""
        self.error: FrameError | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, in order."""
        if self.error:
            return []
        # Usually no bytes are left over, and none are copied.
        data = self._rest + data if self._rest else bytes(data)
        frames, at, end = [], 0, len(data)
        while end - at >= _LENGTH_BYTES:
            (length,) = _LENGTH(data, at)
            if not HEADER_LENGTH <= length <= self._max_frame:
                kind = TruncatedFrame if length < HEADER_LENGTH else OverlongFrame
                limit = self._max_frame
                self.error = kind(f"Message Length says {length}, not {HEADER_LENGTH} to {limit}")
                break
            if at + length > end:
                break
            frames.append(data[at : at + length])
            at += length
        self._rest = data[at:]
        return frames


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
    """As `decode`, for a frame that a FrameStream has cut, so that its length is right."""
    parse = PARSERS.get(frame[4:8])
    if parse is None:
        command_id = int.from_bytes(frame[4:8], "big")
        if command_id & ~RESPONSE_BIT in GATEWAY_COMMANDS:
            raise UnservedCommand(f"command 0x{command_id:08x} is for gateways")
        raise UnknownCommand(f"there is no command 0x{command_id:08x}")
    return parse(frame, _SEQUENCE(frame, 8))


# The bytes around the Result. Trace_Resp has one for each node, CheckUser_Resp a Status after it.
_BEFORE_RESULT = {int(CommandId.TRACE): b"\1"}
_AFTER_RESULT = {int(CommandId.TRACE): bytes(46), int(CommandId.CHECK_USER): bytes(9)}


def response_to(frame: bytes, result: int) -> bytes:
    """The response to the command in `frame`, which needs only a valid header."""
    command_id = int.from_bytes(frame[4:8], "big")
    body = b""
    if command_id != CommandId.UNBIND:
        before = _BEFORE_RESULT.get(command_id, b"")
        body = before + bytes((result,)) + _AFTER_RESULT.get(command_id, NO_RESERVE)
    head = HEADER.pack(HEADER_LENGTH + len(body), command_id | RESPONSE_BIT, 0, 0, 0)
    # The sequence is copied, because a response names the command that it answers.
    return head[:8] + frame[8:HEADER_LENGTH] + body
