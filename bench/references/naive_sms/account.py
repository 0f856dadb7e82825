"""The account as the API reads it, without the app that makes its table."""

from django.db import models


class Account(models.Model):
    biz_id = models.BigIntegerField()
    enabled = models.BooleanField()
    is_default = models.BooleanField()
    sp_number = models.CharField(max_length=21)
    corp_id = models.CharField(max_length=5)
    service_type = models.CharField(max_length=10)
    charge_number = models.CharField(max_length=21)
    signature = models.CharField(max_length=20)
    recipients_limit = models.PositiveIntegerField()

    class Meta:
        app_label = "bench_naive_sms"
        db_table = "sms_account"
        managed = False

    def __str__(self) -> str:
        return self.sp_number
