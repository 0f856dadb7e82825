"""Who changed what."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class AuditLog(models.Model):
    """Who did what in the console or over the API that changed how messages flow."""

    at = models.DateTimeField(_("time"), auto_now_add=True)
    actor = models.CharField(_("who"), max_length=150)
    action = models.CharField(_("action"), max_length=64)
    target = models.CharField(_("on what"), max_length=200)
    detail = models.JSONField(_("detail"), default=dict, blank=True)

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit log")
        ordering = ["-id"]
        # The page of a message asks who did something to it; the others are for the list's filters.
        indexes = [
            models.Index(fields=["target", "id"], name="audit_log_target"),
            models.Index(fields=["action", "id"], name="audit_log_action"),
            models.Index(fields=["at"], name="audit_log_at"),
        ]

    def __str__(self) -> str:
        return f"{self.actor}: {self.action} {self.target}"
