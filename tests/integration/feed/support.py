"""Steps that tests of Feed share."""

from notify.feed.dispatcher.pace import Pace
from notify.feed.dispatcher.receiver import Receiver
from notify.feed.dispatcher.upkeep import Upkeep
from notify.feed.intake import posts, relations
from notify.feed.intake.posts import Post
from notify.feed.intake.relations import Change
from notify.feed.models import FeedBroadcast, FeedUser, Friend

BIZ = 7


def change(*changes: tuple[str, str, str]) -> list[str]:
    """Changes like ("ann", "follow", "bob"); their outcomes."""
    verdicts = relations.change_many([Change(BIZ, action, a, b) for a, action, b in changes])
    return [verdict.outcome for verdict in verdicts]


def visited(*uids: str) -> None:
    """These readers are active, and their relations written to."""
    FeedUser.objects.filter(biz_id=BIZ, uid__in=uids).update(active=True, floor=0)
    Friend.objects.filter(biz_id=BIZ, fri_uid__in=uids).update(delivery=Friend.Delivery.PUSHED)


def post(uid: str, topic: str = "friend", data: str = "hello", **more: str) -> int:
    return posts.add(Post(BIZ, uid, data, topic, **more)).id


def entries(feed_id: int) -> set[str]:
    """In whose timelines a post is written."""
    return set(FeedBroadcast.objects.filter(feed_id=feed_id).values_list("fri_uid", flat=True))


def written(uid: str) -> list[int]:
    """The posts that are written in a timeline, newest first."""
    rows = FeedBroadcast.objects.filter(biz_id=BIZ, fri_uid=uid)
    return list(rows.order_by("-feed_id").values_list("feed_id", flat=True))


def user(uid: str) -> FeedUser:
    return FeedUser.objects.get(biz_id=BIZ, uid=uid)


def delivery(author: str, reader: str) -> dict[str, int]:
    """By relation."""
    rows = Friend.objects.filter(biz_id=BIZ, uid=author, fri_uid=reader)
    return dict(rows.values_list("relation", "delivery"))


def drain(*topics: str) -> None:
    """Handle all that waits."""
    workers = [
        Upkeep() if topic == "upkeep" else Receiver(topic)
        for topic in topics or ("friend", "vip", "upkeep")
    ]
    while sum(worker.turn(Pace()) for worker in workers):
        pass
