"""Consumers, and the subscriptions that join them with business systems."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from msgplatform.core.errors import Undecryptable
from msgplatform.core.fields import ExactSlugField, Named
from msgplatform.core.lazy_text import translate_stored
from msgplatform.core.secrets.fields import EncryptedJSONField, EncryptedTextField
from msgplatform.models import Biz
from notify.subscriptions import formats, limits, payload_filter, signing

# Seconds after each failed attempt until the next: ten attempts in 75 hours
# (the schedule that Standard Webhooks suggests).
DEFAULT_SCHEDULE = [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]


def default_schedule() -> list[int]:
    return list(DEFAULT_SCHEDULE)


class Receive(Named):
    """A consumer: where messages go and how they are signed."""

    class Delivery(models.TextChoices):
        PUSH = "push", _("pushed to its URL")
        LISTEN = "listen", _("fetched by a listener")

    name = ExactSlugField(_("name"), max_length=64, unique=True)
    title = models.CharField(_("title"), max_length=200, blank=True, default="")
    delivery = models.CharField(
        _("delivery"),
        max_length=8,
        choices=Delivery,
        default=Delivery.PUSH,
        db_default=Delivery.PUSH,
        help_text=_(
            "Fetched by a listener (listen): for development. It has no URL; a program on an "
            "engineer's machine (msgp listen) fetches its messages one after the other."
        ),
    )
    url = models.CharField(
        "URL",
        max_length=1000,
        blank=True,
        default="",
        validators=[limits.url],
        help_text=_("Every message is POSTed to this address."),
    )
    secret = EncryptedTextField(_("signing secret"), default=signing.new_secret, editable=False)
    # Signs too until `previous_secret_until`, so that the consumer can change over.
    previous_secret = EncryptedTextField(
        _("previous secret"), blank=True, default="", editable=False
    )
    previous_secret_until = models.DateTimeField(
        _("previous secret until"), null=True, blank=True, editable=False
    )
    header_prefix = models.CharField(
        _("prefix of the signature headers"),
        max_length=32,
        default="webhook",
        validators=[limits.header_prefix],
        help_text=_(
            "webhook is the standard: webhook-id, webhook-timestamp, webhook-signature. Another "
            "prefix is for consumers that were written for another platform."
        ),
    )
    # Encrypted, because headers often hold a key or a password.
    headers = EncryptedJSONField(
        _("headers"),
        default=dict,
        blank=True,
        validators=[limits.headers],
        help_text=_("Sent with every message."),
    )
    networks = models.JSONField(
        _("allowed networks"),
        default=list,
        blank=True,
        validators=[limits.networks],
        help_text=_(
            "Where this consumer may be: 10.2.0.0/16. Empty: wherever the platform may deliver to. "
            "It narrows what OUTBOUND_ALLOW opens, it opens nothing."
        ),
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "receive"
        verbose_name = _("consumer")
        verbose_name_plural = _("consumers")
        ordering = ["name"]

    def __str__(self) -> str:
        return self.title or self.name

    @property
    def is_listened(self) -> bool:
        """True if a listener fetches the consumer's messages, and no sender pushes them."""
        return self.delivery == self.Delivery.LISTEN

    @property
    def has_two_secrets(self) -> bool:
        """True if the previous secret still signs beside the present one."""
        until = self.previous_secret_until
        return until is not None and until > timezone.now()

    def keys(self) -> list[bytes]:
        """The keys that sign now, the present secret's first. Raises Undecryptable, ValueError."""
        has_previous = self.has_two_secrets and self.previous_secret
        secrets = [self.secret, *([self.previous_secret] if has_previous else [])]
        return [signing.decode_secret(secret) for secret in secrets]

    def clean(self) -> None:
        super().clean()
        limits.url_of(self.url, is_listened=self.is_listened)
        with suppress(Undecryptable):  # the headers must be entered again
            limits.headers_beside(self.header_prefix, self.headers)


