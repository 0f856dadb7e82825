"""Posts and their entries in timelines."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core.fields import ExactCharField
from msgplatform.core.intake.idempotency import IdempotencyRow
from msgplatform.models import Biz

MAX_UID = 64
MAX_DATA = 1024  # characters
MAX_KIND = 32


class Topic(models.TextChoices):
    """The audience of a post: friends, or followers too. Each topic has a receiver of its own for
    its events (`dispatcher/receiver.py`)."""

    FRIEND = "friend", _("friend")
    VIP = "vip", _("vip")


class Feed(models.Model):
    """A post. Timelines hold only its id, so that a change is seen at once everywhere."""

    id = models.BigIntegerField(primary_key=True)
    biz = models.ForeignKey(
        Biz, models.DO_NOTHING, db_constraint=False, db_index=False, verbose_name=_("system")
    )
    uid = ExactCharField(_("author"), max_length=MAX_UID)
    topic = ExactCharField(_("topic"), max_length=8, choices=Topic)
    app_id = ExactCharField(_("application"), max_length=MAX_KIND, blank=True, default="")
    src_type = ExactCharField(_("kind"), max_length=MAX_KIND, blank=True, default="")
    data = models.CharField(_("content"), max_length=MAX_DATA)
    create_date = models.DateTimeField(_("posted"))
    update_date = models.DateTimeField(_("edited"), null=True, blank=True)
    delete_date = models.DateTimeField(_("deleted"), null=True, blank=True)

    class Meta:
        db_table = "feed"
        verbose_name = _("post")
        verbose_name_plural = _("posts")
        ordering = ["-id"]
        indexes = [models.Index(fields=["biz", "uid", "topic", "id"], name="feed_of_author")]

    def __str__(self) -> str:
        return str(self.pk)


class FeedIdempotency(IdempotencyRow):
    """The post that was made for a pair of business system and key; `id` is the post's id."""

    class Meta:
        db_table = "feed_idempotency"
        constraints = [
            models.UniqueConstraint(fields=IdempotencyRow.UNIQUE, name="feed_idempotency_key")
        ]


class FeedBroadcast(models.Model):
    """An entry: the post `feed_id` in the timeline of `fri_uid`.

    It does not say that the reader may see the post: each read asks that, because an entry may
    outlive the friendship that brought it.
    """

    pk = models.CompositePrimaryKey("biz_id", "fri_uid", "feed_id")
    biz_id = models.BigIntegerField(_("system"))
    fri_uid = ExactCharField(_("reader"), max_length=MAX_UID)
    feed_id = models.BigIntegerField(_("post"))
    create_date = models.DateTimeField(_("posted"))
    app_id = ExactCharField(_("application"), max_length=MAX_KIND)
    src_type = ExactCharField(_("kind"), max_length=MAX_KIND)

    class Meta:
        db_table = "feed_broadcast"
        verbose_name = _("entry")
        verbose_name_plural = _("entries")

    def __str__(self) -> str:
        return f"{self.feed_id} → {self.fri_uid}"
