"""The hive: every lead, with the columns by which the synchronisation sees that it changed."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from crmsync.lead_fields import MAX_UID
from crmsync.models.landing import MAX_APPKEY
from msgplatform.core.fields import ExactCharField
from msgplatform.core.intake.idempotency import IdempotencyRow
from msgplatform.models import Biz


class Lead(models.Model):
    """What a person filled in.

    Triggers set UpdateTime and version (`lead_triggers.py`) whoever writes, and whatever that
    writes into them: `save()`, `QuerySet.update()`, raw SQL, another program. UpdateTime is the
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
    """Which lead a (business system, key) pair became; `id` is that lead's id."""

    class Meta:
        db_table = "lead_idempotency"
        constraints = [
            models.UniqueConstraint(fields=IdempotencyRow.UNIQUE, name="lead_idempotency_key")
        ]
