"""Landing pages: what people see behind an advertisement."""

from __future__ import annotations

import re
import secrets
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync import lead_fields
from msgplatform.core.fields import ExactCharField
from msgplatform.models import Biz

# As long as the columns of leads that hold it.
MAX_APPKEY = 64
# A name or an address in lower case with an optional port, as browsers write an origin.
_HOST = re.compile(r"[a-z0-9.-]+(:[0-9]{1,5})?|\[[0-9a-f:]+\](:[0-9]{1,5})?")


def new_appkey() -> str:
    return secrets.token_hex(8)


def validate_origins(given: Any) -> None:
    """Raises ValidationError naming the first that is no origin as browsers send it."""
    if not isinstance(given, list):
        raise ValidationError(gettext("Write a list of origins."))
    for each in given:
        parts = urlsplit(each) if isinstance(each, str) else None
        # Nothing may be left over: a path or a user would never match what a browser sends.
        written = parts and f"{parts.scheme}://{parts.netloc}" == each
        good = written and parts and parts.scheme in ("http", "https")
        if not (good and parts and _HOST.fullmatch(parts.netloc)):
            raise ValidationError(
                gettext("%s: write it as https://www.example.com, in lower case, without a path.")
                % each
            )


class LandingPage(models.Model):
    """A page with a form, ours at `/l/<appkey>` or one hosted elsewhere. The APPKEY is public."""

    class Language(models.TextChoices):
        ANY = "", _("as the visitor's browser wants it")
        CHINESE = "zh", _("Chinese")
        ENGLISH = "en", _("English")

    biz = models.ForeignKey(Biz, models.PROTECT, verbose_name=_("system"))
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
        _("fields"), default=lead_fields.default_fields, validators=[lead_fields.validate_fields]
    )
    language = models.CharField(
        _("language"), max_length=2, choices=Language, blank=True, default=Language.ANY,
        help_text=_("Of what the platform writes on the page; title and text are yours."),
    )  # fmt: skip
    allowed_origins = models.JSONField(
        _("allowed origins"), default=list, blank=True, validators=[validate_origins]
    )
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
        """Not by `reverse`: the console also lists pages while nothing serves them."""
        return f"/l/{self.appkey}"
