"""System checks of Notify's settings."""

import math
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks

from msgplatform import env
from msgplatform.core.archive.description import DAY
from notify.archive import retention
from notify.models.subscriptions import DEFAULT_SCHEDULE
from notify.subscriptions.limits import LEASE_MARGIN_SECONDS

_DAYS_TO_ACT = 7


@checks.register(env.CHECKS_TAG)
def lease_outlasts_request(
    app_configs: Sequence[Any] | None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """A lease that ends during a request lets a second sender deliver the same message."""
    minimum = 2 * settings.NOTIFY_TIMEOUT_SECONDS + LEASE_MARGIN_SECONDS
    lease = settings.NOTIFY_LEASE_SECONDS
    if lease >= minimum:
        return []
    return [
        checks.Error(
            f"NOTIFY_LEASE_SECONDS={lease} is shorter than twice the time that a "
            f"request may take (NOTIFY_TIMEOUT_SECONDS={settings.NOTIFY_TIMEOUT_SECONDS:g})",
            hint=f"Set NOTIFY_LEASE_SECONDS to {minimum:g} or more, better to several times that.",
            id="notify.E001",
        )
    ]


@checks.register(env.CHECKS_TAG)
def archive_outlasts_retries(
    app_configs: Sequence[Any] | None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Check that the archive keeps failed messages until a person has had time to act."""
    days, schedule = settings.NOTIFY_ARCHIVE_DAYS, sum(DEFAULT_SCHEDULE)
    min_days = math.ceil(schedule / DAY) + _DAYS_TO_ACT
    # The archive keeps each message at least until failed messages may move.
    if days == 0 or max(days, retention.keep_failed() / DAY) >= min_days:
        return []
    return [
        checks.Error(
            f"NOTIFY_ARCHIVE_DAYS={days} is too short: the default schedule retries for "
            f"{math.ceil(schedule / 3600)} hours, and failures should be there for "
            f"{_DAYS_TO_ACT} more days, so that a person can resend them",
            hint=f"Set NOTIFY_ARCHIVE_DAYS to {min_days} or more, or to 0 (kept for ever).",
            obj="NOTIFY_ARCHIVE_DAYS",
            id="notify.E002",
        )
    ]
