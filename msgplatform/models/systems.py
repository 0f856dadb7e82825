"""Callers: business systems, and their API keys."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core.fields import ExactCharField, ExactSlugField, Named


class Biz(Named):
    """A business system owns API keys, publishes events, sends SMS, posts and submits leads."""

    refuses_digits = True
    name = ExactSlugField(
        _("name"), max_length=64, unique=True, help_text=_("Short, stable, lower case: orders")
    )
    title = models.CharField(_("title"), max_length=200, blank=True, default="")
    enabled = models.BooleanField(
        _("enabled"), default=True, help_text=_("Off: its API keys are refused.")
    )
    validates_events = models.BooleanField(
        _("validates events"),
        default=False,
        db_default=False,
        help_text=_(
            "Its events are refused unless they match the JSON Schema of their event type in the "
            "catalogue; event types without a schema pass."
        ),
    )
    encrypts_payloads = models.BooleanField(
        _("encrypts payloads"),
        default=False,
        db_default=False,
        help_text=_(
            "Payloads of its events are stored encrypted with ENCRYPTION_KEY, from now on, and "
            "cannot be searched."
        ),
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "biz"
        verbose_name = _("business system")
        verbose_name_plural = _("business systems")
        ordering = ["name"]
        # These permissions are for the whole platform: every flow checks them.
        permissions = [
            ("view_personal", "Can see payloads, texts and personal data in clear"),
            ("view_queues", "Can see the queues and their orders"),
        ]

    def __str__(self) -> str:
        return self.title or self.name


class ApiKey(models.Model):
    """An API key of a business system, or a management key (without a system).

    Only the key's SHA-256 is stored; the key is shown once. A plain hash is enough, because the 256
    random bits of the secret part cannot be guessed.
    """

    biz = models.ForeignKey(
        Biz, models.CASCADE, null=True, blank=True, related_name="api_keys",
        verbose_name=_("system"),
        help_text=_(
            "Empty: a management key, which sets up the platform and publishes nothing but tests."
        ),
    )  # fmt: skip
    name = models.CharField(_("name"), max_length=100, help_text=_("Where it is used"))
    # Exact, because MySQL's default collation does not tell upper from lower case.
    prefix = ExactCharField(_("prefix"), max_length=16, unique=True, editable=False)
    hash = models.CharField(max_length=64, editable=False)
    scopes = models.JSONField(_("scopes"), default=list, blank=True)
    # Names of business systems. Not a relation, because deleting the last system would remove the
    # key's limit. NULL means empty: programs of the last release add keys with NULL.
    systems = models.JSONField(
        _("limited to"), default=list, blank=True, null=True,
        help_text=_(
            "A management key that is limited to business systems sees and changes only what "
            "belongs to these. Empty: no limit."
        ),
    )  # fmt: skip
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
