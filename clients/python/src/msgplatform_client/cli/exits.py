"""Exit codes of `msgp`, for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from ..errors import NotAuthorized, PlatformError


class Exit(IntEnum):
    OK = 0
    FAILED = 1  # refused, or it ended otherwise than it should
    USAGE = 2  # the command itself is wrong
    FORBIDDEN = 3  # not logged in, or the key may not do this
    UNREACHABLE = 4  # no answer that helps: repeat it later
    TIMEOUT = 5  # the time that was set is over, and it has not ended
    INTERRUPTED = 130  # Ctrl-C, as shells have it


class Failure(Exception):
    """A command cannot go on; the text is a sentence for its user, `details` are more of them."""

    def __init__(self, message: str, code: Exit = Exit.FAILED, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code, self.details = code, details


def code_of(error: PlatformError) -> Exit:
    """The exit code that stands for an error of the client."""
    if isinstance(error, NotAuthorized):
        return Exit.FORBIDDEN
    return Exit.FAILED if error.is_permanent else Exit.UNREACHABLE
