"""The hot tables: messages, their deliveries, the log of attempts, idempotency keys, and the list
of messages that were brought back from the archive.

The states of a delivery (`ReceiveMsg`):

    split ──▶ pending ──claimed by a maker──▶ queued ⟲ when its lease is over
      │        ▲   ▲                            │
      │        │   └───── failed, unsent ───────┼──▶ delivered
      ▼        │                                ├──▶ exhausted (no attempts left)
     held ─────┘ its subscription is resumed    └──▶ poison (our own fault)
      │
      └──▶ skipped (it is resumed without them)

    `maker/maker.py` says what a new status of the subscription does. A pending delivery ends as
    exhausted when it waits behind an open breaker for longer than its schedule, as poison when its
    message is gone. A split may queue at once. A success counts in every state. A resend of an
    ended delivery makes it pending, in a new generation, without attempts.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import reduce
from operator import or_
from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from msgplatform.core.fields import ExactCharField
from msgplatform.core.intake.idempotency import IdempotencyRow
from msgplatform.core.secrets.fields import SealedBinaryField
from msgplatform.models import Biz
from notify.models.subscriptions import BizReceive


class BizMsg(models.Model):
    """A message as it was published. `payload` is the exact bytes: signatures cover bytes."""

    class State(models.IntegerChoices):
        ACCEPTED = 0, _("accepted")
        DISTRIBUTED = 1, _("distributed")

    id = models.BigIntegerField(primary_key=True)
    biz = models.ForeignKey(
        Biz, models.DO_NOTHING, db_constraint=False, db_index=False, verbose_name=_("system")
    )
    event_type = ExactCharField(_("event type"), max_length=128)
    channel = ExactCharField(_("channel"), max_length=64, blank=True, default="")
    payload = SealedBinaryField(_("payload"))
    state = models.PositiveSmallIntegerField(_("state"), choices=State, default=State.ACCEPTED)
    created_at = models.DateTimeField(_("accepted"))

    class Meta:
        db_table = "biz_msg"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["state", "id"], name="biz_msg_to_split"),
            models.Index(fields=["biz", "state", "id"], name="biz_msg_to_split_of_biz"),
            models.Index(fields=["biz", "id"], name="biz_msg_of_biz"),
            models.Index(fields=["biz", "event_type", "id"], name="biz_msg_of_both"),
            models.Index(fields=["event_type", "id"], name="biz_msg_of_type"),
        ]

    def __str__(self) -> str:
        return f"{self.event_type} {self.pk}"


class IdempotencyKey(IdempotencyRow):
    """The message of a (business system, key) pair; `id` is that message's id."""

    class Meta:
        db_table = "idempotency"
        constraints = [
            models.UniqueConstraint(fields=IdempotencyRow.UNIQUE, name="idempotency_key")
        ]


class ReceiveMsg(models.Model):
    """A delivery: a message for one subscription, with its status."""

    class Status(models.IntegerChoices):
        PENDING = 0, pgettext_lazy("delivery", "pending")
        QUEUED = 1, _("queued")
        HELD = 2, _("held")
        DELIVERED = 3, _("delivered")
        EXHAUSTED = 4, _("exhausted")
        POISON = 5, _("poison")
        SKIPPED = 6, _("skipped")

    # Deliveries in these statuses are to be sent; have no final status; failed for good.
    WAITING: ClassVar[Sequence[Status]] = (Status.PENDING, Status.QUEUED)
    OPEN: ClassVar[Sequence[Status]] = (*WAITING, Status.HELD)
    FAILED: ClassVar[Sequence[Status]] = (Status.EXHAUSTED, Status.POISON)

    id = models.BigIntegerField(primary_key=True)
    msg = models.ForeignKey(
        BizMsg,
        models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="deliveries",
        verbose_name=_("message"),
    )
    biz = models.ForeignKey(
        Biz, models.DO_NOTHING, db_constraint=False, db_index=False, verbose_name=_("system")
    )
    biz_receive = models.ForeignKey(
        BizReceive,
        models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        verbose_name=_("subscription"),
    )
    status = models.PositiveSmallIntegerField(_("status"), choices=Status, default=Status.PENDING)
    send_times = models.PositiveSmallIntegerField(_("attempts"), default=0)
    # The next time at which the maker looks at this row: the retry time while pending, the end of
    # the lease while queued. One column, so that one index serves both statuses.
    next_at = models.DateTimeField(_("next look"))
    claimed_by = models.CharField(max_length=32, blank=True, default="")
    generation = models.PositiveSmallIntegerField(_("generation"), default=0)
    http_status = models.PositiveSmallIntegerField(_("HTTP status"), default=0)
    error = models.CharField(_("error"), max_length=200, blank=True, default="")
    created_at = models.DateTimeField(_("accepted"))
    updated_at = models.DateTimeField(_("last change"))

    class Meta:
        db_table = "receive_msg"
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["msg", "biz_receive"], name="receive_msg_once")
        ]
        indexes = [
            models.Index(fields=["status", "biz_receive", "next_at"], name="receive_msg_due")
        ]

    def __str__(self) -> str:
        return f"{self.msg_id} → {self.biz_receive_id}"

    @property
    def next_attempt_at(self) -> datetime | None:
        """The time of the next attempt; None in other statuses than pending."""
        return self.next_at if self.status == self.Status.PENDING else None


