"""Records, operations and the recovery log: the state of each CRM, and everything sent to it.

A record is one row of a source at one CRM. All decisions are taken on records: one version of a
record is in flight at a time, and an older one never follows a newer one.

    from          to         when
    (row read)    queued     a policy found it; dead at once when the mapping refuses it, confirmed
                             at once when it was deleted before it was ever sent
    queued        confirmed  the CRM has it
    queued        retry      a try failed; due after a while, then queued again
    queued        waiting    it was not sent, or there is a newer version; queued again at once, or
                             when the CRM may be called again
    queued        dead       refused, or its last try failed; a person dismisses it, or sends it
                             again (waiting)
    any           held       its newest version removes something from the CRM; waiting once the
                             guard or a person lets it go, dismissed when a person refuses
    confirmed     queued     a newer version was read

An operation keeps the requests of one round, an item the outcome of one record in one attempt; an
operation of which every record was stored at the first try needs no items.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from crmsync.models.crms import MAX_REMOTE_ID
from msgplatform.core.fields import ExactCharField

MAX_KEY = 128
MAX_MESSAGE = 500
# The error class of a try that the CRM may have stored: the record is looked up before the next.
UNKNOWN = "unknown"
# The error class of a record that was to be sent, and whose values were erased before.
ERASED = "erased"
MAPPING = "mapping"  # the error class of a row that the mapping refused


class Record(models.Model):
    """One row of a policy's source, at the policy's CRM.

    `version`, `deleted` and `digest` (of the request) belong to the newest version that was read;
    its request is in the operation `operation_id`. `sent_version` and `sent_digest` belong to the
    version that the CRM has confirmed. `is_adopted`: people made the CRM's record. `next_at` is the
    time when a waiting record is due, the end of the lease of a queued one, and the time since when
    the guard holds a record.
    `sending_operation` is the operation in flight (0: none); it differs from `operation_id` when a
    newer version was read meanwhile.
    """

    class State(models.IntegerChoices):
        WAITING = 0, _("waiting")
        QUEUED = 1, _("on its way")
        RETRY = 2, _("failed, tried again")
        CONFIRMED = 3, _("confirmed")
        DEAD = 4, _("dead")
        DISMISSED = 5, _("dismissed")
        HELD = 6, _("held by the guard")

    class Removal(models.IntegerChoices):
        """Whether the newest version deletes the CRM's record, or clears a field of it."""

        NONE = 0
        PENDING = 1  # it is not sent before the guard has counted it
        RELEASED = 2

    ROOM = "." * 40  # a claim, and `next_at`
    FIRST_ROOM = "." * 56  # the confirmed digest, an id in the CRM of up to 24 characters

    DUE = (State.WAITING, State.QUEUED, State.RETRY)  # states of records that are sent when due
    OPEN = (*DUE, State.HELD)

    id = models.BigIntegerField(primary_key=True)
    policy_id = models.BigIntegerField(_("policy"))
    key = ExactCharField(_("key"), max_length=MAX_KEY)
    version = models.BigIntegerField(_("version"))
    deleted = models.BooleanField(_("deleted"), default=False)
    operation_id = models.BigIntegerField(_("operation"))
    sending_operation = models.BigIntegerField(default=0)
    digest = models.CharField(max_length=32)
    state = models.PositiveSmallIntegerField(_("state"), choices=State)
    attempt = models.PositiveSmallIntegerField(_("failed tries"), default=0)
    next_at = models.DateTimeField(_("next try"), null=True)
    claimed_by = models.CharField(max_length=32, blank=True, default="")
    # The CRM's version, which is not always the newest one.
    sent_version = models.BigIntegerField(_("confirmed version"), default=0)
    sent_digest = models.CharField(max_length=32, blank=True, default="")
    remote_id = ExactCharField(_("id in the CRM"), max_length=MAX_REMOTE_ID, blank=True, default="")
    is_adopted = models.BooleanField(_("made by people"), default=False, db_default=False)
    removal = models.PositiveSmallIntegerField(
        choices=Removal, default=Removal.NONE, db_default=Removal.NONE
    )
    # Fields that the newest version clears; of a deletion, those of the version before.
    cleared = models.PositiveSmallIntegerField(default=0, db_default=0)
    error_class = models.CharField(_("error class"), max_length=16, blank=True, default="")
    # Keeps a row as long as it was: filled while the row has no claim, and before the first
    # confirmation sets the digest and the id in the CRM. For a row that gets longer InnoDB writes
    # its whole page anew, and 6,600 bytes of log instead of 1,600.
    room = models.CharField(max_length=64, blank=True, default="", db_default="")
    updated_at = models.DateTimeField(_("changed"))

    class Meta:
        db_table = "sync_record"
        verbose_name = _("record")
        verbose_name_plural = _("records")
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["policy_id", "key"], name="sync_record_of_policy")
        ]
        indexes = [
            # For what is due; the other two are for searches.
            models.Index(fields=["policy_id", "state", "next_at", "id"], name="sync_record_due"),
            models.Index(fields=["key", "id"], name="sync_record_of_key"),
            models.Index(fields=["remote_id", "id"], name="sync_record_of_remote"),
        ]

    def __str__(self) -> str:
        return str(self.key)


