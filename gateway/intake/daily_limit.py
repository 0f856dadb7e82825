"""The limit of messages that an account may send a day. The script that stores messages counts them
(accept.lua), and counts new calls only."""

from __future__ import annotations

import math
from datetime import datetime, time, timedelta

from django.utils import timezone
from django.utils.translation import gettext_noop as _

from gateway.directory import Account
from gateway.lifecycle import keys
from gateway.lifecycle.store import Allowance
from msgplatform.core.errors import InvalidInput
from msgplatform.core.lazy_text import lazy_message


class LimitReached(InvalidInput):
    """The day has no room for the messages; `wait` are the seconds until tomorrow."""

    code = "limit"

    def __init__(self, limit: int, count: int) -> None:
        words = _("the account's limit of %(limit)d messages a day has no room for another one")
        if count > 1:
            words = _(
                "the account's limit of %(limit)d messages a day has no room for %(more)d more"
            )
        super().__init__(lazy_message(words, limit=limit, more=count), "account")
        self.wait = seconds_to_tomorrow(_now())


def allowance(account: Account, count: int) -> Allowance | None:
    """The counter of today's messages (in the platform's time zone) and its limit; None without a
    limit. Raises InvalidInput for more messages than the account's limit ever allows."""
    limit = account.row.daily_limit
    if not limit:
        return None
    if count > limit:
        words = lazy_message(_("the account may send to %(limit)d recipients a day"), limit=limit)
        raise InvalidInput(words, "to")
    return Allowance(keys.spent(account.id, _now().date().isoformat()), limit)


def seconds_to_tomorrow(now: datetime) -> int:
    """Until midnight in the zone of `now`, rounded up."""
    midnight = datetime.combine(now.date() + timedelta(days=1), time.min, now.tzinfo)
    # Times of one zone are subtracted as its clocks show them, also when these are changed today.
    return math.ceil(midnight.timestamp() - now.timestamp())


def _now() -> datetime:
    # A person who sends from the console may have another zone active.
    return timezone.localtime(timezone=timezone.get_default_timezone())
