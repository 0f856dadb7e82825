"""People who use the console: the roles that the platform ships, the business systems to which a
person is limited, how each person wants to see it, the filters that they keep, and the log of their
actions."""

from typing import Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.models.systems import Biz


class Role(models.Model):
    """A group that the platform ships and keeps up to date (`msgplatform.roles`)."""

    name = models.CharField(max_length=32, primary_key=True)
    group = models.OneToOneField(Group, models.CASCADE, related_name="role")

    class Meta:
        verbose_name = _("role")
        verbose_name_plural = _("roles")

    def __str__(self) -> str:
        return self.name


class Preferences(models.Model):
    """A person's language and time zone; '' means the platform's."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="preferences"
    )
    language = models.CharField(_("language"), max_length=16, blank=True, default="")
    time_zone = models.CharField(_("time zone"), max_length=64, blank=True, default="")

    class Meta:
        verbose_name = _("preferences")
        verbose_name_plural = _("preferences")

    def __str__(self) -> str:
        return str(self.user)

    @property
    def zone(self) -> ZoneInfo | None:
        """The person's time zone; None means the platform's, also for a zone that this machine does
        not know."""
        try:
            return ZoneInfo(self.time_zone) if self.time_zone else None
        except (ZoneInfoNotFoundError, ValueError):
            return None


class PersonLimit(models.Model):
    """The business systems that a person sees. A person without a row sees all systems. A row
    without systems, such as after the last one was deleted, means that the person sees none.

    `msgplatform.person_limits` reads and changes these rows.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="limit"
    )
    systems = models.ManyToManyField(
        Biz, blank=True, related_name="+", verbose_name=_("business systems")
    )

    class Meta:
        verbose_name = _("limit of a person")
        verbose_name_plural = _("limits of people")
        db_table = "person_limit"
        default_permissions = ()  # permissions of the person hold

    def __str__(self) -> str:
        return str(self.user)


class SavedFilter(models.Model):
    """A saved filter of a person, for the search or a bulk action of one flow.

    `page` is the page's name in the address: search, or the bulk action; `query` the filter's
    values.
    """

    SEARCH = "search"

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("owner")
    )
    flow = models.CharField(_("flow"), max_length=32)
    page = models.CharField(_("page"), max_length=32)
    name = models.CharField(_("name"), max_length=60)
    shared = models.BooleanField(
        _("shared"), default=False, help_text=_("Everybody who may see these messages can use it")
    )
    query = models.JSONField(_("filter"), default=dict)
    created_at = models.DateTimeField(_("saved"), auto_now=True)

    class Meta:
        verbose_name = _("saved filter")
        verbose_name_plural = _("saved filters")
        default_permissions = ()  # permissions of its page hold
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "flow", "page", "name"], name="saved_filter_name"
            )
        ]
        indexes = [models.Index(fields=["flow", "page"], name="saved_filter_of_page")]

    def __str__(self) -> str:
        return self.name


class AuditLog(models.Model):
    """An action in the console or over the API that changed how messages flow, and its actor."""

    at = models.DateTimeField(_("time"), auto_now_add=True)
    actor = models.CharField(_("who"), max_length=150)
    action = models.CharField(_("action"), max_length=64)
    target = models.CharField(_("on what"), max_length=200)
    detail = models.JSONField(_("detail"), default=dict, blank=True)
    # The number of its line in the export (`audit_export`).
    line = models.BigIntegerField(_("exported line"), null=True, blank=True, editable=False)

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit log")
        ordering = ["-id"]
        # The first index is for the page of a message, the others for the list's filters.
        indexes = [
            models.Index(fields=["target", "id"], name="audit_log_target"),
            models.Index(fields=["action", "id"], name="audit_log_action"),
            models.Index(fields=["at"], name="audit_log_at"),
            models.Index(fields=["line"], name="audit_log_line"),
        ]

    def __str__(self) -> str:
        return f"{self.actor}: {self.action} {self.target}"

    @classmethod
    def entry(cls, actor: str, action: str, target: str, /, **detail: Any) -> Self:
        """An entry that is not stored yet. `changes` of a detail: field → values before, after."""
        values = msgspec.to_builtins(detail, enc_hook=str)
        return cls(actor=actor[:150], action=action, target=target[:200], detail=values)

    @classmethod
    def record(cls, actor: str, action: str, target: str, /, **detail: Any) -> None:
        """Store an action."""
        cls.entry(actor, action, target, **detail).save(force_insert=True)
