"""Counters: by minute, and the minutes added up to hours and days.

`msgplatform.monitor.counters` adds up and deletes, `msgplatform.monitor.statistics` reads.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar, TypeVar

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from msgplatform.core.data import sql

# The counters in which each message counts once. The counters of a dimension that is counted apart
# have negative subjects.
WHOLE = models.Q(subject__gte=0)
# (business system, subject, name) of a counter.
_Key = TypeVar("_Key", bound=tuple[int, int, str])


class Counter(models.Model):
    """How often something happened in one step of time, per flow, business system and subject."""

    step: ClassVar[str]  # the column that has the start of the step

    flow = models.CharField(_("flow"), max_length=16)
    biz_id = models.BigIntegerField(_("system"))
    subject = models.BigIntegerField(
        _("subject"), default=0, help_text=_("The subscription, gateway or CRM; 0: none")
    )
    name = models.CharField(_("counter"), max_length=32)
    value = models.BigIntegerField(_("value"), default=0)

    class Meta:
        abstract = True

    @classmethod
    def add_to(cls, step: datetime | date, flow: str, counts: Mapping[_Key, int]) -> None:
        """Add counts to this step: (system, subject, name) → count.

        Rows are sorted, so that two processes that count the same keys cannot deadlock.
        """
        at = step if isinstance(step, datetime) else step.isoformat()
        sql.add_counters(
            cls._meta.db_table,
            (cls.step, "flow", "biz_id", "subject", "name"),
            [((at, flow, *key), value) for key, value in counts.items() if value],
        )


class MinuteCounter(Counter):
    """How often something happened in one minute, per flow, business system and subject."""

    step = "minute"
    minute = models.DateTimeField(_("minute"))

    class Meta:
        verbose_name = _("counter")
        verbose_name_plural = _("counters")
        constraints = [
            models.UniqueConstraint(
                fields=["minute", "flow", "biz_id", "subject", "name"], name="minute_counter_key"
            )
        ]
        # One subscription's chart must not read the minutes of all subscriptions.
        indexes = [
            models.Index(fields=["flow", "subject", "minute"], name="minute_counter_subject")
        ]

    def __str__(self) -> str:
        return f"{self.flow}.{self.name} {self.minute:%F %H:%M}"

    @classmethod
    def add(cls, flow: str, counts: Mapping[_Key, int], now: datetime) -> None:
        """Add to the minute of `now` (the database's time): (system, subject, name) → how many."""
        cls.add_to(now.replace(second=0, microsecond=0), flow, counts)

    @classmethod
    def correct(cls, flow: str, counts: Mapping[_Key, int], at: datetime, now: datetime) -> None:
        """Add counts, maybe negative, to an earlier minute, and to its hour and day if these were
        added up."""
        cls.add(flow, counts, at)
        hours_end = HourCounter.done_until()
        if hours_end is not None and at < hours_end:
            HourCounter.add_to(HourCounter.of(at), flow, counts)
        day = DayCounter.of(at)
        if day < DayCounter.of(now - DayCounter.OPEN_FOR):
            DayCounter.add_to(day, flow, counts)


class HourCounter(Counter):
    """The sums of the minutes of an hour (UTC); `msgplatform.monitor.counters` makes them.

    Hours are added up in order, each in one transaction: all hours before the newest one are here.
    """

    # An hour stays open for this long after its end: transactions that began in it may still
    # commit.
    OPEN_FOR = timedelta(minutes=30)

    step = "hour"
    hour = models.DateTimeField(_("hour"))

    class Meta:
        verbose_name = _("hourly counter")
        verbose_name_plural = _("hourly counters")
        default_permissions = ()  # the minutes' permissions hold
        constraints = [
            models.UniqueConstraint(
                fields=["hour", "flow", "biz_id", "subject", "name"], name="hour_counter_key"
            )
        ]
        # The second index covers all columns that statistics of a flow read.
        indexes = [
            models.Index(fields=["flow", "subject", "hour"], name="hour_counter_subject"),
            models.Index(
                fields=["flow", "hour", "name", "biz_id", "subject", "value"],
                name="hour_counter_flow",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.flow}.{self.name} {self.hour:%F %H}"

    @staticmethod
    def of(moment: datetime) -> datetime:
        """The start of the hour that this moment lies in."""
        return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)

    @classmethod
    def done_until(cls) -> datetime | None:
        """The end of the last hour that was added up, or None. Later hours have only minutes."""
        last: datetime | None = cls.objects.aggregate(last=models.Max("hour"))["last"]
        return None if last is None else last + timedelta(hours=1)


class DayCounter(Counter):
    """The minutes of a day (in settings.TIME_ZONE) added up; see `msgplatform.monitor.counters`."""

    # A day is still computed anew for this long after midnight.
    OPEN_FOR = timedelta(hours=1)

    step = "day"
    day = models.DateField(_("day"))

    class Meta:
        verbose_name = _("daily counter")
        verbose_name_plural = _("daily counters")
        constraints = [
            models.UniqueConstraint(
                fields=["day", "flow", "biz_id", "subject", "name"], name="day_counter_key"
            )
        ]
        indexes = [
            models.Index(fields=["flow", "subject", "day"], name="day_counter_subject"),
            models.Index(
                fields=["flow", "day", "name", "biz_id", "subject", "value"],
                name="day_counter_flow",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.flow}.{self.name} {self.day:%F}"

    @staticmethod
    def of(moment: datetime) -> date:
        """The day that this moment lies in."""
        return timezone.localtime(moment, timezone.get_default_timezone()).date()
