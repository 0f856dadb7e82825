"""The errors of the platform: Permanent ones, which repeating cannot help, and Temporary ones.

UNAVAILABLE are the errors that mean "a server does not answer": a caller that catches one waits and
goes on, never exits, and blames no item.
"""

from collections.abc import Mapping

from django.db.utils import InterfaceError, OperationalError
from redis.exceptions import RedisError


class PlatformError(Exception):
    """Root of all errors that the platform raises on purpose."""


class Permanent(PlatformError):
    """Repeating cannot help."""


class InvalidInput(Permanent):
    """The caller must change the request; `field` says where.

    `code` is the stable name of a rejection in a verdict; a flow's subclass sets its own.
    """

    code = "invalid"

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Conflict(Permanent):
    """The same idempotency key came with another payload; `first_id` is the first message's id, ''
    if unknown."""

    code = "conflict"
    field = "idempotency_key"

    def __init__(self, message: str = "", first_id: str = "") -> None:
        first = f" (message {first_id})" if first_id else ""
        super().__init__(
            message
            or f"this idempotency key was used for another request{first}; use a new key for a new "
            "one"
        )
        self.first_id = first_id


class Changed(Permanent):
    """An object was changed after the caller read it. `differences`: field → {"stored": its value,
    "sent": the caller's value}."""

    def __init__(
        self, message: str, differences: Mapping[str, Mapping[str, object]] | None = None
    ) -> None:
        super().__init__(message)
        self.differences = differences or {}


class Undecryptable(Permanent):
    """No key of ENCRYPTION_KEY reads a stored secret."""


class Temporary(PlatformError):
    """Repeating later can help."""


class Unavailable(Temporary):
    """Redis or the database does not answer."""


class OutcomeUnknown(Temporary):
    """The outcome is not known: repeat with the same idempotency key."""


class LeaseLost(Temporary):
    """Another process owns the claim now."""


class NotNow(Temporary):
    """The request is impossible at present; the message says why."""


class AlreadyListening(NotNow):
    """Another listener has the place, free after `seconds` unless that listener asks again."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


UNAVAILABLE = (OperationalError, InterfaceError, RedisError, Temporary)
