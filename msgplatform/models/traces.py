"""The trace that a message belongs to."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class MessageTrace(models.Model):
    """A traced message of any flow, by its id, with the `traceparent` that its later spans have as
    their parent. Messages that are not traced have no row."""

    id = models.BigIntegerField(primary_key=True)
    traceparent = models.CharField(_("traceparent"), max_length=55)

    class Meta:
        db_table = "message_trace"
        verbose_name = _("traced message")
        verbose_name_plural = _("traced messages")
        default_permissions = ()  # who may see a message may see its trace

    def __str__(self) -> str:
        return f"{self.pk} {self.traceparent}"
