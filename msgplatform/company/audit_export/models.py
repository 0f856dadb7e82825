"""The cursor of the exporter of the audit log."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class AuditExport(models.Model):
    """The exporter's position in the audit log's chain. The table has one row (id 1), which the
    first export makes.

    `pending`: lines that are signed but perhaps not handed over. They are handed over again
    unchanged, byte by byte.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    line = models.BigIntegerField(default=0)  # the number of the last line, also of pending ones
    last_hash = models.CharField(max_length=64, blank=True, default="")
    pending = models.TextField(blank=True, default="")
    moved_at = models.DateTimeField()  # when lines were last handed over, or the export began
    claimed_by = models.CharField(max_length=32, blank=True, default="")
    lease_until = models.DateTimeField(null=True)

    class Meta:
        app_label = "msgplatform"
        db_table = "audit_export"
        verbose_name = _("export of the audit log")
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.line)
