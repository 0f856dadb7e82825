"""Alerts, and failures: messages that will not be tried any more."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core.fields import ExactCharField
from msgplatform.core.lazy_text import translate


class Alert(models.Model):
    """An alert for people. If it is raised again while open, it is counted up.

    Subject and text are in the language of the settings; `said` has both as lazy texts
    (`core/lazy_text.py`), for people of other languages.
    """

    kind = models.CharField(_("kind"), max_length=64)
    subject = models.CharField(_("subject"), max_length=200)
    text = models.TextField(_("text"), blank=True, default="")
    said = models.JSONField(default=dict, editable=False)
    # Set while the alert is open, NULL afterwards: unique among the open ones on every database.
    open_key = ExactCharField(max_length=200, unique=True, null=True, blank=True, editable=False)
    key = ExactCharField(_("key"), max_length=200, db_index=True)
    count = models.PositiveIntegerField(_("count"), default=1)
    first_at = models.DateTimeField(_("first seen"))
    last_at = models.DateTimeField(_("last seen"))
    resolved_at = models.DateTimeField(_("resolved"), null=True, blank=True)
    # Somebody has seen it and says so; it stays open. Empty when nobody has.
    acknowledged_at = models.DateTimeField(_("acknowledged"), null=True, blank=True)
    acknowledged_by = models.CharField(
        _("acknowledged by"), max_length=150, blank=True, default="", db_default=""
    )
    note = models.CharField(_("note"), max_length=500, blank=True, default="", db_default="")

    class Meta:
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        ordering = ["-last_at"]

    def __str__(self) -> str:
        return self.subject

    def translate(self) -> None:
        """Subject and text in the reader's language, of a row that is shown and never saved."""
        self.subject = translate(self.said.get("subject", self.subject))
        self.text = translate(self.said.get("text", self.text))


MAX_ANSWER = 64
MAX_SAID = 300
MAX_NOTE = 500


class GivenUp(models.Model):
    """Messages that were given up at one place (`subject`, whose meaning is the flow's) with one
    answer.

    `lost` only grows: how many there ever were. `count` are those of them that were neither sent
    again nor acknowledged; `since` is when the first of these was given up. Messages that ended
    before `counted_since` are not in `count`, so sending them again takes nothing from it.
    """

    flow = models.CharField(_("flow"), max_length=16)
    subject = models.BigIntegerField(_("subject"))
    answer = ExactCharField(_("answer"), max_length=MAX_ANSWER)
    count = models.BigIntegerField(_("given up"), default=0)
    lost = models.BigIntegerField(default=0)
    since = models.DateTimeField(_("since"))
    last_at = models.DateTimeField(_("last"))
    sample = models.BigIntegerField()  # the message that was given up last
    said = models.CharField(max_length=MAX_SAID, blank=True, default="")  # its last answer
    counted_since = models.DateTimeField()

    class Meta:
        verbose_name = _("failure")
        verbose_name_plural = _("failures")
        default_permissions = ()  # who may see a flow's messages may see what became of them
        constraints = [
            models.UniqueConstraint(fields=["flow", "subject", "answer"], name="givenup_key")
        ]
        indexes = [models.Index(fields=["flow", "count"], name="givenup_open")]

    def __str__(self) -> str:
        return f"{self.flow} {self.subject}: {self.answer}"


class Acknowledgement(models.Model):
    """A person's note on the failures of one place up to a time: they need no further action."""

    flow = models.CharField(_("flow"), max_length=16)
    subject = models.BigIntegerField(_("subject"))
    place = models.CharField(_("where"), max_length=200)  # as it was named then
    answer = models.CharField(_("answer"), max_length=200)
    count = models.BigIntegerField(_("given up"))
    until = models.DateTimeField(_("until"))
    note = models.CharField(_("note"), max_length=MAX_NOTE)
    actor = models.CharField(_("who"), max_length=150)
    at = models.DateTimeField(_("time"), auto_now_add=True)

    class Meta:
        verbose_name = _("acknowledgement")
        verbose_name_plural = _("acknowledgements")
        default_permissions = ()
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.actor}: {self.place}"
