"""The books of a simulated SMG: a log of the Submits that it accepted, with which tests compare,
and a journal and an outbox of the Reports and MOs that it owes to an SP, until they are
answered."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gateway import sgip
from gateway.net import Connection

_SEQUENCE = slice(8, 20)  # bytes of a frame
_BUFFER = 1 << 20  # bytes: commands that came together are written at once by `flush`


def read_users(log: Path) -> Iterator[tuple[sgip.SequenceNumber, str, int]]:
    """Sequence, user and Result of each line of the log: one for each user of a Submit."""
    for line in _whole_lines(log):
        sequence, user, _part, result = line.split("\t")
        node, stamp, counter = map(int, sequence.split(":"))
        yield (node, stamp, counter), user, int(result)


def read_log(log: Path) -> Iterator[tuple[sgip.SequenceNumber, int]]:
    """Sequence and Result of Submits that were accepted, or refused for good."""
    for sequence, _user, result in read_users(log):
        if result not in sgip.RETRY_RESULTS:
            yield sequence, result


def _whole_lines(path: Path) -> list[str]:
    """The lines of a file; a last line that a kill cut short is removed from it."""
    if not path.exists():
        return []
    content = path.read_bytes()
    lines = content[: content.rfind(b"\n") + 1]
    if lines != content:
        path.write_bytes(lines)
    return lines.decode("ascii").splitlines()


class Journal:
    """A line `+ <tab> frame in hexadecimal` for each command, before it is sent, and a line
    `- <tab> sequence in hexadecimal <tab> Result` when it was answered for good.

    Opened again after a kill it still owes the frames without an answer: they are sent again.
    """

    def __init__(self, path: Path) -> None:
        self._owed_frames: dict[bytes, bytes] = {}
        self._reported_users: set[tuple[sgip.SequenceNumber, str]] = set()
        for line in _whole_lines(path):
            sign, text, *_ = line.split("\t")
            if sign == "+":
                self._remember(bytes.fromhex(text))
            else:
                self._owed_frames.pop(bytes.fromhex(text), None)
        self._file = path.open("a", encoding="ascii", buffering=_BUFFER)

    @property
    def owed_frames(self) -> list[bytes]:
        """Frames without an answer, the oldest first."""
        return list(self._owed_frames.values())

    def unreported_users(self, log: Path) -> Iterator[tuple[sgip.SequenceNumber, str]]:
        """Submits and users that the log has as accepted, but that have no Report after a kill."""
        for submit, user, result in read_users(log):
            if not result and (submit, user) not in self._reported_users:
                yield submit, user

    def put(self, frame: bytes) -> None:
        self._remember(frame)
        self._file.write(f"+\t{frame.hex()}\n")

    def note_answer(self, frame: bytes, result: int) -> None:
        # A refusal for now: the frame is still owed.
        if result not in sgip.RETRY_RESULTS:
            self._owed_frames.pop(frame[_SEQUENCE], None)
            self._file.write(f"-\t{frame[_SEQUENCE].hex()}\t{result}\n")

    def flush(self) -> None:
        """Give written lines to the operating system, which keeps them after a kill."""
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _remember(self, frame: bytes) -> None:
        self._owed_frames[frame[_SEQUENCE]] = frame
        command = sgip.decode(frame)
        if isinstance(command, sgip.Report):
            self._reported_users.add((command.submit_sequence, command.user_number))


class Outbox:
    """Sends over the first of `links()` that takes more. No frame is dropped before its response,
    with a `journal` not even by a kill.

    `answers` counts the responses by their Result.
    """

    def __init__(
        self,
        links: Callable[[], Sequence[Connection]],
        *,
        is_doubling: bool = False,
        journal: Journal | None = None,
    ) -> None:
        self._links, self._is_doubling, self._journal = links, is_doubling, journal
        self._waiting: deque[bytes] = deque(journal.owed_frames if journal else ())
        self.answers: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, command: sgip.Report | sgip.Deliver) -> None:
        frame = command.encode()
        self._waiting.append(frame)
        if self._journal:
            self._journal.put(frame)

    def pump(self) -> None:
        # Write a frame to the journal before sending it: a kill may come before its answer.
        if self._journal:
            self._journal.flush()
        for link in self._links():
            for _ in range(min(link.capacity, len(self._waiting))):
                frame = self._waiting.popleft()
                link.send(frame)
                if self._is_doubling:
                    link.write_raw(frame)

    def take(self, events: list[sgip.Event]) -> None:
        """Note responses, and take back frames without a response."""
        for event in events:
            if type(event) is sgip.Answered:
                result: int = event.response.result  # type: ignore[attr-defined]
                self.answers[result] = self.answers.get(result, 0) + 1
                if self._journal:
                    self._journal.note_answer(event.frame, result)
                if result in sgip.RETRY_RESULTS:  # the same sequence is sent later
                    self._waiting.append(event.frame)
            elif type(event) is sgip.TimedOut:
                self._waiting.append(event.frame)
            elif type(event) is sgip.Closed:  # in front, in their old order
                self._waiting.extendleft(frame for _, frame in reversed(event.unanswered))
