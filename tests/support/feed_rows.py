"""Rows of Feed for tests of its console, and one of everything for tests in a browser."""

import json
import time
from datetime import timedelta
from typing import Any

from msgplatform.core.data import sql
from msgplatform.models import Biz
from notify.feed import presence
from notify.feed.dispatcher import queue
from notify.feed.dispatcher.pace import Pace
from notify.feed.dispatcher.receiver import Receiver
from notify.feed.intake import posts, relations
from notify.feed.intake.posts import Post
from notify.feed.intake.relations import Change
from notify.feed.models import EventQueue, FeedPace, FeedUser, Friend
from notify.feed.models.posts import Topic
from notify.feed.presence import PaceDecision

REASON = "ValueError: this one cannot be written"


def related(biz: Biz, *changes: tuple[str, str, str]) -> None:
    """("ann", "follow", "bob") and so on."""
    for verdict in relations.change_many([Change(biz.pk, did, a, b) for a, did, b in changes]):
        assert verdict.outcome == "created", verdict


def visited(biz: Biz, *uids: str) -> None:
    """These readers are active, and their relations written to."""
    FeedUser.objects.filter(biz_id=biz.pk, uid__in=uids).update(
        active=True, floor=0, visit_date=sql.now()
    )
    Friend.objects.filter(biz_id=biz.pk, fri_uid__in=uids).update(delivery=Friend.Delivery.PUSHED)


def post(biz: Biz, uid: str, data: str = "hello", topic: str = "friend", **kinds: str) -> int:
    return posts.add(Post(biz.pk, uid, data, topic, **kinds)).id


def drain() -> None:
    """Everything that waits reaches its recipients."""
    for topic in Topic.values:
        while Receiver(topic).turn(Pace()):
            pass


def set_aside(biz: Biz, uid: str, **given: Any) -> int:
    """A post whose event failed."""
    qid = post(biz, uid, **given)
    queue.set_aside(qid, ValueError("this one cannot be written"))
    return qid


def event(qid: int) -> EventQueue:
    return EventQueue.objects.get(pk=qid)


def decided() -> None:
    """The scheduler's decisions of the last half hour."""
    now = sql.now()
    loads = [0.3 + 1.2 * (60 < n < 90) for n in range(180)]
    FeedPace.objects.bulk_create(
        FeedPace(
            at=now - timedelta(seconds=10 * n), load=load, share=0.15 if load > 1 else 1.0,
            events=15 if load > 1 else 100, cause="stmt" if load > 1 else "", latency=0.4 + load,
            baseline=0.4, statements=load, cpu=0.5, backlog=100 * (n % 50), oldest=n / 2,
        )
        for n, load in enumerate(loads)
    )  # fmt: skip
    publish()


def publish() -> None:
    """The scheduler's decision, which is a report for a few seconds."""
    presence.lease.hold("host:4711:0123abcd")
    presence.publish_decision(
        PaceDecision(
            "host:4711:0123abcd",
            time.time(),
            0.15,
            15,
            1.5,
            "stmt",
            1.9,
            0.4,
            1.5,
            0.5,
            0.1,
            1.0,
            {"friend": 3.2, "upkeep": 75.0},
        )
    )


def make() -> str:
    """One of everything, as JSON: ids and names for addresses."""
    biz = Biz.objects.create(name="orders")
    related(biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"), ("bob", "block", "eve"))
    visited(biz, "ann", "bob", "cid")
    long = "A long text, 很长的文字, with_a_word_that_has_no_end_" + "x" * 900
    made = {
        "post": post(biz, "ann", "Good morning", app_id="blog", src_type="note"),
        "vip": post(biz, "ann", long, "vip"),
        "merged": post(biz, "u" * 64, long[:200], app_id="a" * 32, src_type="b" * 32),
    }
    drain()
    gone = post(biz, "ann", "Not so good")
    posts.delete(biz.pk, gone)
    made |= {
        "deleted": gone,
        "aside": set_aside(biz, "ann", data="This one fails"),
        "waiting": post(biz, "bob", "Soon"),
    }
    decided()
    return json.dumps({name: str(number) for name, number in made.items()})
