"""Node numbers for making ids."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core.data import ids


class IdNode(models.Model):
    """A node number for making ids, leased to one process (see `msgplatform.core.data.ids`)."""

    node = models.PositiveSmallIntegerField(primary_key=True)
    holder = models.CharField(max_length=32, blank=True, default="")
    lease_until = models.DateTimeField(null=True)
    last_tick = models.BigIntegerField(default=0)

    class Meta:
        db_table = ids.NODE_TABLE
        verbose_name = _("id node")

    def __str__(self) -> str:
        return str(self.node)
