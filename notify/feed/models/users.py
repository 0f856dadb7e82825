"""Users of business systems, and who receives whose posts. User ids are the systems' own.

How an author's posts reach readers (`FeedUser.merging`), and one reader (`Friend.delivery`):

    pushed ── above FEED_READ_FANOUT_ABOVE ──▶ becoming merged ── every reader merges ──▶ merged
      ▲ ▲                                      │                                      │
      │ └── again below FEED_WRITE_FANOUT_BELOW then ──┘                                      │
      └───────────────────────── below FEED_WRITE_FANOUT_BELOW ───────────────────────────────┘

    both ── a backfill wrote the posts ──▶ pushed ── the author becomes merged ──▶ both
    both, pushed ── the reader stays away ──▶ merged ── the reader comes back ──▶ both

A new relation begins as `both` when its reader is active, else as `merged`.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from msgplatform.core.fields import ExactCharField
from notify.feed.models.posts import MAX_UID, Topic

# The floor of a timeline of which nothing is written.
NOTHING_WRITTEN = 2**63 - 1


class FeedUser(models.Model):
    """A user as an author and as a reader. The first relation or visit makes the row.

    A change of relations, visits or merging locks the rows of the users concerned, sorted.
    """

    class Merging(models.IntegerChoices):
        """The way of an author's posts to readers."""

        PUSHED = 0, _("pushed")
        BECOMING = 1, _("becoming merged")  # still pushed, until no relation says "pushed"
        MERGED = 2, _("merged at read")

    pk = models.CompositePrimaryKey("biz_id", "uid")
    biz_id = models.BigIntegerField(_("system"))
    uid = ExactCharField(_("user"), max_length=MAX_UID)
    # The number of users who receive the author's posts.
    friends = models.IntegerField(_("friends"), db_default=0)
    followers = models.IntegerField(_("followers"), db_default=0)
    merging = models.PositiveSmallIntegerField(
        _("posts are"), choices=Merging, db_default=Merging.PUSHED
    )
    # The number of relations that bring posts to the reader.
    authors = models.IntegerField(_("receives from"), db_default=0)
    # Without it no posts are written to the reader's timeline.
    active = models.BooleanField(pgettext_lazy("reader", "active"), db_default=False)
    visit_date = models.DateTimeField(_("last visit"), null=True, blank=True)
    read_id = models.BigIntegerField(_("read up to"), db_default=0)
    # Posts up to this id are merged at read. A pushed post with a greater id is in feed_broadcast
    # when its event is handled.
    floor = models.BigIntegerField(_("written above"), db_default=NOTHING_WRITTEN)

    class Meta:
        db_table = "feed_user"
        verbose_name = _("user")
        verbose_name_plural = _("users")
        indexes = [models.Index(fields=["active", "visit_date"], name="feed_user_visit")]

    def __str__(self) -> str:
        return str(self.uid)

    def recipient_count(self, topic: str) -> int:
        """The number of users who receive this author's posts of a topic."""
        return self.friends + (self.followers if topic == Topic.VIP else 0)


class Friend(models.Model):
    """`fri_uid` receives posts of `uid`; friendship is two rows, one in each direction."""

    class Relation(models.TextChoices):
        FRIEND = "friend", _("friend")
        FOLLOW = "follow", _("follower")
        BLOCK = "block", _("blocked")  # fri_uid has blocked uid: no other row between the two

    class Delivery(models.IntegerChoices):
        """The way of the posts to `fri_uid`."""

        MERGED = 0, _("merged at read, not written")  # the reader is inactive
        BOTH = 1, _("written, and merged at read")  # new, or the author is merged at read
        PUSHED = 2, _("written")

    pk = models.CompositePrimaryKey("biz_id", "uid", "relation", "fri_uid")
    biz_id = models.BigIntegerField(_("system"))
    uid = ExactCharField(_("author"), max_length=MAX_UID)
    relation = ExactCharField(_("relation"), max_length=8, choices=Relation)
    fri_uid = ExactCharField(_("reader"), max_length=MAX_UID)
    delivery = models.PositiveSmallIntegerField(_("delivery"), choices=Delivery)
    create_date = models.DateTimeField(_("since"))

    class Meta:
        db_table = "friend"
        verbose_name = _("relation")
        verbose_name_plural = _("relations")
        indexes = [
            models.Index(
                fields=["biz_id", "fri_uid", "delivery", "relation", "uid"], name="friend_of_reader"
            )
        ]

    def __str__(self) -> str:
        return f"{self.uid} → {self.fri_uid}: {self.relation}"


# Plain texts, for raw SQL.
FRIEND, FOLLOW, BLOCK = map(str, Friend.Relation)
# The relations that bring posts. A reader with both relations to an author gets one entry.
POST_RELATIONS = (FRIEND, FOLLOW)
# Topic → the relations that bring its posts.
RELATIONS_OF_TOPIC = {str(Topic.FRIEND): (FRIEND,), str(Topic.VIP): (FOLLOW, FRIEND)}
