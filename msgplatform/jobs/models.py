"""Bulk jobs, and the messages of their steps."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core import flows
from msgplatform.core.fields import ExactCharField


class BulkJob(models.Model):
    """An action on many messages of one flow, which `run_bulk` applies page by page."""

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        RUNNING = "running", _("running")
        PAUSED = "paused", _("paused")
        CANCELLED = "cancelled", _("cancelled")
        DONE = "done", _("done")
        FAILED = "failed", _("failed")

    flow = models.CharField(_("flow"), max_length=32)
    action = models.CharField(_("action"), max_length=32, default="resend")
    filter = models.JSONField(_("filter"), default=dict)
    # The business system to which all its messages belong; NULL: several, or not known.
    biz_id = models.BigIntegerField(null=True, editable=False)
    state = models.CharField(_("state"), max_length=16, choices=State, default=State.PENDING)
    total = models.PositiveBigIntegerField(_("total"), default=0)
    # The preview stopped counting at `total`: there may be more.
    more = models.BooleanField(_("or more"), default=False, db_default=False)
    done = models.PositiveBigIntegerField(_("done"), default=0)
    # Written and read by the flow (`core.flows.bulk_pages`); '' before the first page.
    cursor = models.CharField(max_length=200, blank=True, default="")
    rate = models.PositiveIntegerField(
        _("messages per second"), default=0, help_text=_("0: as fast as it goes")
    )
    # Why the job failed, waits, or left some messages alone.
    error = models.TextField(_("error"), blank=True, default="")
    # The job waits because of the last line of `error`; the next page that succeeds removes it.
    waits = models.BooleanField(default=False, db_default=False, editable=False)
    created_by = models.CharField(_("created by"), max_length=150)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)
    # The key of the request that started the job: a second click starts no second job.
    started_from = ExactCharField(max_length=32, unique=True, null=True, editable=False)
    # The runner that has the job now (`core.data.claims`).
    claimed_by = models.CharField(max_length=32, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "msgplatform"
        verbose_name = _("bulk job")
        verbose_name_plural = _("bulk jobs")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["state", "lease_until"], name="bulk_job_claim"),
            models.Index(fields=["biz_id", "id"], name="bulk_job_system"),
        ]

    def __str__(self) -> str:
        flow = flows.get(self.flow)
        action = flow.actions.get(self.action) if flow else None
        if flow is None or action is None:
            return f"{self.flow}: {self.action} #{self.pk}"
        return f"{flow.title}: {action.title} #{self.pk}"

    # State → the states from which people may bring a job into it.
    FROM: ClassVar[Mapping[str, Sequence[str]]] = {
        State.PAUSED: (State.PENDING, State.RUNNING),
        State.PENDING: (State.PAUSED,),
        State.CANCELLED: (State.PENDING, State.RUNNING, State.PAUSED),
    }

    @property
    def audit_target(self) -> str:
        """The job's name in the audit log, the same in every language."""
        return f"{self.action} {self.flow} #{self.pk}"

    @property
    def is_open(self) -> bool:
        return self.state in self.FROM[self.State.CANCELLED]


class BulkBatch(models.Model):
    """The messages of one step of a bulk job, and their outcomes since.

    `ids` are for `BulkAction.outcome`, separated by blanks. `endings` has one letter for the ending
    of each id at the last look. Both are emptied after a month; the sums stay. The row is written
    before the step changes a message. A step that is repeated after a kill has the same cursor, and
    adds to its batch. `look_at` is the time of the next look, NULL for none.
    """

    job = models.ForeignKey(BulkJob, models.CASCADE, related_name="batches")
    cursor = ExactCharField(max_length=200)  # of the step
    ids = models.TextField(blank=True, default="")
    endings = models.TextField(blank=True, default="")
    size = models.PositiveIntegerField()
    arrived = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    waiting = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    look_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "msgplatform"
        verbose_name = _("batch of a bulk job")
        verbose_name_plural = _("batches of bulk jobs")
        default_permissions = ()  # the job's
        constraints = [models.UniqueConstraint(fields=["job", "cursor"], name="bulk_batch_once")]
        indexes = [models.Index(fields=["look_at"], name="bulk_batch_look")]

    def __str__(self) -> str:
        return f"{self.job_id} {self.cursor}"