class BizReceive(models.Model):
    """A subscription: which consumer gets the messages of which business system."""

    class Status(models.IntegerChoices):
        NORMAL = 0, _("normal")
        PAUSED = 1, _("paused")
        DISCARDED = 2, _("discarded")
        SKIPPING = 3, _("resuming, held deliveries are skipped")
        DISABLED = 4, _("disabled by the platform")

    # In these statuses a subscription's deliveries go out; are made and held; do not go out.
    ACTIVE: ClassVar[Sequence[Status]] = (Status.NORMAL, Status.SKIPPING)
    HOLDING: ClassVar[Sequence[Status]] = (Status.PAUSED, Status.DISABLED)
    STOPPED: ClassVar[Sequence[Status]] = (*HOLDING, Status.DISCARDED)
    # Values that a resume sets, so that earlier failures do not count.
    RESUMED: ClassVar[Mapping[str, Any]] = {
        "failing_since": None, "failures": 0, "disabled_reason": "", "disabled_said": {},
    }  # fmt: skip

    biz = models.ForeignKey(Biz, models.PROTECT, verbose_name=_("system"))
    receive = models.ForeignKey(Receive, models.PROTECT, verbose_name=_("consumer"))
    status = models.PositiveSmallIntegerField(
        _("status"),
        choices=Status,
        default=Status.NORMAL,
        help_text=_(
            "Paused: deliveries are made and held; back to normal releases them. "
            "Discarded: no deliveries are made, and those that wait are skipped."
        ),
    )
    event_types = models.JSONField(
        _("event types"),
        default=list,
        blank=True,
        validators=[limits.event_types],
        help_text=_("Patterns: order.* or stock.empty. Empty: every event type."),
    )
    channels = models.JSONField(
        _("channels"),
        default=list,
        blank=True,
        validators=[limits.channels],
        help_text=_("Exact names. Empty: every channel."),
    )
    # Patterns and channels choose by kind, this by content: `payload_filter` says how.
    filter = models.JSONField(
        _("filter"),
        null=True,
        blank=True,
        validators=[payload_filter.check],
        help_text=_(
            'A condition on what a message says: {"data": {"total": {"$gt": 100}}}; empty: every '
            "message."
        ),
    )
    filter_since = models.DateTimeField(_("filter holds since"), null=True, editable=False)
    format = models.CharField(
        _("format"),
        max_length=20,
        choices=formats.Format,
        default=formats.Format.STANDARD,
        db_default=formats.Format.STANDARD,
        help_text=_(
            "How a message is written. CloudEvents 1.0: all in the body, or (binary) attributes "
            "in headers and the payload alone as the body. Each is signed."
        ),
    )
    timeout = models.FloatField(
        _("timeout"),
        null=True,
        blank=True,
        validators=[limits.timeout],
        help_text=_("Seconds for one whole request. Empty: the platform's default."),
    )
    # A change applies to the next attempts, because the wait is looked up after each failure.
    schedule = models.JSONField(
        _("retry schedule"),
        default=default_schedule,
        blank=True,
        validators=[limits.schedule],
        help_text=_("How long to wait after each failed attempt."),
    )
    attempts_limit = models.PositiveSmallIntegerField(
        _("attempts limit"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(limits.MAX_ATTEMPTS + 1)],
        help_text=_(
            "Requests for one message before it is exhausted; if the schedule is shorter, its last "
            "wait is repeated. Empty: one more than the schedule has waits."
        ),
    )
    in_flight_limit = models.PositiveSmallIntegerField(
        _("in-flight limit"),
        default=32,
        validators=[MinValueValidator(1), MaxValueValidator(1000)],
        help_text=_("Requests in flight at the same time."),
    )
    rate_limit = models.FloatField(
        _("rate limit"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0.01), MaxValueValidator(100_000)],
        help_text=_("Requests a second, spread evenly. Empty: no limit."),
    )
    own_process = models.BooleanField(
        _("own process"),
        default=False,
        db_default=False,
        help_text=_(
            "Only a sender that is started for it delivers, and nothing else: manage.py up starts "
            "one; elsewhere start run_sender with --subscription and its id."
        ),
    )
    log_answers = models.CharField(
        _("answers kept"),
        max_length=8,
        choices=limits.KeptAnswers,
        default=limits.KeptAnswers.ALL,
        db_default=limits.KeptAnswers.ALL,
        help_text=_(
            "Headers and body of the consumer's answer, kept with each attempt. Its status and "
            "time are kept in any case. None: those of earlier attempts are removed, too."
        ),
    )
    log_days = models.PositiveSmallIntegerField(
        _("answers kept for days"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(limits.MAX_LOG_DAYS)],
        help_text=_("Then headers and body are removed; empty: kept as long as the message."),
    )
    # Attempts with ids below have no answers that are older than `log_days`.
    answers_removed_below = models.BigIntegerField(default=0, db_default=0, editable=False)
    # Written by the marker: since when every attempt failed, and how many in a row.
    failing_since = models.DateTimeField(_("failing since"), null=True, blank=True, editable=False)
    failures = models.PositiveIntegerField(_("failures in a row"), default=0, editable=False)
    disabled_reason = models.CharField(
        _("why it is disabled"), max_length=200, blank=True, default="", editable=False
    )
    # The reason as `core/lazy_text.py` stores it, for people of other languages.
    disabled_said = models.JSONField(default=dict, editable=False)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "biz_receive"
        verbose_name = _("subscription")
        verbose_name_plural = _("subscriptions")
        permissions = [("operate_bizreceive", "Can pause and resume subscriptions")]
        constraints = [models.UniqueConstraint(fields=["biz", "receive"], name="biz_receive_pair")]

    def __str__(self) -> str:
        return f"{self.biz} → {self.receive}"

    @classmethod
    def named_rows(cls) -> "models.QuerySet[BizReceive]":
        """All, with system and consumer. Columns that may hold secrets are not read."""
        secrets = ("receive__secret", "receive__previous_secret", "receive__headers")
        return cls.objects.select_related("biz", "receive").defer(*secrets)

    @property
    def full_name(self) -> str:
        """The name in the API and in filters: system/consumer."""
        return f"{self.biz.name}/{self.receive.name}"

    def clean(self) -> None:
        # A form has {} for an empty text: one that lets everything through is no filter.
        self.filter = self.filter or None

    @property
    def why_disabled(self) -> str:
        """The reason in the reader's language; '' without a reason."""
        return str(translate_stored(self.disabled_said or self.disabled_reason))
