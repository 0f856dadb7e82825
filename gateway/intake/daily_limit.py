"""How many messages an account may send a day, counted where all processes see it."""

from __future__ import annotations

import math
from datetime import datetime, time, timedelta

from django.utils import timezone
from django.utils.translation import gettext_noop as _

from gateway.connections import sms_redis
from gateway.directory import Account
from gateway.lifecycle import keys
from msgplatform.core.errors import InvalidInput
from msgplatform.core.rates.shared import Quota
from msgplatform.core.said import say

_KEPT_SECONDS = 2 * 86_400  # a day's count, for clocks and time zones that differ
_quota = Quota(sms_redis)


class LimitReached(InvalidInput):
    """Not today; `wait` are the seconds until tomorrow."""

    code = "limit"

    def __init__(self, limit: int, count: int, wait: int) -> None:
        words = _("the account's limit of %(limit)d messages a day has no room for another one")
        if count > 1:
            words = _(
                "the account's limit of %(limit)d messages a day has no room for %(more)d more"
            )
        super().__init__(say(words, limit=limit, more=count), "account")
        self.wait = wait


def spend(account: Account, count: int) -> None:
    """Count messages of today (the platform's time zone). Raises LimitReached beyond the account's
    limit, and InvalidInput for more than it ever allows.

    A call that cannot be stored after this has been counted all the same: the limit may let through
    a few messages too few, never too many.
    """
    limit = account.row.daily_limit
    if not limit:
        return
    if count > limit:
        words = say(_("the account may send to %(limit)d recipients a day"), limit=limit)
        raise InvalidInput(words, "to")
    # Whoever sends from the console may have another zone active.
    now = timezone.localtime(timezone=timezone.get_default_timezone())
    name = keys.spent(account.id, now.date().isoformat())
    if _quota.spend(name, limit, _KEPT_SECONDS, count):
        raise LimitReached(limit, count, seconds_to_tomorrow(now))


def seconds_to_tomorrow(now: datetime) -> int:
    """Until midnight in the zone of `now`, rounded up."""
    midnight = datetime.combine(now.date() + timedelta(days=1), time.min, now.tzinfo)
    # Times of one zone are subtracted as its clocks show them, also when these are changed today.
    return math.ceil(midnight.timestamp() - now.timestamp())
