"""The message as one would model it first: one table, an automatic id, a unique key."""

from django.db import models

from msgplatform.models import Biz


class Message(models.Model):
    biz = models.ForeignKey(Biz, models.PROTECT)
    event_type = models.CharField(max_length=128)
    channel = models.CharField(max_length=64, blank=True, default="")
    payload = models.JSONField()
    payload_hash = models.CharField(max_length=64)
    idempotency_key = models.CharField(max_length=128)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "bench_drf_orm"
        db_table = "bench_message"
        constraints = [
            models.UniqueConstraint(fields=["biz", "idempotency_key"], name="bench_message_key")
        ]

    def __str__(self) -> str:
        return self.idempotency_key
