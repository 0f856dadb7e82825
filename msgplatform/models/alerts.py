"""Alerts for people. The channels and rules that send alerts are in `company/alerting`."""

from zoneinfo import available_timezones

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import get_supported_language_variant, gettext_lazy as _

from msgplatform.core.alerts import AlertEvent
from msgplatform.core.fields import ExactCharField
from msgplatform.core.lazy_text import translate_stored


class Severity(models.TextChoices):
    """The severity of an alert; its kind decides (`Runbook.severity`)."""

    INFO = "info", _("for information")
    WARNING = "warning", _("warning")
    CRITICAL = "critical", _("critical")

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Alert(models.Model):
    """An alert for people. Raising an open alert again increases its `count`.

    Subject and text are in the language of the settings; `said` has both as lazy texts
    (`core/lazy_text.py`), for people of other languages.
    """

    kind = models.CharField(_("kind"), max_length=64)
    subject = models.CharField(_("subject"), max_length=200)
    text = models.TextField(_("text"), blank=True, default="")
    said = models.JSONField(default=dict, editable=False)
    # The key while the alert is open, then NULL: unique among open alerts on every database.
    open_key = ExactCharField(max_length=200, unique=True, null=True, blank=True, editable=False)
    key = ExactCharField(_("key"), max_length=200, db_index=True)
    count = models.PositiveIntegerField(_("count"), default=1)
    first_at = models.DateTimeField(_("first seen"))
    last_at = models.DateTimeField(_("last seen"))
    resolved_at = models.DateTimeField(_("resolved"), null=True, blank=True)
    # A person acknowledged the alert, which stays open. Empty until then.
    acknowledged_at = models.DateTimeField(_("acknowledged"), null=True, blank=True)
    acknowledged_by = models.CharField(
        _("acknowledged by"), max_length=150, blank=True, default="", db_default=""
    )
    note = models.CharField(_("note"), max_length=500, blank=True, default="", db_default="")

    class Meta:
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        ordering = ["-last_at"]

    def __str__(self) -> str:
        return self.subject

    def as_event(self, is_resolved: bool = False) -> AlertEvent:
        """The stored alert as an event for the handlers."""
        return AlertEvent(
            self.kind, self.subject, self.text, self.key, resolved=is_resolved, id=self.pk,
            count=self.count,
        )  # fmt: skip

    def translate(self) -> None:
        """Put subject and text into the reader's language. Such a row is shown and never saved."""
        self.subject = translate_stored(self.said.get("subject", self.subject))
        self.text = translate_stored(self.said.get("text", self.text))


class AlertNews(models.Model):
    """News of an opened or resolved alert, until the rules have read it. The alert's own
    transaction writes the row."""

    alert = models.ForeignKey(Alert, models.CASCADE)
    is_end = models.BooleanField(default=False)

    class Meta:
        db_table = "alert_news"
        constraints = [models.UniqueConstraint(fields=["alert", "is_end"], name="alert_news_once")]

    def __str__(self) -> str:
        return f"{self.alert_id} {'resolved' if self.is_end else 'opened'}"


# -- what the migrations of channels and rules name ------------------------------------------------
def own_zone() -> str:
    """The platform's time zone."""
    return settings.TIME_ZONE


def own_language() -> str:
    """The platform's language."""
    return get_supported_language_variant(settings.LANGUAGE_CODE)


def check_zone(name: str) -> None:
    """Raises ValidationError for an unknown time zone."""
    if name not in available_timezones():
        raise ValidationError(_("%s is no time zone: write Asia/Shanghai or UTC.") % name[:50])
