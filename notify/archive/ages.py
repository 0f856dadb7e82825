"""How old a message must be for what."""

from __future__ import annotations

from django.conf import settings

from msgplatform.core.archive.ages import DAY
from notify.subscriptions.limits import MAX_DELAY_SECONDS

# A repeat of a request may come as late as the last retry of a message that depends on it.
_KEY_MARGIN_SECONDS = MAX_DELAY_SECONDS + DAY


def keep() -> float:
    """Seconds after which a message moves whose copies are all delivered or skipped."""
    return float(settings.NOTIFY_KEEP_DAYS) * DAY


def keep_failed() -> float:
    """Seconds after which a message with a failed copy moves; never less than `keep`."""
    return max(float(settings.NOTIFY_KEEP_FAILED_DAYS) * DAY, keep())


def keep_archived() -> float | None:
    """Seconds after which an archived message may go, counted from its acceptance; None: never."""
    days = settings.NOTIFY_ARCHIVE_DAYS
    return max(days * DAY, keep_failed()) if days else None


def keep_keys() -> float:
    """Seconds for which an idempotency key is known."""
    return keep_failed() + _KEY_MARGIN_SECONDS
