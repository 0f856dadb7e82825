"""Submits that a link is to write or has written: each is here once, until it has its response."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from gateway.sgip import Closed


@dataclass(eq=False, slots=True)
class PendingSubmit:
    """A Submit that is to be written, or was; `repeated`: perhaps not for the first time.

    `at`: since then, of the monotonic clock, Redis waits for its response. `tries` is how often its
    messages were put off.
    """

    name: str
    frame: bytes
    at: float
    tries: int = 0
    repeated: bool = False


class PendingSubmits:
    """None is written later than a response may take: Redis has handed it out again, and what
    another sender got for it may have brought its messages into another Submit.

    `ready` are to be written, in this order. All of it runs in the net's loop; others only ask for
    the length.
    """

    def __init__(self, response_timeout: float) -> None:
        self.ready: deque[PendingSubmit] = deque()
        self._known: dict[str, PendingSubmit] = {}  # written or ready, without a response
        self._timeout = response_timeout

    def __len__(self) -> int:
        return len(self._known)

    def add(self, out: PendingSubmit) -> None:
        """What is in flight is not written twice."""
        if out.name not in self._known:
            self._known[out.name] = out
            self.ready.append(out)

    def next(self) -> PendingSubmit | None:
        """The next one to be written."""
        while self.ready:
            out = self.ready.popleft()
            if self._is_in_time(out):
                return out
            self.forget(out.name)
        return None

    def forget(self, name: str) -> None:
        """It has its response, or its time is over."""
        self._known.pop(name, None)

    def take_back(self, closed: Closed) -> None:
        """What a connection left without a response comes before what was never written."""
        for out, _frame in reversed(closed.unanswered):
            out.repeated = True
            if self._is_in_time(out):
                self.ready.appendleft(out)
            else:
                self.forget(out.name)

    def sweep(self) -> None:
        """Forget what waited for too long."""
        while self.ready and not self._is_in_time(self.ready[0]):
            self.forget(self.ready.popleft().name)

    def _is_in_time(self, out: PendingSubmit) -> bool:
        return time.monotonic() - out.at < self._timeout
