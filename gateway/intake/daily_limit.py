"""How many messages an account may send a day, counted where all processes see it."""

from __future__ import annotations

from django.utils import timezone

from gateway.connections import sms_redis
from gateway.directory import Account
from gateway.lifecycle import keys
from msgplatform.core.errors import InvalidInput
from msgplatform.core.rates.shared import Quota

_KEPT_SECONDS = 2 * 86_400
_quota = Quota(sms_redis)


class LimitReached(InvalidInput):
    """Not today."""

    code = "limit"


def spend(account: Account, count: int) -> None:
    """Count messages of today (the platform's time zone). Raises LimitReached beyond the limit.

    A call that is refused later has been counted: a limit errs on the careful side.
    """
    limit = account.row.daily_limit
    if not limit:
        return
    name = keys.spent(account.id, timezone.localdate().isoformat())
    if _quota.spend(name, limit, _KEPT_SECONDS, count):
        raise LimitReached(f"the account's limit of {limit} messages a day is reached", "account")
