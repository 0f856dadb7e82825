"""The reasons why a post is in a timeline, or is not."""

from collections.abc import Sequence

import msgspec
from django.db import models
from django.utils.translation import gettext_lazy as _

from notify.feed import merge
from notify.feed.models import EventQueue, Feed, FeedBroadcast, FeedUser, Friend
from notify.feed.models.posts import Topic
from notify.feed.models.users import BLOCK, FOLLOW, FRIEND

_STATUS = EventQueue.Status


class Reason(models.TextChoices):
    """A sentence of the answer. A post has a sentence about relations, then one about its way."""

    UNKNOWN = "unknown", _("There is no post with this id in this system.")
    DELETED = "deleted", _("The post was deleted.")
    OWN = "own", _("It is the user's own post.")
    FRIEND = "friend", _("The author is a friend of the user.")
    FOLLOWER = "follower", _("The user follows the author, and the post is for followers too.")
    FRIENDS_ONLY = "friends_only", _("The user follows the author, but the post is for friends.")
    NO_RELATION = "no_relation", _("The user is no friend of the author, and does not follow them.")
    HAS_BLOCKED = "has_blocked", _("The user has blocked the author.")
    IS_BLOCKED = "is_blocked", _("The author has blocked the user.")
    BOTH_BLOCKED = "both_blocked", _("The user and the author have blocked each other.")
    INACTIVE = "inactive", _("The user has stayed away for long, so posts are merged at read.")
    BELOW = "below", _("The post is older than what is written, so it is merged at read.")
    MERGED = "merged", _("The author has very many recipients, so posts are merged at read.")
    NEW = "new", _("The relation is new, so posts are merged at read until they are written.")
    WRITTEN = "written", _("The post is written in the timeline.")
    WAITING = "waiting", _("The post's event waits in the queue.")
    IN_SLICES = "in_slices", _("The post is being written, for a part of its recipients at a time.")
    SET_ASIDE = "set_aside", _("The post's event failed and was set aside.")
    MISSING = "missing", _("The post should be written in the timeline, but it is not.")


_OF_STATUS: dict[int | None, Reason] = {
    _STATUS.WAITING: Reason.WAITING,
    _STATUS.IN_SLICES: Reason.IN_SLICES,
    _STATUS.SET_ASIDE: Reason.SET_ASIDE,
}


class Explanation(msgspec.Struct, frozen=True):
    """`is_visible`: True if the user sees the post. The reasons: the relation of the two users, and
    the way in which the post reaches the timeline."""

    is_visible: bool
    reasons: Sequence[Reason]


def explain(biz: int, uid: str, post_id: int) -> Explanation:
    """Explain why a post is in a timeline or not, by the same checks as a read, one by one."""
    post = Feed.objects.filter(pk=post_id, biz_id=biz).first()
    if post is None:
        return Explanation(False, [Reason.UNKNOWN])
    if post.delete_date is not None:
        return Explanation(False, [Reason.DELETED])
    relations = {}
    if post.uid != uid:
        rows = Friend.objects.filter(biz_id=biz, uid=post.uid, fri_uid=uid)
        relations = dict(rows.values_list("relation", "delivery"))
    is_allowed, reason = _relation(post, uid, relations)
    if not is_allowed:
        return Explanation(False, [reason])
    is_visible, way = _way(post, uid, relations)
    return Explanation(is_visible, [reason, way])


def _relation(post: Feed, uid: str, relations: dict[str, int]) -> tuple[bool, Reason]:
    if post.uid == uid:
        return True, Reason.OWN
    if FRIEND in relations:
        return True, Reason.FRIEND
    if FOLLOW in relations:
        is_for_followers = post.topic == Topic.VIP
        return is_for_followers, Reason.FOLLOWER if is_for_followers else Reason.FRIENDS_ONLY
    key = {"biz_id": post.biz_id, "relation": BLOCK}
    is_blocked_by_user = BLOCK in relations
    is_blocked_by_author = Friend.objects.filter(uid=uid, fri_uid=post.uid, **key).exists()
    if is_blocked_by_user and is_blocked_by_author:
        return False, Reason.BOTH_BLOCKED
    if is_blocked_by_user:
        return False, Reason.HAS_BLOCKED
    return False, Reason.IS_BLOCKED if is_blocked_by_author else Reason.NO_RELATION


def _way(post: Feed, uid: str, relations: dict[str, int]) -> tuple[bool, Reason]:
    """Return (True if the user sees the post already, the post's way into the timeline)."""
    users = FeedUser.objects.filter(biz_id=post.biz_id, uid__in=(uid, post.uid))
    by_uid = {user.uid: user for user in users}
    reader, author = by_uid.get(uid), by_uid.get(post.uid)
    if reader is None or not reader.active:
        return True, Reason.INACTIVE
    if post.pk <= reader.floor:
        return True, Reason.BELOW
    if FeedBroadcast.objects.filter(biz_id=post.biz_id, fri_uid=uid, feed_id=post.pk).exists():
        return True, Reason.WRITTEN
    both_ways = Friend.Delivery.BOTH
    both = [(post.uid, name) for name, delivery in relations.items() if delivery == both_ways]
    if (post.uid, post.topic) in merge.of_relations(both):
        is_pushed = author is None or author.merging == FeedUser.Merging.PUSHED
        return True, Reason.NEW if is_pushed else Reason.MERGED
    # Without an event the post was handled and the event deleted, so an entry should exist.
    status = EventQueue.objects.filter(pk=post.pk).values_list("status", flat=True).first()
    return False, _OF_STATUS.get(status, Reason.MISSING)
