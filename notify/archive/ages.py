"""How old a message must be for what."""

from __future__ import annotations

from django.conf import settings

from msgplatform.core.archive.ages import DAY
from notify.limits import MAX_DELAY_SECONDS

# A message that could not move is looked at again when it is this much older, then twice as much,
# and so on: one that is held for ever is looked at some twenty times in its life.
_FIRST_STEP_SECONDS = 60.0
_LONGEST_SECONDS = 20 * 365 * DAY
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


def looks() -> list[float]:
    """The ages (seconds, ascending) at which a message is looked at."""
    found = set()
    for first in (keep(), keep_failed()):
        found.add(first)
        step = _FIRST_STEP_SECONDS
        while step < _LONGEST_SECONDS:
            found.add(first + step)
            step *= 2
    return sorted(found)
