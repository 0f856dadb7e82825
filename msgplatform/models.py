"""What all flows share: who calls (Biz, ApiKey), bulk jobs, alerts, counters, the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from msgplatform.core.data import ids, sql
from msgplatform.core.fields import ExactCharField

# (business system, subject, name) of a counter.
_Key = TypeVar("_Key", bound=tuple[int, int, str])


class Biz(models.Model):
    """A business system: it owns API keys, publishes events, sends SMS, posts, submits leads."""

    name = models.SlugField(
        _("name"), max_length=64, unique=True, help_text=_("Short, stable, lower case: orders")
    )
    title = models.CharField(_("title"), max_length=200, blank=True, default="")
    enabled = models.BooleanField(
        _("enabled"), default=True, help_text=_("Off: its API keys are refused.")
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "biz"
        verbose_name = _("business system")
        verbose_name_plural = _("business systems")
        ordering = ["name"]

    def __str__(self) -> str:
        return self.title or self.name


class ApiKey(models.Model):
    """A key of a business system. Only its SHA-256 is stored; the key itself is shown once.

    A plain hash is enough because the secret part has 256 random bits: nothing to guess.
    """

    biz = models.ForeignKey(Biz, models.CASCADE, related_name="api_keys", verbose_name=_("system"))
    name = models.CharField(_("name"), max_length=100, help_text=_("Where it is used"))
    # Exact: in MySQL's default collation two prefixes that differ in case would be one.
    prefix = ExactCharField(_("prefix"), max_length=16, unique=True, editable=False)
    hash = models.CharField(max_length=64, editable=False)
    scopes = models.JSONField(_("scopes"), default=list, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)

    class Meta:
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class BulkJob(models.Model):
    """An action on many messages of one flow, which `run_bulk` applies page by page."""

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        RUNNING = "running", _("running")
        PAUSED = "paused", _("paused")
        CANCELLED = "cancelled", _("cancelled")
        DONE = "done", _("done")
        FAILED = "failed", _("failed")

    flow = models.CharField(_("flow"), max_length=32)
    action = models.CharField(_("action"), max_length=32, default="requeue")
    filter = models.JSONField(_("filter"), default=dict)
    state = models.CharField(_("state"), max_length=16, choices=State, default=State.PENDING)
    total = models.PositiveBigIntegerField(_("total"), default=0)
    done = models.PositiveBigIntegerField(_("done"), default=0)
    # The flow's own (`core.bulk_cursor`); '' before the first page.
    cursor = models.CharField(max_length=200, blank=True, default="")
    rate = models.PositiveIntegerField(
        _("messages per second"), default=0, help_text=_("0: as fast as it goes")
    )
    error = models.TextField(_("error"), blank=True, default="")
    created_by = models.CharField(_("created by"), max_length=150)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)
    # The runner that has the job now (`core.data.claims`).
    claimed_by = models.CharField(max_length=32, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("bulk job")
        verbose_name_plural = _("bulk jobs")
        ordering = ["-id"]
        indexes = [models.Index(fields=["state", "lease_until"], name="bulk_job_claim")]

    def __str__(self) -> str:
        return f"{self.action} {self.flow} #{self.pk}"


class Alert(models.Model):
    """Something a person must look at. If it is raised again while open, it is counted up."""

    kind = models.CharField(_("kind"), max_length=64)
    subject = models.CharField(_("subject"), max_length=200)
    text = models.TextField(_("text"), blank=True, default="")
    # Set while the alert is open, NULL afterwards: unique among the open ones on every database.
    open_key = ExactCharField(max_length=200, unique=True, null=True, blank=True, editable=False)
    key = ExactCharField(_("key"), max_length=200, db_index=True)
    count = models.PositiveIntegerField(_("count"), default=1)
    first_at = models.DateTimeField(_("first seen"))
    last_at = models.DateTimeField(_("last seen"))
    resolved_at = models.DateTimeField(_("resolved"), null=True, blank=True)

    class Meta:
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        ordering = ["-last_at"]

    def __str__(self) -> str:
        return self.subject


class MinuteCounter(models.Model):
    """How often something happened in one minute, per flow, business system and subject."""

    minute = models.DateTimeField(_("minute"))
    flow = models.CharField(_("flow"), max_length=16)
    biz_id = models.BigIntegerField(_("system"))
    subject = models.BigIntegerField(
        _("subject"), default=0, help_text=_("The subscription, gateway or CRM; 0: none")
    )
    name = models.CharField(_("counter"), max_length=32)
    value = models.BigIntegerField(_("value"), default=0)

    class Meta:
        verbose_name = _("counter")
        verbose_name_plural = _("counters")
        constraints = [
            models.UniqueConstraint(
                fields=["minute", "flow", "biz_id", "subject", "name"], name="minute_counter_key"
            )
        ]
        # So that one subscription's chart does not read the minutes of all subscriptions.
        indexes = [
            models.Index(fields=["flow", "subject", "minute"], name="minute_counter_subject")
        ]

    def __str__(self) -> str:
        return f"{self.flow}.{self.name} {self.minute:%F %H:%M}"

    @classmethod
    def add(cls, flow: str, counts: Mapping[_Key, int], now: datetime) -> None:
        """Add to the minute of `now` (the database's time): (system, subject, name) → how many.

        Rows are sorted, so that two processes that count the same keys cannot deadlock.
        """
        minute = now.replace(second=0, microsecond=0)
        sql.add_counters(
            cls._meta.db_table,
            ("minute", "flow", "biz_id", "subject", "name"),
            [((minute, flow, *key), value) for key, value in counts.items() if value],
        )

    @classmethod
    def correct(cls, flow: str, counts: Mapping[_Key, int], at: datetime, now: datetime) -> None:
        """Add counts, maybe negative ones, to an earlier minute, and to its day if that is over."""
        cls.add(flow, counts, at)
        day, open_day = (
            timezone.localtime(moment, timezone.get_default_timezone()).date()
            for moment in (at, now - DayCounter.OPEN_FOR)
        )
        if day < open_day:
            sql.add_counters(
                DayCounter._meta.db_table,
                ("day", "flow", "biz_id", "subject", "name"),
                [((day.isoformat(), flow, *key), value) for key, value in counts.items() if value],
            )


class DayCounter(models.Model):
    """The minutes of a day (in settings.TIME_ZONE) added up; see `msgplatform.jobs.counters`."""

    # For this long after midnight a day is still computed from its minutes.
    OPEN_FOR = timedelta(hours=1)

    day = models.DateField(_("day"))
    flow = models.CharField(_("flow"), max_length=16)
    biz_id = models.BigIntegerField(_("system"))
    subject = models.BigIntegerField(
        _("subject"), default=0, help_text=_("The subscription, gateway or CRM; 0: none")
    )
    name = models.CharField(_("counter"), max_length=32)
    value = models.BigIntegerField(_("value"), default=0)

    class Meta:
        verbose_name = _("daily counter")
        verbose_name_plural = _("daily counters")
        constraints = [
            models.UniqueConstraint(
                fields=["day", "flow", "biz_id", "subject", "name"], name="day_counter_key"
            )
        ]
        indexes = [models.Index(fields=["flow", "subject", "day"], name="day_counter_subject")]

    def __str__(self) -> str:
        return f"{self.flow}.{self.name} {self.day:%F}"


class AuditLog(models.Model):
    """Who did what in the console or over the API that changed how messages flow."""

    at = models.DateTimeField(_("time"), auto_now_add=True)
    actor = models.CharField(_("who"), max_length=150)
    action = models.CharField(_("action"), max_length=64)
    target = models.CharField(_("on what"), max_length=200)
    detail = models.JSONField(_("detail"), default=dict, blank=True)

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit log")
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.actor}: {self.action} {self.target}"


class IdNode(models.Model):
    """A node number for making ids, leased to one process (see `msgplatform.core.data.ids`)."""

    node = models.PositiveSmallIntegerField(primary_key=True)
    holder = models.CharField(max_length=32, blank=True, default="")
    lease_until = models.DateTimeField(null=True)
    last_tick = models.BigIntegerField(default=0)

    class Meta:
        db_table = ids.NODE_TABLE
        verbose_name = _("id node")

    def __str__(self) -> str:
        return str(self.node)
