"""Failures by place and answer, and their acknowledgements.

`msgplatform.monitor.failure_store` writes and reads these tables.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core.fields import ExactCharField

MAX_ANSWER = 64
MAX_SAID = 300
MAX_NOTE = 500


class FailureGroup(models.Model):
    """The failures of one place with one answer. The flow defines what `subject` is the id of.

    `lost` counts all failures and only grows. `count` is the number that was neither resent nor
    acknowledged; `since` is when the first of these failed. Messages that ended before
    `counted_since` are not in `count`, so resending them does not reduce it.
    """

    flow = models.CharField(_("flow"), max_length=16)
    subject = models.BigIntegerField(_("subject"))
    answer = ExactCharField(_("answer"), max_length=MAX_ANSWER)
    count = models.BigIntegerField(_("failures"), default=0)
    lost = models.BigIntegerField(default=0)
    since = models.DateTimeField(_("since"))
    last_at = models.DateTimeField(_("last"))
    sample = models.BigIntegerField()  # id of the message that failed last
    said = models.CharField(max_length=MAX_SAID, blank=True, default="")  # its last answer
    counted_since = models.DateTimeField()

    class Meta:
        verbose_name = _("failure")
        verbose_name_plural = _("failures")
        db_table = "msgplatform_givenup"
        default_permissions = ()  # the permission to see a flow's messages includes their failures
        constraints = [
            models.UniqueConstraint(fields=["flow", "subject", "answer"], name="givenup_key")
        ]
        indexes = [models.Index(fields=["flow", "count"], name="givenup_open")]

    def __str__(self) -> str:
        return f"{self.flow} {self.subject}: {self.answer}"

    # Not a column: `failure_groups.open_groups` sets this attribute.
    has_acknowledged = False

    def bound(self, field: str) -> dict[str, str]:
        """The part of a filter that leaves out acknowledged failures; empty if there are none.
        `field` is a field of the filter for the time of a failure."""
        return {field: self.counted_since.isoformat()} if self.has_acknowledged else {}


class Acknowledgement(models.Model):
    """The note of a person who acknowledged the failures of a place up to a time."""

    flow = models.CharField(_("flow"), max_length=16)
    subject = models.BigIntegerField(_("subject"))
    place = models.CharField(_("where"), max_length=200)  # the name at that time
    answer = models.CharField(_("answer"), max_length=200)
    count = models.BigIntegerField(_("failures"))
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
