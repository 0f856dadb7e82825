"""The times at which a policy looks for changes: an interval or a crontab line, and hours of the
day. Everything is in the time zone of the platform (TIME_ZONE).
"""

import re
from collections.abc import Sequence
from datetime import datetime, time, timedelta

import msgspec
from cronsim import CronSim, CronSimError
from django.utils import timezone
from django.utils.translation import gettext as _

from msgplatform.core.errors import InvalidInput

_SPAN = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]|24):([0-5]\d)")
_DAY = timedelta(days=1)


class Span(msgspec.Struct, frozen=True):
    """Hours of a day, from `begin` until before `end`; past midnight when `end` is the earlier."""

    begin: time
    end: time

    def has(self, moment: time) -> bool:
        if self.begin < self.end:
            return self.begin <= moment < self.end
        return moment >= self.begin or moment < self.end


def spans(text: str) -> Sequence[Span]:
    """The spans in a text such as `08:00-12:00, 13:00-18:00`. Raises InvalidInput."""
    all_spans = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _SPAN.fullmatch(part)
        if not match or (match[3] == "24" and match[4] != "00"):
            raise InvalidInput(
                _("%s is no span of hours: write it as 08:00-20:00.") % part, "hours"
            )
        begin = time(int(match[1]), int(match[2]))
        # 24:00 is 00:00 of the next day, which `Span.has` takes for past midnight.
        end = time(int(match[3]) % 24, int(match[4]))
        all_spans.append(Span(begin, end))
    return all_spans


def is_open(hours: str, moment: datetime) -> bool:
    """True if a moment is within the hours. Raises InvalidInput."""
    open_spans = spans(hours)
    # Hours are times of a wall clock.
    local = timezone.localtime(moment).time()
    return not open_spans or any(span.has(local) for span in open_spans)


def next_look(
    now: datetime, last: datetime | None, interval: float, cron: str, hours: str
) -> datetime:
    """The time of the next look, at `now` or later; `last` is the look before.

    A crontab line replaces the interval. A time outside of the hours moves to their next beginning.
    Raises InvalidInput.
    """
    if cron:
        # A policy without an earlier look looks at once, whatever its crontab line says. A policy
        # that was held up looks now, not at a time that is over.
        due = max(now, next_time(cron, last)) if last else now
    else:
        due = max(now, last + timedelta(seconds=interval)) if last else now
    if is_open(hours, due):
        return due
    local = timezone.localtime(due)
    begins = [
        timezone.make_aware(datetime.combine(day, span.begin), local.tzinfo)
        # All spans of today may be over.
        for day in (local.date(), local.date() + _DAY)
        for span in spans(hours)
    ]
    return min(begin for begin in begins if begin >= due)


def next_time(cron: str, after: datetime) -> datetime:
    """The next time of a crontab line. Raises InvalidInput for text that is none, or whose time
    never comes."""
    try:
        return next(CronSim(cron, timezone.localtime(after)))
    except StopIteration:
        raise InvalidInput(_("The schedule %s never comes.") % cron, "cron") from None
    except CronSimError as error:
        words = _("%(text)s is no line of a crontab (%(why)s): write it as */5 8-20 * * 1-5.")
        raise InvalidInput(words % {"text": cron, "why": error}, "cron") from None
