"""What a Submit_Resp means for its messages."""

from __future__ import annotations

from gateway.lifecycle.messages import Response
from gateway.sgip import RETRY_RESULTS, Result

ACCEPTED, AGAIN, REFUSED = "accepted", "again", "refused"
# No answer: the same bytes go out again when nobody else has sent them for long enough.
UNANSWERED = "unanswered"
# The sequence was used: by another command, or by these bytes if another process repeated them.
USED = "used"
# How often a message goes out under a new sequence before it ends as failed.
MAX_TRIES = 30
_FIRST_DELAY, _MAX_DELAY = 1.0, 60.0  # seconds


def verdict(result: int, *, is_repeated: bool) -> str:
    """`repeated`: the same bytes may have been written before, so that a refusal of the sequence
    says that they were taken then, and a busy gateway says nothing about that."""
    if result == Result.OK or (result == Result.SEQUENCE and is_repeated):
        return ACCEPTED
    if result == Result.SEQUENCE:
        return USED
    if result in RETRY_RESULTS:
        return UNANSWERED if is_repeated else AGAIN
    return REFUSED


def response(name: str, result: int, *, is_repeated: bool, tries: int) -> Response:
    """`tries` is how often the messages were put off already: each time twice as long."""
    delay = min(_MAX_DELAY, _FIRST_DELAY * 2.0 ** min(tries, 10))
    return Response(name, result, verdict(result, is_repeated=is_repeated), delay)
