"""The log policy of a subscription: the attempts whose answer is kept, and for how long.

An answer is its headers and its body, as far as the log of attempts holds them. Status, time and
error class of an attempt are not part of the answer, and always stay.
"""

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from msgplatform.core.archive.description import DAY

MAX_DAYS = 3650
# The ids of attempts are given out before their transaction commits: answers that are younger may
# appear behind the cursor of the removal.
_MIN_SECONDS = 3600.0


class Kept(TextChoices):
    ALL = "all", pgettext_lazy("answers", "of all attempts")
    FAILURES = "failures", _("of failed attempts only")
    NONE = "none", pgettext_lazy("answers", "none")


def is_kept(policy: str, is_delivered: bool) -> bool:
    """True if the answer to an attempt is kept. A policy of a later version keeps none."""
    return policy == Kept.ALL or (policy == Kept.FAILURES and not is_delivered)


def keep_seconds(policy: str, days: int | None) -> float | None:
    """Seconds until answers are removed; None: answers are kept as long as their message."""
    if policy == Kept.NONE:
        return _MIN_SECONDS
    return None if days is None else days * DAY
