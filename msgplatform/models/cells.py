"""The cell of this database."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core.data import cell_record


class CellRecord(models.Model):
    """The cell that this database belongs to: the row 1, or none for the only cell."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    number = models.PositiveSmallIntegerField()
    cells = models.PositiveSmallIntegerField()
    since = models.DateTimeField()

    class Meta:
        db_table = cell_record.TABLE
        verbose_name = _("cell")

    def __str__(self) -> str:
        return f"{self.number}/{self.cells}"
