"""The archive: what is finished. No unique key but the primary one; ids sort by time, so that
a server can partition the tables by month (see `gateway.pump.retention`).

A multi-part message is one SgipMt and a SgipMtPart for each Submit that carried it, so that a late
Report finds it by sequence and user. Only the pump writes rows.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _


class SgipMt(models.Model):
    """A message to one recipient, with its ending and the time of each state.

    `reported_at` is empty without a Report. `ended_at` is empty for messages that were archived
    before it was there: their `reported_at` is when they ended.
    """

    class Final(models.TextChoices):
        DELIVERED = "delivered", _("delivered")
        FAILED = "failed", _("failed")
        EXPIRED = "expired", _("expired")
        UNKNOWN = "unknown", _("unknown")
        ACCEPTED = "accepted", _("accepted")

    id = models.BigIntegerField(primary_key=True)
    biz_id = models.BigIntegerField(_("system"))
    account_id = models.BigIntegerField(_("account"))
    gateway_id = models.BigIntegerField(_("gateway"))
    sp_number = models.CharField(_("SP number"), max_length=21)
    charge_number = models.CharField(_("charge number"), max_length=21, blank=True)
    user_number = models.CharField(_("number"), max_length=21)
    corp_id = models.CharField(_("corp id"), max_length=5)
    service_type = models.CharField(_("service type"), max_length=10, blank=True)
    fee_type = models.PositiveSmallIntegerField(_("fee type"))
    fee_value = models.CharField(_("fee value"), max_length=6)
    given_value = models.CharField(_("given value"), max_length=6)
    agent_flag = models.PositiveSmallIntegerField(_("agent flag"))
    morelateto_mt_flag = models.PositiveSmallIntegerField(_("MT flag"))
    priority = models.PositiveSmallIntegerField(_("priority"))
    expire_at = models.DateTimeField(_("expires"), null=True)
    schedule_at = models.DateTimeField(_("not before"), null=True)
    report_flag = models.PositiveSmallIntegerField(_("report flag"))
    message_coding = models.PositiveSmallIntegerField(_("coding"), default=0)
    text = models.TextField(_("text"))
    parts = models.PositiveSmallIntegerField(_("parts"), default=1)
    idempotency_key = models.CharField(_("key"), max_length=128, blank=True)
    reference = models.CharField(_("reference"), max_length=64, blank=True)
    final = models.CharField(_("state"), max_length=10, choices=Final)
    # The Result of the response that refused the message. `error_code` is that or the Report's.
    result = models.PositiveSmallIntegerField(_("result"), default=0)
    error_code = models.PositiveSmallIntegerField(_("error code"), default=0)
    error = models.CharField(_("error"), max_length=100, blank=True)
    accepted_at = models.DateTimeField(_("accepted"))
    submitted_at = models.DateTimeField(_("submitted"), null=True)
    responded_at = models.DateTimeField(_("responded"), null=True)
    reported_at = models.DateTimeField(_("reported"), null=True)
    ended_at = models.DateTimeField(_("ended"), null=True)
    archived_at = models.DateTimeField(_("archived"))
    # The event `sms.reports` with the ending. An event `sms.report` has the message's id in its
    # key.
    event_id = models.BigIntegerField(_("event"), null=True)

    class Meta:
        db_table = "sgip_mt"
        verbose_name = _("message sent")
        verbose_name_plural = _("messages sent")
        ordering = ["-id"]
        # Each index ends with the id, because every list of the console is in the order of ids.
        indexes = [
            models.Index(fields=["user_number", "id"], name="sgip_mt_of_user"),
            models.Index(fields=["account_id", "id"], name="sgip_mt_of_account"),
            models.Index(fields=["biz_id", "id"], name="sgip_mt_of_biz"),
            models.Index(fields=["final", "id"], name="sgip_mt_of_state"),
        ]

    def __str__(self) -> str:
        return f"{self.user_number} {self.pk}"


class SgipMtPart(models.Model):
    """A Submit that carried a part of a message."""

    id = models.BigIntegerField(primary_key=True)
    mt_id = models.BigIntegerField(_("message"))
    part = models.PositiveSmallIntegerField(_("part"))
    node = models.BigIntegerField(_("node id"))
    ts = models.BigIntegerField(_("sequence time"))
    seqno = models.BigIntegerField(_("sequence number"))
    user_number = models.CharField(_("number"), max_length=21)
    result = models.PositiveSmallIntegerField(_("result"), null=True)
    state = models.PositiveSmallIntegerField(_("Report's state"), null=True)
    error_code = models.PositiveSmallIntegerField(_("error code"), null=True)
    reported_at = models.DateTimeField(_("reported"), null=True)

    class Meta:
        db_table = "sgip_mt_part"
        verbose_name = _("part sent")
        verbose_name_plural = _("parts sent")
        # The first index finds the part of a late Report, which names the Submit's sequence.
        indexes = [
            models.Index(fields=["seqno", "ts"], name="sgip_part_sequence"),
            models.Index(fields=["mt_id"], name="sgip_part_of_mt"),
        ]

    def __str__(self) -> str:
        return f"{self.mt_id}/{self.part}"


class SgipMo(models.Model):
    """A message from a handset; `biz_id` is 0 when no system owns its number."""

    id = models.BigIntegerField(primary_key=True)
    biz_id = models.BigIntegerField(_("system"), default=0)
    account_id = models.BigIntegerField(_("account"), default=0)
    gateway_id = models.BigIntegerField(_("gateway"))
    user_number = models.CharField(_("number"), max_length=21)
    sp_number = models.CharField(_("SP number"), max_length=21)
    tp_pid = models.PositiveSmallIntegerField("TP_pid")
    tp_udhi = models.PositiveSmallIntegerField("TP_udhi")
    message_coding = models.PositiveSmallIntegerField(_("coding"))
    content = models.BinaryField(_("content"))
    text = models.TextField(_("text"))
    parts = models.PositiveSmallIntegerField(_("parts"), default=1)
    missing = models.PositiveSmallIntegerField(_("parts missing"), default=0)
    sequence = models.CharField(_("sequence"), max_length=40)
    received_at = models.DateTimeField(_("received"))
    archived_at = models.DateTimeField(_("archived"))

    class Meta:
        db_table = "sgip_mo"
        verbose_name = _("message received")
        verbose_name_plural = _("messages received")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["user_number", "id"], name="sgip_mo_of_user"),
            models.Index(fields=["biz_id", "id"], name="sgip_mo_of_biz"),
            # The order of `messages.incoming`, in which no MO is put before an MO that was seen.
            models.Index(fields=["biz_id", "archived_at", "id"], name="sgip_mo_since"),
        ]

    def __str__(self) -> str:
        return f"{self.user_number} {self.pk}"


class SgipReport(models.Model):
    """A Report as it came; `mt_id` is 0 for a Report without a message."""

    id = models.BigIntegerField(primary_key=True)
    mt_id = models.BigIntegerField(_("message"), default=0)
    part = models.PositiveSmallIntegerField(_("part"), default=0)
    node = models.BigIntegerField(_("node id"))
    ts = models.BigIntegerField(_("sequence time"))
    seqno = models.BigIntegerField(_("sequence number"))
    user_number = models.CharField(_("number"), max_length=21)
    state = models.PositiveSmallIntegerField(_("state"))
    error_code = models.PositiveSmallIntegerField(_("error code"))
    received_at = models.DateTimeField(_("received"))
    archived_at = models.DateTimeField(_("archived"))

    class Meta:
        db_table = "sgip_report"
        verbose_name = _("Report")
        verbose_name_plural = _("Reports")
        ordering = ["-id"]
        indexes = [models.Index(fields=["mt_id"], name="sgip_report_of_mt")]

    def __str__(self) -> str:
        return f"{self.user_number} {self.state}:{self.error_code}"


class SgipUserRpt(models.Model):
    """A change of a user's state: 0 deregistered, 1 suspended, 2 back to normal."""

    id = models.BigIntegerField(primary_key=True)
    gateway_id = models.BigIntegerField(_("gateway"))
    sp_number = models.CharField(_("SP number"), max_length=21)
    user_number = models.CharField(_("number"), max_length=21)
    user_condition = models.PositiveSmallIntegerField(_("condition"))
    sequence = models.CharField(_("sequence"), max_length=40)
    received_at = models.DateTimeField(_("received"))
    archived_at = models.DateTimeField(_("archived"))

    class Meta:
        db_table = "sgip_user_rpt"
        verbose_name = _("user report")
        verbose_name_plural = _("user reports")
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.user_number} {self.user_condition}"
