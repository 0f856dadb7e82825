"""Submits that a link is to write or has written: each is here once, until it has its response."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from gateway.sgip import Closed


@dataclass(eq=False, slots=True)
class Out:
    """A Submit that is to be written, or was; `repeated`: perhaps not for the first time.

    `tries` is how often its messages were put off, `at` when the link got it, on the loop's clock.
    """

    name: str
    frame: bytes
    tries: int = 0
    repeated: bool = False
    at: float = 0.0


class Outs:
    """None stays for longer than a response may take: Redis hands it out again.

    `ready` are to be written, in this order. All of it runs in the net's loop; others only ask for
    the length.
    """

    def __init__(self, response_timeout: float) -> None:
        self.ready: deque[Out] = deque()
        self._known: dict[str, Out] = {}  # written or ready, without a response
        self._timeout = response_timeout

    def __len__(self) -> int:
        return len(self._known)

    def add(self, out: Out) -> None:
        """What is in flight is not written twice."""
        if out.name not in self._known:
            out.at = self._now()
            self._known[out.name] = out
            self.ready.append(out)

    def forget(self, name: str) -> None:
        """It has its response, or its time is over."""
        self._known.pop(name, None)

    def take_back(self, closed: Closed) -> None:
        """What a connection left without a response comes before what was never written."""
        oldest = self._now() - self._timeout
        for out, _frame in reversed(closed.unanswered):
            out.repeated = True
            if out.at > oldest:
                self.ready.appendleft(out)
            else:
                self.forget(out.name)

    def sweep(self) -> None:
        """Forget what waited for too long."""
        oldest = self._now() - self._timeout
        while self.ready and self.ready[0].at < oldest:
            self.forget(self.ready.popleft().name)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
