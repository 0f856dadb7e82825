"""A letter."""

from typing import ClassVar

from django.db import models


class Letter(models.Model):
    biz = models.ForeignKey("msgplatform.Biz", models.PROTECT)
    text = models.CharField(max_length=200)
    delivered = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["-id"]

    def __str__(self) -> str:
        return f"letter {self.pk}"
