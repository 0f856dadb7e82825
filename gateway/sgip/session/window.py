"""The commands that were sent and have no response yet (§3.7.2.4)."""

from typing import Any

from ..errors import SequenceInUse, WindowFull
from .roles import Limits

# A waiting command: its frame, its context, the times when it was sent first and last, and its
# number of repeats. One is made for each command: a plain tuple.
Sent = tuple[bytes, Any, float, float, int]


class Window:
    """At most `limits.window` commands, in the order in which their responses are overdue."""

    def __init__(self, limits: Limits) -> None:
        self._size, self._timeout = limits.window, limits.response_timeout
        self._resends = limits.resends
        self._sent: dict[bytes, Sent] = {}

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def capacity(self) -> int:
        """The number of further commands that it takes."""
        return self._size - len(self._sent)

    @property
    def due(self) -> float | None:
        """When the first response will be overdue."""
        # The first of the dict: repeated commands are put to its end.
        for _, _, _, last, _ in self._sent.values():
            return last + self._timeout
        return None

    def put(self, frame: bytes, context: Any, now: float) -> None:
        key = frame[8:20]
        if len(self._sent) >= self._size:
            raise WindowFull(f"{self._size} commands wait for their responses")
        if key in self._sent:
            raise SequenceInUse(f"sequence {key.hex()} waits for its response")
        self._sent[key] = (frame, context, now, now, 0)

    def take(self, response: bytes) -> Sent | None:
        """Remove and return the command that this frame answers."""
        key = response[8:20]
        command = self._sent.get(key)
        # The command id without the bit that marks a response.
        if command is None or command[0][5:8] != response[5:8]:
            return None
        del self._sent[key]
        return command

    def overdue(self, now: float) -> tuple[list[bytes], list[Sent]]:
        """Frames to be sent again, under the same sequence, and commands that are not tried any
        more."""
        repeated_frames: list[bytes] = []
        lost_commands: list[Sent] = []
        while (due := self.due) is not None and due <= now:
            key, command = next(iter(self._sent.items()))
            del self._sent[key]
            frame, context, first, _, resends = command
            if resends >= self._resends:
                lost_commands.append(command)
            else:
                # At the end of the dict: its response becomes overdue last.
                self._sent[key] = (frame, context, first, now, resends + 1)
                repeated_frames.append(frame)
        return repeated_frames, lost_commands

    def drain(self) -> tuple[tuple[Any, bytes], ...]:
        """All waiting commands, as (context, frame), oldest first; the window is empty then."""
        # Sort by the first time: a repeated command is at the end of the dict, but older.
        waiting = sorted(self._sent.values(), key=lambda command: command[2])
        self._sent = {}
        return tuple((context, frame) for frame, context, _, _, _ in waiting)
