"""What the scheduler measured and decided."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class FeedPace(models.Model):
    """One of the scheduler's decisions; a row every ten seconds while there is work.

    `load` is the largest ratio of what was measured to its target; above 1 dispatchers give way.
    `latency` and `baseline` are milliseconds.
    """

    class Cause(models.TextChoices):
        """What the largest load was measured on."""

        NONE = "", _("nobody else works")
        STATEMENTS = "stmt", _("statements of others")
        LATENCY = "latency", _("the database's latency")
        CPU = "cpu", _("this machine's processors")

    at = models.DateTimeField(_("time"), primary_key=True)
    share = models.FloatField(_("share"))  # of its time that a dispatcher works, 0 to 1
    events = models.PositiveSmallIntegerField(_("events in a batch"))
    load = models.FloatField(_("load"))
    cause = models.CharField(_("because of"), max_length=8, choices=Cause, blank=True)
    latency = models.FloatField(_("latency, ms"))
    baseline = models.FloatField(_("latency at rest, ms"))
    statements = models.FloatField(_("statements of others"))  # running at once, on average
    cpu = models.FloatField(_("processors at work"))  # 0 to 1
    backlog = models.IntegerField(_("events waiting"))  # counted up to a bound
    oldest = models.FloatField(_("oldest event, s"))

    class Meta:
        db_table = "feed_pace"
        verbose_name = _("scheduler's decision")
        verbose_name_plural = _("scheduler's decisions")
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"{self.at:%F %T} {self.share:.2f}"
