"""A client for msgplatform: publish events, send texts, follow them, verify what is delivered.

`Client` and `AsyncClient` have the usual calls. `msgplatform_client.generated` has every operation
of the platform's API and its types; they are made from its OpenAPI document.
"""

from .answers import MessageFilters
from .async_client import AsyncClient
from .client import Client
from .errors import (
    KeyConflict,
    NotAuthorized,
    NotFound,
    NotNow,
    NotThePlatform,
    OutcomeUnknown,
    PlatformError,
    ProblemError,
    Refused,
    Throttled,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from .events import Event
from .webhooks import Delivery, WebhookVerificationError, verify

__all__ = [
    "AsyncClient",
    "Client",
    "Delivery",
    "Event",
    "KeyConflict",
    "MessageFilters",
    "NotAuthorized",
    "NotFound",
    "NotNow",
    "NotThePlatform",
    "OutcomeUnknown",
    "PlatformError",
    "ProblemError",
    "Refused",
    "Throttled",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "WebhookVerificationError",
    "verify",
]
