"""Cuts a stream of bytes into frames."""

from __future__ import annotations

from struct import Struct

from .constants import HEADER_LENGTH, MAX_FRAME
from .errors import FrameError, OverlongFrame, TruncatedFrame

_LENGTH = Struct(">I").unpack_from
_LENGTH_BYTES = 4


class FrameStream:
    """Feed it what came; it gives the frames that are whole, and keeps the rest.

    At a Message Length that cannot be, `error` is set: the frames before it are still given, and
    nothing after it can be.
    """

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._rest = b""
        self.error: FrameError | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, in order."""
        if self.error:
            return []
        data = self._rest + data if self._rest else bytes(data)
        frames, at, end = [], 0, len(data)
        while end - at >= _LENGTH_BYTES:
            (length,) = _LENGTH(data, at)
            if not HEADER_LENGTH <= length <= self._max_frame:
                self._fail(length)
                break
            if at + length > end:
                break
            frames.append(data[at : at + length])
            at += length
        self._rest = data[at:]
        return frames

    def _fail(self, length: int) -> None:
        kind = TruncatedFrame if length < HEADER_LENGTH else OverlongFrame
        self.error = kind(f"Message Length says {length}, not {HEADER_LENGTH} to {self._max_frame}")
