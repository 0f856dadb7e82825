"""When a message of a rule may go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgplatform.models import AlertRule
from msgplatform.models.alerts_out import Severity


def end_of_quiet(rule: AlertRule, now: datetime) -> datetime | None:
    """The end of the quiet hours that `now` lies in; None outside of them."""
    begins, ends = rule.quiet_from, rule.quiet_until
    if begins is None or ends is None:
        return None
    local = now.astimezone(ZoneInfo(rule.time_zone))
    time = local.time().replace(tzinfo=None)
    is_over_midnight = begins > ends
    is_quiet = time >= begins or time < ends if is_over_midnight else begins <= time < ends
    if not is_quiet:
        return None
    day = local.date() + timedelta(days=1 if time >= ends else 0)
    return datetime.combine(day, ends, tzinfo=local.tzinfo)


class Due(NamedTuple):
    """The period in which news is to be sent: it joins no message that goes before or after it."""

    earliest: datetime
    latest: datetime


def due(rule: AlertRule, severity: Severity, now: datetime, can_drop: bool = True) -> Due | None:
    """When news of this severity is to be sent; None if it is dropped. Without `can_drop` it waits
    for the end of quiet hours that drop it."""
    window = timedelta(seconds=rule.group_seconds)
    quiet_until = end_of_quiet(rule, now)
    if quiet_until is None or severity.rank >= Severity(rule.quiet_passes_from).rank:
        return Due(now, now + window)
    drops_below = rule.quiet_drops_below if can_drop else ""
    if drops_below and severity.rank < Severity(drops_below).rank:
        return None
    return Due(quiet_until, max(quiet_until, now + window))


def latest(rule: AlertRule, severity: Severity, now: datetime) -> datetime:
    """When its message goes at the latest; the end of all time if it is dropped."""
    period = due(rule, severity, now)
    return period.latest if period else datetime.max.replace(tzinfo=UTC)
