"""The outbox as Django models, in the business system's database.

The migration makes the tables from the files in `ddl/`. The models name their app label, so that
the Agent can use them without the installed app.
"""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Content(models.Model):
    id = models.BigAutoField(primary_key=True)
    msg_key = models.CharField(_("key"), max_length=128)
    event_type = models.CharField(_("event type"), max_length=128)
    channel = models.CharField(_("channel"), max_length=64, blank=True, db_default="")
    payload = models.TextField(_("payload"))
    attempts = models.IntegerField(_("attempts"), db_default=0)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.event_type} {self.msg_key}"


class Outbox(Content):
    """An event that waits for the Agent. `next_at` is its due time, or the end of its lease."""

    traceparent = models.CharField("traceparent", max_length=55, blank=True, db_default="")
    created_at = models.DateTimeField(_("created"), db_default=Now())
    next_at = models.DateTimeField(_("next"), db_default=Now())
    claimed_by = models.CharField(_("claimed by"), max_length=32, blank=True, db_default="")
    last_error = models.CharField(_("last error"), max_length=500, blank=True, db_default="")

    class Meta:
        app_label = "outbox"
        db_table = "outbox"
        verbose_name = _("outbox row")
        verbose_name_plural = _("outbox")


class OutboxDead(Content):
    """An event that the intake refused, with the reason."""

    created_at = models.DateTimeField(_("created"))
    code = models.CharField(_("code"), max_length=32)
    reason = models.CharField(_("reason"), max_length=500)
    died_at = models.DateTimeField(_("died"), db_default=Now())

    class Meta:
        app_label = "outbox"
        db_table = "outbox_dead"
        verbose_name = _("dead outbox row")
        verbose_name_plural = _("dead outbox rows")
