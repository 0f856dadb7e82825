"""What needs a person: dead records, queues that took nothing, and calls that failed as a whole."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from crmsync.models.operations import MAX_KEY, MAX_MESSAGE
from msgplatform.core.fields import ExactCharField


class RecoveryEntry(models.Model):
    """One thing to recover. At most one is open for a record.

    `request` is the record's request as it was refused (JSON); empty for an operation that its
    queue did not take.
    """

    class State(models.IntegerChoices):
        OPEN = 0, _("open")
        RETRIED = 1, _("tried again")
        SOLVED = 2, _("solved")
        DISMISSED = 3, _("dismissed")

    policy_id = models.BigIntegerField()
    crm_id = models.BigIntegerField()
    operation_id = models.BigIntegerField(_("operation"))
    record_id = models.BigIntegerField(null=True)
    key = ExactCharField(_("key"), max_length=MAX_KEY, blank=True, default="")
    version = models.BigIntegerField(_("version"), default=0)
    error_class = models.CharField(_("error class"), max_length=16)
    field = models.CharField(_("field"), max_length=128, blank=True, default="")
    reason = models.CharField(_("reason"), max_length=MAX_MESSAGE, blank=True, default="")
    attempts = models.PositiveSmallIntegerField(_("tries"), default=0)
    request = models.BinaryField(default=b"")
    state = models.PositiveSmallIntegerField(_("state"), choices=State, default=State.OPEN)
    created_at = models.DateTimeField(_("since"))
    handled_at = models.DateTimeField(_("handled"), null=True)
    handled_by = models.CharField(_("handled by"), max_length=150, blank=True, default="")

    class Meta:
        db_table = "recovery_log"
        verbose_name = _("entry of the recovery log")
        verbose_name_plural = _("recovery log")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["state", "id"], name="recovery_log_state"),
            models.Index(fields=["crm_id", "state", "id"], name="recovery_log_of_crm"),
            models.Index(fields=["record_id", "state"], name="recovery_log_of_record"),
            models.Index(fields=["operation_id"], name="recovery_log_of_operation"),
        ]

    def __str__(self) -> str:
        return self.reason or self.error_class


class ExceptionEntry(models.Model):
    """A call that failed as a whole: the network, a service that is down, refused credentials.

    `crm_id` is 0 for a source that cannot be read, `operation_id` 0 where there is none.
    """

    id = models.BigIntegerField(primary_key=True)
    policy_id = models.BigIntegerField(default=0)
    crm_id = models.BigIntegerField(default=0)
    operation_id = models.BigIntegerField(_("operation"), default=0)
    kind = models.CharField(_("kind"), max_length=16)
    message = models.CharField(_("message"), max_length=MAX_MESSAGE)
    records = models.PositiveIntegerField(_("records"), default=0)
    at = models.DateTimeField(_("time"))

    class Meta:
        db_table = "exception_log"
        verbose_name = _("entry of the exception log")
        verbose_name_plural = _("exception log")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["crm_id", "id"], name="exception_log_of_crm"),
            models.Index(fields=["operation_id"], name="exception_log_of_operation"),
        ]

    def __str__(self) -> str:
        return self.message
