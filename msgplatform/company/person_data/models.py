"""Erasures of one person's data."""

import secrets
from functools import partial

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core.archive import kept
from msgplatform.core.archive.description import DAY
from msgplatform.core.fields import ExactCharField
from msgplatform.core.secrets.fields import EncryptedJSONField

MAX_REASON = 500


class Erasure(models.Model):
    """An erasure of one person's data, which `run_bulk` carries out in passes over all stores.

        pending ──▶ running ⟲ a pass ──▶ done: a pass found nothing
        running ──▶ waiting: something is still on its way ──▶ running
        pending, running, waiting ──▶ cancelled

    `identifiers` (kind → texts) are kept encrypted, so that the erasure can be repeated after a
    restore, for PERSON_ERASURE_DAYS; `hashes` stay as the proof. `erased` counts rows by store,
    `open` those that the present pass has met on their way. A pass is at `cursor` of `store`, and
    has met `found` rows.
    """

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        RUNNING = "running", _("running")
        WAITING = "waiting", _("waiting for what is on its way")
        DONE = "done", _("done")
        CANCELLED = "cancelled", _("cancelled")

    OPEN = (State.PENDING, State.RUNNING, State.WAITING)

    # The erasure's name, also in the list outside of the database.
    key = ExactCharField(
        _("erasure"), max_length=32, unique=True, default=partial(secrets.token_hex, 16)
    )
    state = models.CharField(_("state"), max_length=10, choices=State, default=State.PENDING)
    identifiers = EncryptedJSONField(default=dict)
    hashes = models.JSONField(_("keyed hashes"), default=list)
    reason = models.CharField(_("reason"), max_length=MAX_REASON)
    ends_open = models.BooleanField(_("ends what is on its way"), default=False)
    created_by = models.CharField(_("who"), max_length=150)
    created_at = models.DateTimeField(_("asked for"))
    finished_at = models.DateTimeField(_("finished"), null=True)
    # The time of a restore, or of a request to repeat: since then the erasure runs again.
    repeated_at = models.DateTimeField(_("repeated"), null=True)
    erased = models.JSONField(_("erased"), default=dict)
    open = models.JSONField(_("on their way"), default=dict)
    passes = models.PositiveIntegerField(_("passes"), default=0)
    found = models.PositiveBigIntegerField(default=0)
    store = models.CharField(max_length=64, blank=True, default="")
    cursor = models.CharField(max_length=300, blank=True, default="")
    error = models.CharField(_("error"), max_length=500, blank=True, default="")
    claimed_by = models.CharField(max_length=32, blank=True, default="")
    lease_until = models.DateTimeField(null=True)

    class Meta:
        app_label = "msgplatform"
        db_table = "person_erasure"
        verbose_name = _("erasure")
        verbose_name_plural = _("erasures")
        ordering = ["-id"]
        default_permissions = ("view",)
        permissions = [
            ("find_person", "Can find and export one person's data"),
            ("erase_person", "Can erase one person's data"),
        ]
        indexes = [models.Index(fields=["state", "lease_until"], name="person_erasure_claim")]

    def __str__(self) -> str:
        return str(self.key)

    @property
    def is_open(self) -> bool:
        return self.state in self.OPEN

    @property
    def audit_target(self) -> str:
        """The erasure's name in the audit log."""
        return f"erasure {self.key}"


kept_data = [
    kept.of_column(
        _("encrypted identifiers of erasures"), Erasure, "created_at",
        lambda: settings.PERSON_ERASURE_DAYS * DAY, "PERSON_ERASURE_DAYS",
    ),
]  # fmt: skip
