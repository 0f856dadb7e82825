"""What a simulated SMG sends to an SP: Reports and MOs, until they are answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from gateway.net.connection import Connection
from gateway.sgip import RETRY_RESULTS, Answered, Closed, Deliver, Event, Report, TimedOut
from gateway.simulator.journal import Journal


class Outbox:
    """Sends over the first of `links()` that takes more; nothing is dropped before its response,
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
        self._links, self._twice, self._journal = links, is_doubling, journal
        self._waiting: deque[bytes] = deque(journal.owed if journal else ())
        self.answers: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, command: Report | Deliver) -> None:
        frame = command.encode()
        self._waiting.append(frame)
        if self._journal:
            self._journal.put(frame)

    def pump(self) -> None:
        # What is sent must be in the journal: a kill may come before its answer does.
        if self._journal:
            self._journal.flush()
        for link in self._links():
            for _ in range(min(link.capacity, len(self._waiting))):
                frame = self._waiting.popleft()
                link.send(frame)
                if self._twice:
                    link.write_raw(frame)

    def take(self, events: list[Event]) -> None:
        """Notes responses, and takes back what got none."""
        for event in events:
            if type(event) is Answered:
                result: int = event.response.result  # type: ignore[attr-defined]
                self.answers[result] = self.answers.get(result, 0) + 1
                if self._journal:
                    self._journal.answered(event.frame, result)
                if result in RETRY_RESULTS:  # the same sequence, later
                    self._waiting.append(event.frame)
            elif type(event) is TimedOut:
                self._waiting.append(event.frame)
            elif type(event) is Closed:  # in front, in their order
                self._waiting.extendleft(frame for _, frame in reversed(event.unanswered))