class Operation(models.Model):
    """The requests of one round of reading to one CRM.

    `data` is a JSON list of requests (`crmsync.orders.Request`), `start_at` and `end_at` are
    milliseconds since 1970, `result` is 1 when every record was confirmed or replaced by a newer
    version, 0 when one is dead; both are NULL until the last record has ended. The columns behind
    count its records. `first_try_at` (milliseconds since 1970): the CRM has stored each of its
    records then, at the first try and in a call of `first_try_ms`; there are no items of these
    tries. NULL: each try has an item.
    """

    id = models.BigIntegerField(primary_key=True)
    data = models.BinaryField()
    start_at = models.BigIntegerField()
    end_at = models.BigIntegerField(null=True)
    result = models.PositiveSmallIntegerField(null=True)
    policy_id = models.BigIntegerField()
    run_id = models.BigIntegerField(default=0)
    records = models.PositiveIntegerField()
    confirmed = models.PositiveIntegerField(default=0)
    replaced = models.PositiveIntegerField(default=0)
    dead = models.PositiveIntegerField(default=0)
    first_try_at = models.BigIntegerField(null=True)
    first_try_ms = models.PositiveIntegerField(null=True)

    class Meta:
        db_table = "sync_operation"
        verbose_name = _("operation")
        verbose_name_plural = _("operations")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["policy_id", "id"], name="sync_operation_of_policy"),
            models.Index(fields=["run_id", "id"], name="sync_operation_of_run"),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class Item(models.Model):
    """The outcome of one record in one attempt; `outcome` names a class of `adapters.outcomes`."""

    id = models.BigIntegerField(primary_key=True)
    operation_id = models.BigIntegerField()
    record_id = models.BigIntegerField()
    crm_id = models.BigIntegerField()
    version = models.BigIntegerField(_("version"))
    attempt = models.PositiveSmallIntegerField(_("try"))
    outcome = models.CharField(_("outcome"), max_length=16)
    remote_id = ExactCharField(_("id in the CRM"), max_length=MAX_REMOTE_ID, blank=True, default="")
    field = models.CharField(_("field"), max_length=128, blank=True, default="")
    message = models.CharField(_("message"), max_length=MAX_MESSAGE, blank=True, default="")
    at = models.DateTimeField(_("time"))
    milliseconds = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "sync_item"
        verbose_name = _("item")
        verbose_name_plural = _("items")
        ordering = ["-id"]
        default_permissions = ()
        indexes = [
            models.Index(fields=["operation_id", "record_id"], name="sync_item_of_operation"),
            models.Index(fields=["record_id", "id"], name="sync_item_of_record"),
        ]

    def __str__(self) -> str:
        return f"{self.record_id}: {self.outcome}"


class RecoveryEntry(models.Model):
    """An entry of the recovery log. At most one is open for a record.

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

    @classmethod
    def open_entries(cls, **conditions: Any) -> models.QuerySet[RecoveryEntry]:
        return cls.objects.filter(state=cls.State.OPEN, **conditions)


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
