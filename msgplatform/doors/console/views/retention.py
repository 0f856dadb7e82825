"""The retention of each kind of data: its settings, its oldest row and the next deletion."""

from collections.abc import Iterator
from datetime import datetime

import msgspec
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from msgplatform import person_limits
from msgplatform.core import features, flows
from msgplatform.core.archive import kept
from msgplatform.core.archive.description import DAY
from msgplatform.core.archive.kept import KeptData
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.text import Text
from msgplatform.doors.console.views.page import page, staff_view, visible
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, AuditLog, DayCounter, MessageTrace, MinuteCounter


class RetentionLine(msgspec.Struct, frozen=True):
    """One line of the table. `settings` are (name, value). If `is_readable` is false, the oldest
    row could not be read."""

    flow: Text
    title: Text
    settings: list[tuple[str, object]]
    seconds: float | None
    ending: Text
    oldest: datetime | None
    next_at: datetime | None
    is_readable: bool = True


def lines() -> Iterator[RetentionLine]:
    """A line for each kind of data, flow by flow, then the platform's own."""
    for flow in flows.all():
        for data in flow.kept():
            yield _line(flow.title, data)
    platform_data = [
        kept.of_column(
            _("statistics by the minute and the hour"), MinuteCounter, "minute",
            lambda: settings.MINUTE_COUNTER_DAYS * DAY, "MINUTE_COUNTER_DAYS",
        ),
        kept.of_column(
            _("statistics by the day"), DayCounter, "day",
            lambda: settings.DAY_COUNTER_DAYS * DAY, "DAY_COUNTER_DAYS",
        ),
        *features.gather("models", "kept_data"),
        kept.of_ids(
            _("traces of messages"), MessageTrace, lambda: settings.TRACE_DAYS * DAY, "TRACE_DAYS"
        ),
        kept.of_column(_("alerts"), Alert, "first_at", kept.for_ever),
        kept.of_column(_("audit log"), AuditLog, "at", kept.for_ever),
        kept.of_column(_("bulk jobs"), BulkJob, "created_at", kept.for_ever),
    ]  # fmt: skip
    for data in platform_data:
        yield _line(_("Platform"), data)


def _line(flow: Text, data: KeptData) -> RetentionLine:
    values = [(name, getattr(settings, name)) for name in data.settings]
    try:
        oldest, is_readable = data.oldest(), True
    except (*UNAVAILABLE, RedisError):
        oldest, is_readable = None, False
    return RetentionLine(
        flow, data.title, values, data.seconds(), data.ending, oldest,
        data.next_at(oldest) if oldest else None, is_readable,
    )  # fmt: skip


def may_open(request: HttpRequest) -> bool:
    """True for people who may see the messages of some flow, of all business systems."""
    return bool(visible(request)) and person_limits.systems_of(request) is None


@staff_view("GET")
def retention(request: HttpRequest) -> HttpResponse:
    if not may_open(request):
        raise PermissionDenied
    return page(request, "retention.html", _("Retention"), lines=list(lines()))
