"""Which objects a platform file keeps."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core.fields import ExactCharField


class KeptObject(models.Model):
    """An object that a platform file keeps, as it was when the file was applied last.

    `section` and `name` are those of the file: subscriptions, orders/warehouse. `version` is that
    of `Resource.version`; when the object has another one, somebody has changed it since.
    """

    section = ExactCharField(_("section"), max_length=64)
    name = ExactCharField(_("name"), max_length=200)
    label = models.CharField(_("label"), max_length=100)
    version = models.CharField(max_length=20)
    applied_at = models.DateTimeField(_("applied"))
    applied_by = models.CharField(_("applied by"), max_length=150)

    class Meta:
        db_table = "kept_object"
        verbose_name = _("object that a file keeps")
        verbose_name_plural = _("objects that files keep")
        constraints = [models.UniqueConstraint(fields=["section", "name"], name="kept_object_name")]

    def __str__(self) -> str:
        return f"{self.section} {self.name}"
