"""The tables of the suite; they belong to no app, and no migration makes them."""

from django.db import models

from msgplatform.core.fields import ExactCharField


class _Row(models.Model):
    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.pk)


class Item(_Row):
    """A row that can be claimed, found by its keys, and paged."""

    id = models.BigIntegerField(primary_key=True)
    key = ExactCharField(max_length=40, unique=True)
    name = models.CharField(max_length=40, default="")
    state = models.IntegerField(default=0)
    claimed_by = models.CharField(max_length=32, default="")
    lease_until = models.DateTimeField(null=True)

    class Meta:
        app_label = "engine_suite"
        db_table = "suite_item"
        indexes = [models.Index(fields=["state", "id"], name="suite_item_of_state")]


class Counted(_Row):
    """A counter, by two columns."""

    subject = models.IntegerField()
    name = ExactCharField(max_length=40)
    value = models.BigIntegerField()

    class Meta:
        app_label = "engine_suite"
        db_table = "suite_counter"
        constraints = [
            models.UniqueConstraint(fields=["subject", "name"], name="suite_counter_key")
        ]


class Value(_Row):
    """One value of each kind."""

    id = models.BigIntegerField(primary_key=True)
    text = models.TextField(default="")
    moment = models.DateTimeField(null=True)
    data = models.JSONField(null=True)
    amount = models.DecimalField(max_digits=15, decimal_places=6, null=True)
    content = models.BinaryField(default=b"")

    class Meta:
        app_label = "engine_suite"
        db_table = "suite_value"


class Noted(_Row):
    """A row whose time and version triggers set. LEAD is a reserved word of MySQL, and so may be
    another table's name."""

    id = models.BigIntegerField(primary_key=True)
    name = models.CharField(max_length=40)
    changed_at = models.DateTimeField(null=True)
    version = models.BigIntegerField(default=0)

    class Meta:
        app_label = "engine_suite"
        db_table = "lead"


class Large(_Row):
    """Many rows, of a hundred states."""

    id = models.BigIntegerField(primary_key=True)
    key = ExactCharField(max_length=40)
    state = models.IntegerField()

    class Meta:
        app_label = "engine_suite"
        db_table = "suite_large"
        indexes = [models.Index(fields=["state", "id"], name="suite_large_of_state")]


SMALL = (Item, Counted, Value, Noted)
ALL = (*SMALL, Large)
