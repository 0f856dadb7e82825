"""Rows that the platform keeps for itself: the objects that platform files keep, the cell of the
database, node numbers for making ids, the traces of messages."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core.data import cell_record, id_nodes
from msgplatform.core.fields import ExactCharField


class KeptObject(models.Model):
    """An object of a platform file, as it was when the file was last applied.

    `section` and `name` (`kinds.kept_name`) are as in the file: subscriptions, orders/warehouse.
    `version` is the object's `Resource.version`; with another version, somebody has changed it.
    """

    section = ExactCharField(_("section"), max_length=64)
    name = ExactCharField(_("name"), max_length=200)
    label = models.CharField(_("label"), max_length=100)
    version = models.CharField(max_length=20)
    applied_at = models.DateTimeField(_("applied"))
    applied_by = models.CharField(_("applied by"), max_length=150)

    class Meta:
        db_table = "kept_object"
        verbose_name = _("object that a file keeps")
        verbose_name_plural = _("objects that files keep")
        constraints = [models.UniqueConstraint(fields=["section", "name"], name="kept_object_name")]

    def __str__(self) -> str:
        return f"{self.section} {self.name}"


class CellRecord(models.Model):
    """The cell that this database belongs to: the row 1, or none for the only cell."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    number = models.PositiveSmallIntegerField()
    cells = models.PositiveSmallIntegerField()
    since = models.DateTimeField()

    class Meta:
        db_table = cell_record.TABLE
        verbose_name = _("cell")

    def __str__(self) -> str:
        return f"{self.number}/{self.cells}"


class IdNode(models.Model):
    """A node number for making ids, leased to one process (see `msgplatform.core.data.ids`)."""

    node = models.PositiveSmallIntegerField(primary_key=True)
    holder = models.CharField(max_length=32, blank=True, default="")
    lease_until = models.DateTimeField(null=True)
    last_tick = models.BigIntegerField(default=0)

    class Meta:
        db_table = id_nodes.NODE_TABLE
        verbose_name = _("id node")

    def __str__(self) -> str:
        return str(self.node)


class MessageTrace(models.Model):
    """A traced message of any flow, by its id. `traceparent` names the parent of its later spans.
    Only traced messages have a row."""

    id = models.BigIntegerField(primary_key=True)
    traceparent = models.CharField(_("traceparent"), max_length=55)

    class Meta:
        db_table = "message_trace"
        verbose_name = _("traced message")
        verbose_name_plural = _("traced messages")
        default_permissions = ()  # who may see a message may see its trace

    def __str__(self) -> str:
        return f"{self.pk} {self.traceparent}"
