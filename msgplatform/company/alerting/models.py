"""Where alerts go: channels, rules, and the messages that have gone or wait."""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator
from django.db import models, transaction
from django.utils import timezone
from django.utils.dates import WEEKDAYS
from django.utils.translation import gettext_lazy as _

from msgplatform.core.archive import kept
from msgplatform.core.errors import NotNow
from msgplatform.core.fields import ExactCharField, ExactSlugField, Named
from msgplatform.core.person.stores import text_store
from msgplatform.core.secrets.fields import EncryptedTextField
from msgplatform.models import Alert, Biz
from msgplatform.models.alerts import Severity, check_zone, own_language, own_zone

MAX_URL = 2000
_MAX_KINDS = 100


class AlertChannel(Named):
    """A place where people read alerts, or an address that is called while all is well."""

    refuses_digits = True
    name = ExactSlugField(
        _("name"), max_length=64, unique=True, help_text=_("Short, stable, lower case: operators")
    )
    enabled = models.BooleanField(
        _("enabled"), default=True, help_text=_("Off: nothing is sent; what waits, waits.")
    )
    url = EncryptedTextField(
        _("address"),
        help_text=_(
            "As apprise writes it: dingtalk://SECRET@TOKEN/, wecombot://KEY, "
            "feishu://TOKEN?secret=SECRET, slack://A/B/C, "
            "mailtos://user:password@example.com?to=ops@example.com, or the webhook of the robot's "
            "own page. Encrypted."
        ),
    )
    # The part of the address without secrets: service, host, fingerprint.
    shown = models.CharField(_("goes to"), max_length=200, editable=False)
    language = models.CharField(
        _("language"), max_length=16, choices=settings.LANGUAGES, default=own_language
    )
    time_zone = models.CharField(
        _("time zone"), max_length=64, default=own_zone, validators=[check_zone],
        help_text=_("Of the times in messages, and of the weekly summary: Asia/Shanghai"),
    )  # fmt: skip
    summary_weekday = models.PositiveSmallIntegerField(
        _("weekly summary"), null=True, blank=True,
        choices=[(number + 1, name) for number, name in WEEKDAYS.items()],
        help_text=_("The day on which the channel gets the week's figures, at 8 in the morning."),
    )  # fmt: skip
    heartbeat_seconds = models.PositiveIntegerField(
        _("heartbeat"), default=0, validators=[MaxValueValidator(86_400)],
        help_text=_(
            "Seconds between two calls of an http:// or https:// address, for a dead man's switch: "
            "the channel then gets no messages. 0: it gets messages."
        ),
    )  # fmt: skip
    # Results of its last sends.
    failing_since = models.DateTimeField(_("failing since"), null=True, editable=False)
    failures_in_row = models.PositiveIntegerField(default=0, editable=False)
    last_error = models.CharField(_("last error"), max_length=500, blank=True, default="",
                                  editable=False)  # fmt: skip
    last_sent_at = models.DateTimeField(_("last sent"), null=True, editable=False)
    next_heartbeat_at = models.DateTimeField(null=True, editable=False)
    next_summary_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        app_label = "msgplatform"
        db_table = "alert_channel"
        verbose_name = _("alert channel")
        verbose_name_plural = _("alert channels")
        ordering = ["name"]

    @property
    def is_heartbeat(self) -> bool:
        return self.heartbeat_seconds > 0

    @property
    def removal_fault(self) -> str:
        """The reason why the channel cannot be deleted, as a sentence; '' if it can. A rule without
        a channel would be silent."""
        other_channels = AlertChannel.objects.exclude(pk=self.pk)
        rules = AlertRule.objects.filter(channels=self).exclude(channels__in=other_channels)
        if names := ", ".join(rules.values_list("name", flat=True)):
            return _("It is the only channel of %s: add another one there first.") % names
        return ""

    @transaction.atomic
    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raises NotNow, also when the other channel of a rule is deleted at the same time."""
        list(AlertChannel.objects.select_for_update().filter(pk=self.pk))  # no new rule gets it
        rule_ids = list(AlertRule.objects.filter(channels=self).values_list("pk", flat=True))
        list(AlertRule.objects.select_for_update().filter(pk__in=rule_ids).order_by("pk"))
        if fault := self.removal_fault:
            raise NotNow(str(fault))
        return super().delete(*args, **kwargs)

    def clean(self) -> None:
        super().clean()
        if 0 < self.heartbeat_seconds < 10:
            words = _("Call it every 10 seconds or less often; 0 switches the heartbeat off.")
            raise ValidationError({"heartbeat_seconds": words})


class AlertRule(Named):
    """A rule: which alerts go to which channels, and when."""

    refuses_digits = True
    name = ExactSlugField(
        _("name"), max_length=64, unique=True, help_text=_("Short, stable, lower case: night-shift")
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    kinds = models.JSONField(
        _("kinds"), default=list, blank=True,
        help_text=_("Kinds of alerts, such as sms.* or notify.failing; none: all kinds."),
    )  # fmt: skip
    min_severity = models.CharField(
        _("severity"), max_length=10, choices=Severity.choices, default=Severity.WARNING,
        help_text=_("Alerts as severe as this, and worse ones."),
    )  # fmt: skip
    systems = models.ManyToManyField(
        Biz, verbose_name=_("business systems"), blank=True, db_table="alert_rule_system",
        help_text=_("Only alerts about these systems; none: all, and those about no system."),
    )  # fmt: skip
    channels = models.ManyToManyField(
        AlertChannel, verbose_name=_("alert channels"), db_table="alert_rule_channel",
        help_text=_("The alerts go there."),
    )  # fmt: skip
    group_seconds = models.PositiveIntegerField(
        _("window"), default=30, validators=[MaxValueValidator(86_400)],
        help_text=_("Seconds in which further alerts join the first one's message."),
    )  # fmt: skip
    repeat_minutes = models.PositiveIntegerField(
        _("repeated"), default=0, validators=[MaxValueValidator(43_200)],
        help_text=_("Minutes until an alert that nobody acknowledged is sent again; 0: never."),
    )  # fmt: skip
    sends_resolved = models.BooleanField(
        _("sends the end"), default=True, help_text=_("Also tell that an alert is resolved.")
    )
    quiet_from = models.TimeField(
        _("quiet from"), null=True, blank=True,
        help_text=_("Between these times only what is severe enough is sent: 22:00"),
    )  # fmt: skip
    quiet_until = models.TimeField(_("quiet until"), null=True, blank=True)
    time_zone = models.CharField(
        _("time zone"), max_length=64, default=own_zone, validators=[check_zone],
        help_text=_("Of the quiet hours: Asia/Shanghai"),
    )  # fmt: skip
    quiet_passes_from = models.CharField(
        _("passes"), max_length=10, choices=Severity.choices, default=Severity.CRITICAL,
        help_text=_("Sent in quiet hours too: alerts as severe as this, and worse ones."),
    )  # fmt: skip
    quiet_drops_below = models.CharField(
        _("dropped below"), max_length=10, choices=Severity.choices, blank=True, default="",
        help_text=_("Alerts of quiet hours that are less severe are never sent; others wait."),
    )  # fmt: skip

    class Meta:
        app_label = "msgplatform"
        db_table = "alert_rule"
        verbose_name = _("alert rule")
        verbose_name_plural = _("alert rules")
        ordering = ["name"]

    def clean(self) -> None:
        super().clean()
        kinds: Any = self.kinds
        is_list = isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)
        if not is_list or len(kinds) > _MAX_KINDS:
            sentence = _('Write a list of at most %d kinds: ["sms.*"].') % _MAX_KINDS
            raise ValidationError({"kinds": sentence})
        if (self.quiet_from is None) != (self.quiet_until is None):
            words = _("Quiet hours have a beginning and an end: set both times, or none.")
            raise ValidationError({"quiet_from": words})
        if self.quiet_from is not None and self.quiet_from == self.quiet_until:
            raise ValidationError({"quiet_until": _("This is the time at which they begin.")})


class AlertMessage(models.Model):
    """A message to one channel, with its alerts: it waits, is tried, and was sent."""

    class Kind(models.TextChoices):
        ALERTS = "alerts", _("alerts")
        SUMMARY = "summary", _("weekly summary")
        TEST = "test", _("test")

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        SENT = "sent", _("sent")
        FAILED = "failed", _("failed")
        DROPPED = "dropped", _("dropped")

    GIVE_UP = timedelta(hours=24)  # time of tries for each alert
    KEEP = timedelta(days=90)  # unless one of its alerts is still open

    channel = models.ForeignKey(AlertChannel, models.CASCADE, verbose_name=_("alert channel"))
    rule = models.ForeignKey(AlertRule, models.SET_NULL, null=True, verbose_name=_("rule"))
    kind = models.CharField(_("what"), max_length=10, choices=Kind.choices, default=Kind.ALERTS)
    state = models.CharField(
        _("state"), max_length=10, choices=State.choices, default=State.WAITING
    )
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    due_at = models.DateTimeField(_("due"))
    # If it is empty, a message is given up a day after it was created.
    give_up_at = models.DateTimeField(null=True)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    claim = ExactCharField(max_length=40, blank=True, default="")
    lease_until = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(_("sent"), null=True)
    error = models.CharField(_("error"), max_length=500, blank=True, default="")
    # The text that was sent last; a summary has it from the beginning.
    title = models.CharField(_("title"), max_length=300, blank=True, default="")
    text = models.TextField(_("text"), blank=True, default="")

    class Meta:
        app_label = "msgplatform"
        db_table = "alert_message"
        verbose_name = _("sent alert")
        verbose_name_plural = _("sent alerts")
        ordering = ["-id"]
        indexes = [models.Index(fields=["state", "due_at"], name="alert_message_due")]

    def __str__(self) -> str:
        return f"{self.channel_id}: {self.title}"


class AlertNotice(models.Model):
    """One piece of news about an alert, in the message that reports it. There is one of each for a
    channel, whichever programs make it, and however many rules ask for it."""

    class Event(models.TextChoices):
        OPENED = "opened", _("opened")
        REPEATED = "repeated", _("still open")
        RESOLVED = "resolved", _("resolved")

    message = models.ForeignKey(AlertMessage, models.CASCADE, related_name="notices")
    channel = models.ForeignKey(AlertChannel, models.CASCADE)
    alert = models.ForeignKey(Alert, models.CASCADE)
    event = models.CharField(max_length=10, choices=Event.choices)
    number = models.PositiveIntegerField(default=0)  # number of the repeat

    class Meta:
        app_label = "msgplatform"
        db_table = "alert_notice"
        constraints = [
            models.UniqueConstraint(
                fields=["alert", "channel", "event", "number"], name="alert_notice_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.alert_id}"


def _oldest_message() -> datetime | None:
    # No index begins with the time; the oldest message has the first id.
    rows = AlertMessage.objects.order_by("pk")
    return rows.values_list("created_at", flat=True).first()


kept_data = [
    kept.KeptData(_("sent alerts"), (), AlertMessage.KEEP.total_seconds, _oldest_message),
]
# Their texts may name a person.
person_stores = [
    text_store("alert_messages", _("sent alerts"), AlertMessage, ("title", "text", "error")),
]
