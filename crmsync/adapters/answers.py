"""What an HTTP status means for the records of one call."""

from __future__ import annotations

from django.utils.translation import gettext as _

from crmsync.adapters import client
from crmsync.adapters.outcomes import (
    Auth,
    Conflict,
    Invalid,
    Outcome,
    Refused,
    Retry,
    Throttled,
    Unknown,
)
from msgplatform.core.http.engine import Response

# Errors before a byte was sent. Those of the first kind go away by themselves; those of the second
# need a person.
_NOT_SENT = ("dns", "connect", "tls", "unsent")
_NEVER_SENT = ("address_forbidden", "bad_url")
# The wait for statuses that ask for one without saying how long.
_LOCKED_SECONDS = 2.0


def outcome_of_status(
    response: Response, size: int, is_upsert: bool, default_wait: float = client.THROTTLED_SECONDS
) -> Outcome | None:
    """What the status alone means for `size` records; None for a whole answer with 2xx.

    `throttled` is how long to wait in seconds after a 429 that does not say so.
    """
    if client.is_whole(response):
        return None
    status, text = response.status, client.describe(response)
    if not status or response.error:
        return _broken(response, text)
    if status >= 500:
        # The server may have failed after it had stored the record.
        wait = client.wait_seconds(response)
        return Retry(wait, text) if is_upsert else Unknown(text)
    if status == 429:
        return Throttled(client.wait_seconds(response) or default_wait)
    if status in (401, 403, 407):
        return Auth(text, of_record=status == 403)
    if status in (408, 423, 425, 477):
        return Retry(client.wait_seconds(response) or _LOCKED_SECONDS, text)
    if 300 <= status < 400:
        return Auth(_("%s. The CRM's address has changed; redirects are not followed.") % text)
    if size > 1:
        return Refused(text)
    return Conflict("") if status == 409 else Invalid("", text)


def _broken(response: Response, text: str) -> Outcome:
    """No answer, or one that broke off."""
    if response.error in _NEVER_SENT:
        return Auth(_("The address cannot be called: %s") % text)
    if response.error in _NOT_SENT and not response.status:
        return Retry(0.0, text)
    return Unknown(text or response.error)
