"""The hive: landing pages, and leads with the columns by which the synchronisation sees changes."""

import re
import secrets
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext, gettext_lazy as _

from crmsync import lead_fields
from crmsync.lead_fields import MAX_UID, LeadField
from msgplatform.core import cells
from msgplatform.core.fields import ExactCharField
from msgplatform.core.intake.idempotency import IdempotencyRow
from msgplatform.models import Biz

# The length of the columns of leads that hold it.
MAX_APPKEY = 64
# A name or an address in lower case with an optional port, as browsers write an origin.
_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?")


def appkey_prefix() -> str:
    """The beginning of APPKEYs that are made in a cell, for the proxy in front of all cells."""
    code = cells.own().code
    return f"{code}-" if code else ""


def new_appkey() -> str:
    return appkey_prefix() + secrets.token_hex(8)


def validate_origins(origins: Any) -> None:
    """Raises ValidationError with the first entry that is no origin as browsers send it."""
    if not isinstance(origins, list):
        raise ValidationError(gettext("Write a list of origins."))
    for origin in origins:
        # Nothing may follow: a path or a user would never match the origin of a browser.
        if not (isinstance(origin, str) and _ORIGIN.fullmatch(origin)):
            raise ValidationError(
                gettext("%s: write it as https://www.example.com, in lower case, without a path.")
                % origin
            )


class LandingPage(models.Model):
    """A page with a form, at `/l/<appkey>` or hosted elsewhere. The APPKEY is public."""

    class Language(models.TextChoices):
        ANY = "", _("as the visitor's browser wants it")
        CHINESE = "zh", _("Chinese")
        ENGLISH = "en", _("English")

    biz = models.ForeignKey(
        Biz, models.PROTECT, verbose_name=_("system"),
        help_text=_("It gets the leads, and cannot be changed later."),
    )  # fmt: skip
    appkey = ExactCharField(
        "APPKEY",
        max_length=MAX_APPKEY,
        unique=True,
        default=new_appkey,
        validators=[
            RegexValidator(r"^[A-Za-z0-9_-]{4,64}\Z", _("Use 4 to 64 letters, digits, - and _."))
        ],
        help_text=_(
            "Names the page in its address and in every lead. It is public, and cannot be changed "
            "later."
        ),
    )
    title = models.CharField(_("title"), max_length=200)
    text = models.TextField(
        _("text"), max_length=5000, blank=True, default="",
        help_text=_("Shown above the form; an empty line begins a paragraph."),
    )  # fmt: skip
    form_fields = models.JSONField(
        _("fields"), default=lead_fields.default_fields, validators=[lead_fields.validate_fields],
        help_text=_(
            "In the order of the form. The fields name, phone, email, company, city and message "
            "have labels, which you can replace; every other field needs one."
        ),
    )  # fmt: skip
    language = models.CharField(
        _("language"), max_length=2, choices=Language, blank=True, default=Language.ANY,
        help_text=_("Of what the platform writes on the page; title and text are yours."),
    )  # fmt: skip
    allowed_origins = models.JSONField(
        _("allowed origins"), default=list, blank=True, validators=[validate_origins],
        help_text=_(
            "Where else the page is hosted: https://www.example.com. Scripts there may send leads "
            "to /api/v1/leads with the APPKEY alone. Empty: nowhere."
        ),
    )  # fmt: skip
    enabled = models.BooleanField(
        _("enabled"), default=True, help_text=_("Off: the page is gone and takes no leads.")
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "landing_page"
        verbose_name = _("landing page")
        verbose_name_plural = _("landing pages")
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.title or self.appkey

    def get_absolute_url(self) -> str:
        """The address; `reverse` fails in the console while nothing serves landing pages."""
        return f"/l/{self.appkey}"

    @property
    def fields(self) -> tuple[LeadField, ...]:
        return tuple(
            LeadField(row["name"], bool(row.get("required")), row.get("label", ""))
            for row in self.form_fields
        )


class Lead(models.Model):
    """The answers of one person.

    Triggers set UpdateTime and version (`lead_triggers.py`) in every write, whatever it puts into
    these columns: `save()`, `QuerySet.update()`, raw SQL, another program. UpdateTime is the
    database's clock inside the writing transaction, always in UTC; version begins with 1 and grows
    with every UPDATE. An instance keeps the values that it was read with: read it again after a
    write.
    """

    id = models.BigIntegerField(primary_key=True)
    biz = models.ForeignKey(
        Biz, models.DO_NOTHING, db_constraint=False, db_index=False, verbose_name=_("system")
    )
    appkey = ExactCharField("APPKEY", max_length=MAX_APPKEY)
    uid = ExactCharField("UID", max_length=MAX_UID, blank=True, default="")
    name = models.CharField(_("name"), max_length=100, blank=True, default="")
    phone = ExactCharField(_("phone"), max_length=32, blank=True, default="")
    extra = models.JSONField(_("further fields"), default=dict, blank=True)
    update_time = models.DateTimeField(
        _("changed"), db_column="UpdateTime", db_default=Now(), editable=False
    )
    is_delete = models.BooleanField(_("deleted"), db_column="IsDelete", db_default=False)
    version = models.PositiveIntegerField(_("version"), db_default=1, editable=False)

    class Meta:
        db_table = "lead"
        verbose_name = _("lead")
        verbose_name_plural = _("leads")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["update_time", "id"], name="lead_changed"),
            models.Index(fields=["biz", "id"], name="lead_of_biz"),
            models.Index(fields=["biz", "update_time", "id"], name="lead_of_biz_changed"),
            models.Index(fields=["appkey", "id"], name="lead_of_appkey"),
            models.Index(fields=["phone", "id"], name="lead_of_phone"),
            models.Index(fields=["uid", "id"], name="lead_of_uid"),
            models.Index(fields=["name", "id"], name="lead_of_name"),
        ]

    def __str__(self) -> str:
        return self.name or str(self.pk)


class LeadIdempotency(IdempotencyRow):
    """The lead of each pair (business system, key); `id` is the lead's id."""

    class Meta:
        db_table = "lead_idempotency"
        constraints = [
            models.UniqueConstraint(fields=IdempotencyRow.UNIQUE, name="lead_idempotency_key")
        ]
