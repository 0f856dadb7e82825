"""CRMs: the systems that get the leads."""

from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.core.fields import ExactCharField, Named
from msgplatform.core.secrets.fields import EncryptedJSONField

MAX_REMOTE_ID = 191
# A record is dead after at most ten attempts; a wait is at most a day.
_MAX_WAITS, _MAX_WAIT = 9, 86_400


def default_retry_seconds() -> list[int]:
    return [10, 60]


def validate_retry_seconds(waits: Any) -> None:
    """Raises ValidationError unless it is a list of seconds."""
    is_list = isinstance(waits, list) and len(waits) <= _MAX_WAITS
    if not is_list or not all(
        type(wait) in (int, float) and 0 <= wait <= _MAX_WAIT for wait in waits
    ):
        text = gettext("Write up to %(most)d waits of at most a day, such as 10 s, 5 min or 2 h.")
        raise ValidationError(text % {"most": _MAX_WAITS})


class Crm(Named):
    """A CRM with its connection. `adapter` names one of `crmsync.adapters.registry`."""

    refuses_digits = True
    # The adapter of a CRM of the platform's own: it fails when somebody tells it to.
    SANDBOX: ClassVar[str] = "sandbox"

    name = ExactCharField(
        _("name"), max_length=40, unique=True,
        validators=[
            # The name is part of queue names, in which RQ allows no ":".
            RegexValidator(r"^[a-z0-9][a-z0-9-]*\Z", _("Use lower-case letters, digits and -."))
        ],
        help_text=_("Names its queues, such as crm-main-sales; cannot be changed later."),
    )  # fmt: skip
    adapter = models.CharField(_("kind"), max_length=50)
    settings = models.JSONField(_("settings"), default=dict, blank=True)
    credentials = EncryptedJSONField(
        _("credentials"), default=dict, blank=True,
        help_text=_(
            'As JSON: {"token": "…"}. Stored encrypted. For another account or database add '
            "another CRM: the records of this one have ids of the present account."
        ),
    )  # fmt: skip
    concurrency = models.PositiveSmallIntegerField(
        _("calls at a time"), default=1, validators=[MinValueValidator(1), MaxValueValidator(16)],
        help_text=_(
            "Orders that are sent at the same time. In each of them the kind http makes as many "
            "calls at a time as its setting `concurrency` says: the two multiply."
        ),
    )  # fmt: skip
    retry_seconds = models.JSONField(
        _("waits before another try"), default=default_retry_seconds, blank=True,
        validators=[validate_retry_seconds],
        help_text=_(
            "Before each try after the first. When the last try fails too, the record is dead and "
            "waits in the recovery log for a person."
        ),
    )  # fmt: skip
    enabled = models.BooleanField(
        _("enabled"), default=True, help_text=_("Off: nothing is read for it and nothing sent.")
    )
    paused_at = models.DateTimeField(_("paused"), null=True, blank=True, editable=False)
    paused_because = models.CharField(max_length=500, blank=True, default="", editable=False)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "crm"
        verbose_name = _("CRM")
        verbose_name_plural = _("CRMs")
        ordering = ["name"]
        permissions = [("operate_crm", "Can resume CRMs")]