def first_due(status: int) -> models.Subquery:
    """A subquery for BizReceive: the smallest `next_at` of its deliveries in this status, or NULL.

    Costs an index dive for each subscription. A GROUP BY would read all rows, because MariaDB has
    no loose index scan behind a constant first column. The caller compares the time: with a
    condition here MariaDB would read all rows that do not meet it. ORDER BY names all columns of
    the index: with `next_at` alone MySQL 8.4 and later sort the whole backlog.
    """
    rows = ReceiveMsg.objects.filter(status=status, biz_receive_id=models.OuterRef("pk"))
    in_order = rows.order_by("status", "biz_receive_id", "next_at")
    return models.Subquery(in_order.values("next_at")[:1])


def with_deliveries(
    subscriptions: models.QuerySet[BizReceive], statuses: Iterable[int]
) -> models.QuerySet[BizReceive]:
    """The subscriptions of `subscriptions` that have a delivery in one of the statuses."""
    first_times = {f"first_{status}": first_due(status) for status in statuses}
    conditions = (models.Q(**{f"{name}__isnull": False}) for name in first_times)
    return subscriptions.alias(**first_times).filter(reduce(or_, conditions))


class Attempt(models.Model):
    """One request and its answer. Unique per claim: marking the same result again adds nothing."""

    id = models.BigIntegerField(primary_key=True)
    copy = models.ForeignKey(
        ReceiveMsg,
        models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="attempts",
        verbose_name=_("delivery"),
    )
    claim = models.CharField(max_length=32)
    number = models.PositiveSmallIntegerField(_("attempt"))
    at = models.DateTimeField(_("time"))
    seconds = models.FloatField(_("seconds"))
    http_status = models.PositiveSmallIntegerField(_("HTTP status"), default=0)
    error = models.CharField(_("error"), max_length=32, blank=True, default="")
    detail = models.CharField(_("detail"), max_length=300, blank=True, default="")
    response_headers = models.TextField(_("response headers"), blank=True, default="")
    response_body = models.TextField(_("response body"), blank=True, default="")

    class Meta:
        db_table = "attempt"
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["copy", "claim"], name="attempt_once")]

    def __str__(self) -> str:
        return f"{self.copy_id} #{self.number}"


class RestoredMsg(models.Model):
    """A message that was brought back from the archive, until it is moved there again.

    It stays for as long as if it had been accepted at `restored_at`.
    """

    id = models.BigIntegerField(primary_key=True)
    restored_at = models.DateTimeField()
    look_at = models.DateTimeField()  # the archiver's next look

    class Meta:
        db_table = "restored_msg"
        verbose_name = _("restored message")
        verbose_name_plural = _("restored messages")
        default_permissions = ()
        indexes = [models.Index(fields=["look_at"], name="restored_msg_look")]

    def __str__(self) -> str:
        return str(self.pk)
