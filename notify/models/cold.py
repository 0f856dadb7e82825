"""The archive: messages whose deliveries are all final, moved here by `run_archiver`.

The tables have no foreign keys and no unique key but the primary key, so that a server can
partition the tables by id and drop a month at once.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core.archive.router import ColdModel
from msgplatform.core.fields import ExactCharField
from msgplatform.core.secrets.fields import SealedBinaryField
from notify.models.messages import BizMsg


class ColdBizMsg(ColdModel):
    """A message whose deliveries are all final; `key` is its idempotency key, for the search."""

    id = models.BigIntegerField(primary_key=True)
    biz_id = models.BigIntegerField()
    event_type = ExactCharField(max_length=128)
    channel = ExactCharField(max_length=64, blank=True, default="")
    payload = SealedBinaryField()
    created_at = models.DateTimeField()
    key = ExactCharField(max_length=128, blank=True, default="")
    archived_at = models.DateTimeField()
    restored_at = models.DateTimeField(null=True)  # when it last came back from here
    state = BizMsg.State.DISTRIBUTED  # no column: only split messages are archived

    class Meta:
        db_table = "biz_msg_cold"
        verbose_name = _("archived message")
        verbose_name_plural = _("archived messages")
        default_permissions = ()  # who may see a message may see it here too
        indexes = [
            models.Index(fields=["biz_id", "id"], name="biz_msg_cold_of_biz"),
            models.Index(fields=["biz_id", "event_type", "id"], name="biz_msg_cold_of_both"),
            models.Index(fields=["event_type", "id"], name="biz_msg_cold_of_type"),
            models.Index(fields=["key"], name="biz_msg_cold_of_key"),
        ]

    def __str__(self) -> str:
        return f"{self.event_type} {self.pk}"


class ColdReceiveMsg(ColdModel):
    """A delivery as it ended. Indexes go on with the message's id: a search pages by that."""

    id = models.BigIntegerField(primary_key=True)
    msg_id = models.BigIntegerField()
    biz_id = models.BigIntegerField()
    biz_receive_id = models.BigIntegerField()
    status = models.PositiveSmallIntegerField()
    send_times = models.PositiveSmallIntegerField()
    generation = models.PositiveSmallIntegerField()
    http_status = models.PositiveSmallIntegerField()
    error = models.CharField(max_length=200, blank=True, default="")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    next_attempt_at = None  # no column: only final deliveries are archived

    class Meta:
        db_table = "receive_msg_cold"
        verbose_name = _("archived delivery")
        verbose_name_plural = _("archived deliveries")
        default_permissions = ()  # who may see a message may see it here too
        indexes = [
            models.Index(fields=["msg_id"], name="receive_msg_cold_of_msg"),
            models.Index(fields=["biz_receive_id", "msg_id"], name="receive_msg_cold_of_sub"),
            models.Index(fields=["status", "msg_id"], name="receive_msg_cold_status"),
        ]

    def __str__(self) -> str:
        return f"{self.msg_id} → {self.biz_receive_id}"


class ColdAttempt(ColdModel):
    """One request and its answer."""

    id = models.BigIntegerField(primary_key=True)
    copy_id = models.BigIntegerField()
    claim = models.CharField(max_length=32)
    number = models.PositiveSmallIntegerField()
    at = models.DateTimeField()
    seconds = models.FloatField()
    http_status = models.PositiveSmallIntegerField()
    error = models.CharField(max_length=32, blank=True, default="")
    detail = models.CharField(max_length=300, blank=True, default="")
    response_headers = models.TextField(blank=True, default="")
    response_body = models.TextField(blank=True, default="")

    class Meta:
        db_table = "attempt_cold"
        verbose_name = _("archived attempt")
        verbose_name_plural = _("archived attempts")
        default_permissions = ()  # who may see a message may see it here too
        indexes = [models.Index(fields=["copy_id"], name="attempt_cold_of_copy")]

    def __str__(self) -> str:
        return f"{self.copy_id} #{self.number}"
