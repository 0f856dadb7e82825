"""Submits that a link is to write or has written: each is here once, until it has its response;
and the meaning of a response for the Submit's messages."""

import time
from collections import deque

import msgspec

from gateway.lifecycle.messages import Response
from gateway.sgip import RETRY_RESULTS, Closed, Result

ACCEPTED, RETRY, REFUSED = "accepted", "again", "refused"
# No answer: the same bytes go out again after no sender has written them for long enough.
UNANSWERED = "unanswered"
# The sequence was used by another command, or by the same bytes from another process.
USED = "used"
# Maximum of new sequences for a message before it ends as failed.
MAX_TRIES = 30
_FIRST_DELAY, _MAX_DELAY = 1.0, 60.0  # seconds


class PendingSubmit(msgspec.Struct, eq=False):
    """A Submit that waits or was written. `is_repeated`: perhaps not for the first time.

    Redis waits for its response since `at` (monotonic clock). `tries` is how often its messages
    were put off.
    """

    name: str
    frame: bytes
    at: float
    tries: int = 0
    is_repeated: bool = False


class PendingSubmits:
    """The Submits of a link without a response; `ready` are to be written, in this order.

    No Submit is written later than a response may take: Redis has handed it out again by then, and
    after another sender's answer its messages may be in another Submit. All methods run in the
    net's loop; other threads only ask for the length.
    """

    def __init__(self, response_timeout: float) -> None:
        self.ready: deque[PendingSubmit] = deque()
        self._open_submits: dict[str, PendingSubmit] = {}  # written or ready, without a response
        self._timeout = response_timeout

    def __len__(self) -> int:
        return len(self._open_submits)

    def add(self, submit: PendingSubmit) -> None:
        """Add a Submit, unless it is in flight."""
        if submit.name not in self._open_submits:
            self._open_submits[submit.name] = submit
            self.ready.append(submit)

    def next(self) -> PendingSubmit | None:
        """The next Submit to be written."""
        while self.ready:
            submit = self.ready.popleft()
            if self._is_in_time(submit):
                return submit
            self.forget(submit.name)
        return None

    def forget(self, name: str) -> None:
        """Forget a Submit that has its response, or whose time is over."""
        self._open_submits.pop(name, None)

    def take_back(self, event: Closed) -> None:
        """Write the Submits of a closed connection that have no response again, before all others.

        The oldest of them may be why the gateway closes connections. If it was a repeat, it is left
        to Redis, which hands it out and counts it later; the others are written.
        """
        submits = [submit for submit, _frame in event.unanswered]
        suspect = submits[0] if submits and submits[0].is_repeated else None
        for submit in reversed(submits):
            submit.is_repeated = True
            if submit is not suspect and self._is_in_time(submit):
                self.ready.appendleft(submit)
            else:
                self.forget(submit.name)

    def sweep(self) -> None:
        """Forget Submits that waited for too long."""
        while self.ready and not self._is_in_time(self.ready[0]):
            self.forget(self.ready.popleft().name)

    def _is_in_time(self, submit: PendingSubmit) -> bool:
        return time.monotonic() - submit.at < self._timeout


def response(name: str, result: int, *, is_repeated: bool, tries: int) -> Response:
    """The response to write down, with the meaning of its Result.

    With `is_repeated` the same bytes may have been written before: a refused sequence then says
    that these were accepted, and a busy gateway says nothing. `tries`: how often its messages were
    put off; each time the delay doubles.
    """
    if result == Result.OK or (result == Result.SEQUENCE and is_repeated):
        verdict = ACCEPTED
    elif result == Result.SEQUENCE:
        verdict = USED
    elif result in RETRY_RESULTS:
        verdict = UNANSWERED if is_repeated else RETRY
    else:
        verdict = REFUSED
    delay = min(_MAX_DELAY, _FIRST_DELAY * 2.0 ** min(tries, 10))
    return Response(name, result, verdict, delay)
