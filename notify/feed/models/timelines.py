"""Entries: what is written into timelines."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from msgplatform.core.fields import ExactCharField
from notify.feed.models.posts import MAX_KIND, MAX_UID


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
